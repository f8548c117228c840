//! The interface of services: each reads what a client has sent, and returns the answer.

use crate::config::Endpoint;
use alloc::vec::Vec;
use nfluid_nf::ConfigError;
use serde_json::Value;

/// Seconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixTime(pub u64);

/// The decision about what a client has sent so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The client has to send more first.
    Wait,
    /// An answer.
    Say {
        /// The bytes of the answer.
        bytes: Vec<u8>,
        /// Bytes of the client that the answer is for. The rest belongs to the next answer.
        understood: usize,
        /// The server closes the connection behind the answer.
        closes: bool,
    },
}

/// A service over TCP.
pub trait Service: Send + Sized {
    /// The port of the service, if the configuration names no other.
    const PORT: u16;
    /// Most bytes of a client that are kept while it waits for an answer. A service that waits for more than that ends the
    /// connection.
    const LONGEST_REQUEST: usize;

    /// Reads a configuration.
    ///
    /// # Errors
    /// The first value that cannot be used.
    fn parse(config: &Value) -> Result<(Endpoint, Self), ConfigError>;

    /// Answers a client that has sent `said` since its last answer: nothing, when it has just connected.
    fn answer(&self, now: UnixTime, said: &[u8]) -> Answer;
}
