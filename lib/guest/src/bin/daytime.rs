//! A guest image that tells the time (RFC 867).
#![no_std]
#![no_main]

nfluid_guest::main!(|_name, config, ports| {
    nfluid_server::daytime::build(config, ports, nfluid_guest::runtime::surroundings())
});
