//! Errors of fast paths, for the operator.

use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_netdev::NetdevError;

/// A failure without a remedy, with its causes.
pub fn broken(error: impl Into<anyhow::Error>) -> PlatformError {
    let error: anyhow::Error = error.into();
    PlatformError::new(PlatformErrorKind::Failed, format!("{error:#}"))
}

/// An error at an interface.
pub fn failed(error: &NetdevError) -> PlatformError {
    let kind = match error {
        NetdevError::NoNamespace { .. }
        | NetdevError::NoInterface { .. }
        | NetdevError::Elsewhere { .. } => PlatformErrorKind::NotFound,
        NetdevError::Busy { .. } | NetdevError::BusyAtTc { .. } | NetdevError::Taken { .. } => {
            PlatformErrorKind::Busy
        }
        NetdevError::Refused { .. }
        | NetdevError::NoSteering { .. }
        | NetdevError::Dispatcher { .. } => PlatformErrorKind::Unsupported,
        NetdevError::System { .. } => PlatformErrorKind::Failed,
    };
    PlatformError::new(kind, error.to_string())
}
