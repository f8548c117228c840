//! DPDK's own forwarder.

use super::Dpdk;
use crate::host::forwards::Forwards;
use nfluid_testbed::process::Service;
use nfluid_testbed::scratch::ScratchInstance;
use std::process::{Child, Command, Stdio};

/// The treatment of a frame between the two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Swaps the hardware addresses.
    Macswap,
    /// Writes new addresses, as the next hop of a chain expects them.
    Mac,
}

/// A polling forwarder between its two ports, on one core.
#[derive(Debug)]
pub struct Testpmd(Service);

impl Testpmd {
    /// Starts the forwarder.
    ///
    /// # Errors
    /// `CannotRun` when testpmd is not installed.
    pub fn start(dpdk: &Dpdk, mode: Mode, core: usize, devices: &[String]) -> anyhow::Result<Self> {
        let spawn = |command: &mut Command| Ok(command.spawn()?);
        Testpmd::start_by(dpdk, mode, core, devices, spawn)
    }

    /// Starts the forwarder as the program of an instance whose ports are these devices.
    ///
    /// # Errors
    /// As for [`Testpmd::start`].
    pub fn start_in(
        instance: &ScratchInstance,
        dpdk: &Dpdk,
        mode: Mode,
        core: usize,
        devices: &[String],
    ) -> anyhow::Result<Self> {
        let spawn = |command: &mut Command| Ok(instance.spawn(command)?);
        Testpmd::start_by(dpdk, mode, core, devices, spawn)
    }

    fn start_by(
        dpdk: &Dpdk,
        mode: Mode,
        core: usize,
        devices: &[String],
        spawn: impl FnOnce(&mut Command) -> anyhow::Result<Child>,
    ) -> anyhow::Result<Self> {
        // The first thread waits for a key.
        let mut command = dpdk.command(&Dpdk::testpmd()?, core, 2, devices);
        let mode = match mode {
            Mode::Macswap => "macswap",
            Mode::Mac => "mac",
        };
        command
            .arg(format!("--forward-mode={mode}"))
            .args(["--auto-start", "--burst=32"])
            .args(["--total-num-mbufs=8191", "--rxd=1024", "--txd=1024"])
            .args(["--disable-link-check", "--no-lsc-interrupt"])
            .stdin(Stdio::piped());
        Service::start_by("dpdk-testpmd", &mut command, dpdk.log(), spawn).map(Testpmd)
    }

    /// Returns true while the process runs.
    pub fn is_running(&mut self) -> bool {
        self.0.is_running()
    }
}

impl Forwards for Testpmd {
    fn runs(&self, runs: bool) -> anyhow::Result<()> {
        self.0.runs(runs)
    }

    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        self.0.cpu_seconds()
    }
}
