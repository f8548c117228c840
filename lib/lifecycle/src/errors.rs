//! Errors of changes of instances, for the operator.

use nfluid_control::apply::{PlatformError, PlatformErrorKind};

/// An error without a kind of its own.
pub fn failed(error: anyhow::Error) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Failed, format!("{error:#}"))
}

/// A refusal, with a remedy.
pub fn refused(message: String, remedy: &str) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Refused, message).with_remedy(remedy)
}

/// The error of an operation that is not possible for one of several members.
pub fn one_of_several(name: &str, what: &str) -> PlatformError {
    let message =
        format!("instance {name} is one of several that share flows: it cannot be {what}");
    refused(message, "'nfluid scale INSTANCE 1' makes it one again")
}
