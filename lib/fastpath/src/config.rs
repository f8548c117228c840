//! Parsing configurations: a configuration is accepted as a whole, or refused with the wrong key.

use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::host::NfConfigError;
use serde::Deserialize;
use serde_json::Value;
use std::net::SocketAddr;

/// Error: the configuration is wrong at this key.
pub fn wrong(path: impl Into<String>, message: impl ToString) -> NfConfigError {
    NfConfigError {
        path: path.into(),
        line: None,
        message: message.to_string(),
    }
}

/// The same error for carrying out a change.
pub fn refused(error: NfConfigError) -> PlatformError {
    let message = format!("{} ({})", error.message, error.path);
    PlatformError::new(PlatformErrorKind::Refused, message)
}

/// Parses the value of a key.
///
/// # Errors
/// The first error in the value.
pub fn read<T: for<'a> Deserialize<'a>>(path: &str, value: &Value) -> Result<T, NfConfigError> {
    T::deserialize(value).map_err(|error| wrong(path, error))
}

/// Checks that a socket address is a unicast address of a host.
///
/// # Errors
/// When it is not.
pub fn check_place(path: &str, at: SocketAddr) -> Result<(), NfConfigError> {
    let ip = at.ip();
    if ip.is_unspecified() || ip.is_multicast() || at.port() == 0 {
        return Err(wrong(path, format!("{at} is no address of one host")));
    }
    Ok(())
}
