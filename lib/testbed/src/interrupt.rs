//! An interrupt ends a test or an experiment between two steps, through the guards that clean up.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code after an interrupt, as a shell gives it for SIGINT.
pub const EXIT_CODE: u8 = 130;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The process was interrupted.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Notes SIGINT, SIGTERM and SIGHUP from now on; the second one ends the process at once.
///
/// # Errors
/// When a handler cannot be installed.
pub fn watch() -> anyhow::Result<()> {
    let asked = ASKED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_conditional_shutdown(signal, i32::from(EXIT_CODE), Arc::clone(asked))
            .and_then(|_| flag::register(signal, Arc::clone(asked)))
            .context("watching for interrupts")?;
    }
    Ok(())
}

/// # Errors
/// [`Interrupted`] after a signal.
pub fn check() -> Result<(), Interrupted> {
    let asked = ASKED
        .get()
        .is_some_and(|asked| asked.load(Ordering::SeqCst));
    if asked { Err(Interrupted) } else { Ok(()) }
}
