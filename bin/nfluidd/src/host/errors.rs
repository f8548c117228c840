//! Errors of the switch and of full tables, for the operator. Other errors are those of `nfluid_lifecycle::errors`.

use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_switch::SwitchError;

/// An error of the switch, for the operator.
pub fn switch_failed(error: SwitchError) -> PlatformError {
    let kind = match &error {
        SwitchError::Limit(_) => PlatformErrorKind::Exhausted,
        _ => PlatformErrorKind::Failed,
    };
    PlatformError::new(kind, error.to_string())
}

/// The platform has no number left for another object of this kind.
pub fn exhausted(what: &str) -> PlatformError {
    PlatformError::new(
        PlatformErrorKind::Exhausted,
        format!("the platform has no room for more {what}"),
    )
}
