//! The guest image of all network functions of the catalogue.
#![no_std]
#![no_main]

nfluid_guest::main!(nfluid_nf::catalogue::build);
