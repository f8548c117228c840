//! Round-trip times: a side that sends probes and a side that reflects them.
//!
//! The probing side has two modes. *Ping-pong* sends the next probe when the last one is answered or given up, which
//! times the path when it is otherwise idle. With an *interval* probes leave by the clock, independently of the
//! answers, which does not leave out times of congestion.

mod ping;
mod reflect;

pub use ping::{PingJob, PingLine, PingReport, ping};
pub use reflect::{ReflectJob, ReflectReport, reflect};

use crate::io::IoError;
use crate::spec::SpecError;

/// The reason why a ping failed.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// The probes cannot be made as described.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The port failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

#[cfg(test)]
mod tests;
