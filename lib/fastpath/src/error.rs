//! Errors of fast paths, for the operator.

use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_switch::uplink::{ErrorKind, ToldError, UplinkError};

/// A failure without a remedy, with its causes.
pub fn broken(error: impl Into<anyhow::Error>) -> PlatformError {
    let error: anyhow::Error = error.into();
    PlatformError::new(PlatformErrorKind::Failed, format!("{error:#}"))
}

/// An error at an interface.
pub fn failed(error: &UplinkError) -> PlatformError {
    interface_error(&ToldError::from(error))
}

/// An error at an interface, also of an uplink's process.
pub fn interface_error(error: &ToldError) -> PlatformError {
    let kind = match error.kind {
        ErrorKind::NoNamespace | ErrorKind::NoInterface | ErrorKind::Elsewhere => {
            PlatformErrorKind::NotFound
        }
        ErrorKind::Busy => PlatformErrorKind::Busy,
        ErrorKind::Refused | ErrorKind::NoSteering | ErrorKind::Dispatcher => {
            PlatformErrorKind::Unsupported
        }
        _ => PlatformErrorKind::Failed,
    };
    PlatformError::new(kind, error.text.clone())
}
