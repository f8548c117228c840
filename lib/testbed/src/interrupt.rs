//! An interrupt ends a test or an experiment between two steps, so that the drop guards clean up.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Exit code after an interrupt, as a shell gives it for SIGINT.
pub const EXIT_CODE: u8 = 130;

static WATCHING: Mutex<bool> = Mutex::new(false);
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

/// Handles SIGINT, SIGTERM and SIGHUP from now on; the second signal ends the process at once. Further calls have no
/// effect.
///
/// # Errors
/// When a handler cannot be installed.
pub fn watch() -> anyhow::Result<()> {
    // Handlers that were installed twice would count each signal twice.
    let mut is_watching = WATCHING.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::replace(&mut *is_watching, true) {
        return Ok(());
    }
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

#[cfg(test)]
mod tests {
    use super::{check, watch};
    use rustix::process::{Signal, getpid, kill_process};
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn one_signal_is_noted_however_often_it_is_watched_for() {
        // Runs in its own process: an interrupt concerns the whole process.
        const MARK: &str = "NFLUID_TEST_INTERRUPTED";
        const TEST: &str = "interrupt::tests::one_signal_is_noted_however_often_it_is_watched_for";
        if std::env::var_os(MARK).is_none() {
            let own = std::env::current_exe().expect("/proc is mounted");
            let mut command = Command::new(own);
            let status = command.args([TEST, "--exact"]).env(MARK, "1").status();
            assert!(status.expect("it starts").success());
            return;
        }
        for _ in 0..3 {
            watch().expect("signals can be watched");
        }
        check().expect("no signal yet");
        kill_process(getpid(), Signal::HUP).expect("own process");
        let start = Instant::now();
        while check().is_ok() && start.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        assert!(check().is_err(), "the signal was not noted");
    }
}
