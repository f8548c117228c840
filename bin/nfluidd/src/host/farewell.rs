//! The time that an instance has before it is ended: connections of a TLS terminator go on for a while, a program is asked
//! to end by itself. The host is not locked meanwhile: others start, crash and are looked at.

use super::{Host, Shared, lock};
use nfluid_control::access::Stop;
use nfluid_instance::terminator::{self, is_terminator};
use nfluid_lifecycle::pausing;
use nfluid_lifecycle::workload::Farewell;
use nfluid_tls::config::Config;
use std::path::PathBuf;
use std::time::Duration;

/// An instance that is about to be ended. Until this is dropped, its exit is no crash.
pub struct Ending<'a> {
    host: &'a Shared,
    name: &'a str,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Some(running) = lock(self.host).instances.get_mut(self.name) {
            running.is_ending = false;
        }
    }
}

/// Gives an instance the time that it has before it is ended. `stop` goes before what the instance says. Returns at once, `None`,
/// for an instance that has none, or is about to end.
pub fn prepare_end<'a>(host: &'a Shared, name: &'a str, stop: Stop) -> Option<Ending<'a>> {
    let farewell = lock(host).begin_farewell(name, stop)?;
    let ending = Ending { host, name };
    farewell();
    Some(ending)
}

impl Host {
    /// Returns the control socket of a running terminator, and the time for which its connections may go on after its
    /// end was ordered.
    fn terminator(&self, name: &str) -> Option<(PathBuf, Duration)> {
        let running = self.instances.get(name)?;
        if !is_terminator(&running.spec.program) || !running.answers() {
            return None;
        }
        let config = Config::parse(&running.spec.config).ok()?;
        Some((running.workload.control().to_owned(), config.drain))
    }

    /// Returns true if an instance may have time before it is ended.
    pub fn may_say_farewell(&self, name: &str) -> bool {
        self.instances.get(name).is_some_and(|running| {
            let spec = &running.spec;
            spec.tier.capabilities().own_stack || is_terminator(&spec.program)
        })
    }

    /// Returns the wait for a terminator's connections, or for a program that is asked to end by itself. A paused program
    /// is resumed first.
    fn begin_farewell(&mut self, name: &str, stop: Stop) -> Option<Farewell> {
        if self.instances.get(name)?.is_ending {
            return None;
        }
        if let Some((control, patience)) = self.terminator(name) {
            self.instances.get_mut(name)?.is_ending = true;
            return Some(Box::new(move || terminator::drain(&control, patience)));
        }
        self.instances.check_settled(name).ok()?;
        let running = self.instances.get_mut(name)?;
        let farewell = running.workload.farewell(stop)?;
        running.is_ending = true;
        pausing::end(self, name);
        Some(farewell)
    }
}
