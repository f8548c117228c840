//! The conversation of the daemon and an instance.
//!
//! | module | what it is |
//! |---|---|
//! | [`request`] | what the daemon asks |
//! | [`answer`] | what the instance answers |
//! | [`environment`] | environment variables that name what an instance inherits: its configuration, sockets and files |
//! | [`instance`] | the instance's side: waits for requests between two batches, and answers |
//! | `daemon` (feature `daemon`) | the daemon's side: asks, and waits for a hostile instance for a bounded time |
//!
//! A connection to an instance's control socket carries one request and one answer. Each is a line of JSON. A file or a socket
//! that the request is about comes with it (`SCM_RIGHTS`).

#![forbid(unsafe_code)]

pub mod answer;
#[cfg(feature = "daemon")]
pub mod daemon;
pub mod environment;
pub mod instance;
pub mod request;

pub use answer::Answer;
pub use request::Request;
