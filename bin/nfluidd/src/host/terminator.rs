//! The end of a TLS terminator, whose connections may go on for a while.

use super::{Shared, lock};
use nfluid_instance::terminator::{self, is_terminator};
use nfluid_tls::config::Config;
use std::time::Duration;

/// Makes a terminator stop accepting connections, and waits for the open connections. The host is not locked
/// meanwhile. Returns at once for an instance that is not a terminator.
pub fn drain(host: &Shared, name: &str) {
    let found = lock(host).terminator(name);
    if let Some((control, patience)) = found {
        terminator::drain(&control, patience);
    }
}

impl super::Host {
    /// Returns the control socket of a running terminator, and the time for which its connections may go on after its
    /// end was ordered.
    fn terminator(&self, name: &str) -> Option<(std::path::PathBuf, Duration)> {
        let running = self.instances.get(name)?;
        if !is_terminator(&running.spec.program) || !running.answers() {
            return None;
        }
        let config = Config::parse(&running.spec.config).ok()?;
        Some((running.workload.control().to_owned(), config.drain))
    }
}
