//! Programs that forward frames, and that an experiment can stop temporarily.

use super::cpu;
use anyhow::Context;
use nfluid_testbed::process::Service;
use rustix::process::Signal;

/// A forwarder in its own processes. A polling forwarder is stopped while it is not measured, so that it does not take
/// a core from others.
pub trait Forwards {
    /// Continues or stops the forwarder.
    ///
    /// # Errors
    /// When the forwarder has ended.
    fn runs(&self, runs: bool) -> anyhow::Result<()>;

    /// Returns the used CPU time, in seconds.
    ///
    /// # Errors
    /// When the forwarder has ended.
    fn cpu_seconds(&self) -> anyhow::Result<f64>;
}

impl Forwards for Service {
    fn runs(&self, runs: bool) -> anyhow::Result<()> {
        self.signal(if runs { Signal::CONT } else { Signal::STOP })
    }

    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let used = cpu::process_seconds(self.pid());
        used.with_context(|| format!("{} has ended", self.name()))
    }
}
