//! Reading configurations: each is read whole, and refused with the key that is wrong.

use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::host::NfConfigError;
use serde::Deserialize;
use serde_json::Value;
use std::net::SocketAddr;

/// A configuration that is wrong at this key.
pub fn wrong(path: impl Into<String>, message: impl ToString) -> NfConfigError {
    NfConfigError {
        path: path.into(),
        line: None,
        message: message.to_string(),
    }
}

/// The same, for those who carry a change out.
pub fn refused(error: NfConfigError) -> PlatformError {
    let message = format!("{} ({})", error.message, error.path);
    PlatformError::new(PlatformErrorKind::Refused, message)
}

/// Reads what is at this key.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn read<T: for<'a> Deserialize<'a>>(path: &str, value: &Value) -> Result<T, NfConfigError> {
    T::deserialize(value).map_err(|error| wrong(path, error))
}

/// Checks that a socket address is of one host.
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
