//! The HTTP API of nfluid.
//!
//! - [`types`]: the bodies of requests and responses. Always built.
//! - [`time`]: a time as text. Always built.
//! - `server` (feature): the [`Server`](server::Server) trait that the daemon implements, and the
//!   router that speaks HTTP for it.
//! - `client` (feature): a client over a UNIX socket.
//!
//! The OpenAPI document is committed at `api/openapi/nfluid.json`; a test fails when it is stale.
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod types;

/// Default path of the daemon's socket.
pub const SOCKET_PATH: &str = "/run/nfluid/nfluidd.sock";
