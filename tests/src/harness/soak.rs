//! `make soak`: the long tests before a release.

/// Returns true if `make soak` runs this test.
#[must_use]
pub fn is_on() -> bool {
    std::env::var_os("NFLUID_SOAK").is_some()
}

/// Returns `long` in `make soak`, `short` in any other run.
pub fn choose<T>(short: T, long: T) -> T {
    if is_on() { long } else { short }
}
