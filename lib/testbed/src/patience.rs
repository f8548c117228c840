//! Waiting for a condition. A wait has a condition and never a duration: no machine is too slow or too busy for it.

use crate::interrupt;
use anyhow::bail;
use std::thread;
use std::time::{Duration, Instant};

/// How long something that must happen may take before a wait gives up: no machine is so busy.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until a condition holds, for at most [`PATIENCE`].
///
/// # Errors
/// When the condition does not come to hold; when interrupted.
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
