//! The end of a TLS terminator: its connections may go on for a while.

use super::{Shared, lock};
use nfluid_instance::terminator::{self, is_one};
use nfluid_tls::config::Config;
use std::time::Duration;

/// Has a terminator accept nobody any more, and waits for its connections. The host is not locked meanwhile. An instance that is
/// no terminator is not waited for.
pub fn drain(host: &Shared, name: &str) {
    let found = lock(host).terminator(name);
    if let Some((control, patience)) = found {
        terminator::drain(&control, patience);
    }
}

impl super::Host {
    /// Where a terminator that runs listens for this daemon, and how long its connections may go on when it is to end.
    fn terminator(&self, name: &str) -> Option<(std::path::PathBuf, Duration)> {
        let running = self.instances.get(name)?;
        if !is_one(&running.spec.program) || !running.answers() {
            return None;
        }
        let config = Config::parse(&running.spec.config).ok()?;
        Some((running.workload.control().to_owned(), config.drain))
    }
}
