//! Round-trip times: a side that asks and a side that reflects.
//!
//! The asking side has two ways. *Ping-pong* sends the next probe when the last one is answered or
//! given up, which times the path when it is otherwise idle. With an *interval* probes leave by the
//! clock whatever comes back, which times it without leaving out the bad moments.

mod ping;
mod reflect;

pub use ping::{PingJob, PingLine, PingReport, ping};
pub use reflect::{ReflectJob, ReflectReport, reflect};

use crate::io::IoError;
use crate::spec::SpecError;

/// Why a ping failed.
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
