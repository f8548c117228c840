//! DPDK's own forwarder.

use super::Dpdk;
use crate::host::cpu;
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Stdio};

/// A forwarder between its two ports, on one core; stopped while it is not looked at, because it
/// polls. Killed when dropped.
#[derive(Debug)]
pub struct Testpmd {
    child: Child,
    pid: Pid,
}

impl Testpmd {
    /// Starts it: it swaps the hardware addresses of what it forwards.
    ///
    /// # Errors
    /// `CannotRun` when it is not installed.
    pub fn start(dpdk: &Dpdk, core: usize, devices: &[String]) -> anyhow::Result<Self> {
        // The first thread waits for a key.
        let mut command = dpdk.command(&Dpdk::testpmd()?, core, 2, devices);
        command
            .args(["--forward-mode=macswap", "--auto-start", "--burst=32"])
            .args(["--total-num-mbufs=8191", "--rxd=1024", "--txd=1024"])
            .args(["--disable-link-check", "--no-lsc-interrupt"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let child = command.spawn().context("starting dpdk-testpmd")?;
        let pid = Pid::from_child(&child);
        Ok(Testpmd { child, pid })
    }

    /// Whether it still runs.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Lets it poll, or stops it.
    ///
    /// # Errors
    /// When it has ended.
    pub fn polls(&self, polls: bool) -> anyhow::Result<()> {
        let signal = if polls { Signal::CONT } else { Signal::STOP };
        kill_process(self.pid, signal).context("dpdk-testpmd has ended")
    }

    /// CPU time that it has used, in seconds.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        cpu::process_seconds(self.child.id()).context("dpdk-testpmd has ended")
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
