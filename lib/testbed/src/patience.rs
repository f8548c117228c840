//! Waiting for a condition. A wait ends by a condition, never by a duration, so that slow or busy machines pass as
//! well.

use crate::interrupt;
use anyhow::bail;
use std::thread;
use std::time::{Duration, Instant};

/// How long a wait for something that must happen may take before it fails: longer than on any busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Interval between two checks of a condition.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until a condition holds, for at most [`PATIENCE`].
///
/// # Errors
/// When the condition does not become true in time; when interrupted.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    let start = Instant::now();
    while !is_so() {
        interrupt::check()?;
        if start.elapsed() > PATIENCE {
            bail!("it never came true: {what}");
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Waits until a condition holds, for at most [`PATIENCE`], also after an interrupt: for clean-up. Returns true if the
/// condition holds.
pub fn comes_to_hold(mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if start.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(LOOK);
    }
}
