//! Errors of the daemon's actions, for the operator.

use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_switch::SwitchError;

/// An error of the actuator, for the operator.
pub fn error(error: anyhow::Error) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Failed, format!("{error:#}"))
}

/// An error of the switch, for the operator.
pub fn failed(error: SwitchError) -> PlatformError {
    let kind = match &error {
        SwitchError::Limit(_) => PlatformErrorKind::Exhausted,
        _ => PlatformErrorKind::Failed,
    };
    PlatformError::new(kind, error.to_string())
}

/// A refusal, with a remedy.
pub fn refused(message: String, remedy: &str) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Refused, message).with_remedy(remedy)
}

/// The error of an action that is not possible for one of several members.
pub fn one_of_several(name: &str, what: &str) -> PlatformError {
    PlatformError::new(
        PlatformErrorKind::Refused,
        format!("instance {name} is one of several that share flows: it cannot be {what}"),
    )
    .with_remedy("'nfluid scale INSTANCE 1' makes it one again")
}

/// The platform has no number left for another object of this kind.
pub fn exhausted(what: &str) -> PlatformError {
    PlatformError::new(
        PlatformErrorKind::Exhausted,
        format!("the platform has no room for more {what}"),
    )
}
