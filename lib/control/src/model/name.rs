//! Names of objects.

use crate::quantity::ValueError;

/// Maximum length of an object's name, in bytes.
pub const NAME_MAX: usize = 63;

/// Checks the name of an object: 1 ..= 63 letters, digits, `-` and `_`, the first a letter or digit.
///
/// # Errors
/// The name is invalid; the error describes valid names.
pub fn check_name(name: &str) -> Result<&str, ValueError> {
    let mut bytes = name.bytes();
    let starts_well = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
    let goes_on_well = bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if starts_well && goes_on_well && name.len() <= NAME_MAX {
        return Ok(name);
    }
    Err(ValueError::new(
        format!("'{}' is not a name", name.escape_debug()),
        format!(
            "use 1 to {NAME_MAX} letters, digits, '-' and '_', beginning with a letter or digit"
        ),
    ))
}
