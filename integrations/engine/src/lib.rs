//! The drivers of all engines share this access to nfluid's daemon: the feed of its events ([`feed`]), links as an engine's objects write them
//! ([`links`]), names that follow from them ([`names`]), and requests about objects with the daemon's errors in words ([`requests`]). With the feature `program`, how a driver's program runs; with `serve`, what it serves over TCP. A driver adds its engine's own protocol.
#![forbid(unsafe_code)]

pub mod feed;
pub mod links;
pub mod names;
#[cfg(feature = "program")]
pub mod program;
pub mod requests;
#[cfg(feature = "serve")]
pub mod serve;
#[cfg(feature = "simulated")]
pub mod simulated;
