//! Runs before a release, `make soak`: tests take the long way then.

/// Whether this is such a run.
#[must_use]
pub fn is_on() -> bool {
    std::env::var_os("NFLUID_SOAK").is_some()
}

/// `long` in such a run, `short` in any other.
pub fn choose<T>(short: T, long: T) -> T {
    if is_on() { long } else { short }
}
