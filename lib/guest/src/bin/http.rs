//! A guest image that serves a page (RFC 9110).
#![no_std]
#![no_main]

nfluid_guest::main!(|_name, config, ports| {
    nfluid_server::http::build(config, ports, nfluid_guest::runtime::surroundings())
});
