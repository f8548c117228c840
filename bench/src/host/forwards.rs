//! Programs that forward frames, and that an experiment may stop for a while.

use super::cpu;
use anyhow::Context;
use nfluid_testbed::process::Service;
use rustix::process::Signal;

/// What forwards frames in processes of its own. If it polls, it is stopped while nobody looks at
/// it, so that it does not take others their core.
pub trait Forwards {
    /// Lets it run, or stops it.
    ///
    /// # Errors
    /// When it has ended.
    fn runs(&self, runs: bool) -> anyhow::Result<()>;

    /// CPU time that it has used, in seconds.
    ///
    /// # Errors
    /// When it has ended.
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
