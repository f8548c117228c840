//! Processes on DPDK, as Debian ships it: our own small program and testpmd.

pub mod driver;
pub mod endpoint;
pub mod hugepages;
pub mod memif;
pub mod testpmd;

use crate::host::compile;
use anyhow::Context;
use hugepages::HugePages;
use nfluid_testbed::CannotRun;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::process::Service;
use nfluid_testbed::program::{find, install};
use nfluid_testbed::scratch::ScratchInstance;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Debian's packages.
pub const PACKAGES: &str = "libdpdk-dev dpdk-dev pkg-config gcc";
/// Memory of a process: frames, rings, and DPDK's own.
const MEGABYTES: usize = 64;
/// Longest time for a process to make its socket, perhaps on a core on which other processes poll.
const PATIENCE: Duration = Duration::from_secs(60);

/// DPDK on this host.
#[derive(Debug)]
pub struct Dpdk {
    program: PathBuf,
    directory: ScratchDirectory,
    pages: Option<HugePages>,
    sockets: u32,
    /// A driver that DPDK does not have itself.
    driver: Option<PathBuf>,
}

impl Dpdk {
    /// Builds the program and reserves huge pages for `processes` processes at a time.
    ///
    /// # Errors
    /// [`CannotRun`] when DPDK is not installed.
    pub fn prepare(processes: usize) -> anyhow::Result<Self> {
        let directory = ScratchDirectory::new()?;
        let source = include_str!("../../peers/memif.c");
        let program = compile::program(&directory, "memif", source, "libdpdk", PACKAGES)?;
        Ok(Dpdk {
            program,
            directory,
            pages: HugePages::take(processes * MEGABYTES),
            sockets: 0,
            driver: None,
        })
    }

    /// Has all processes load a driver.
    pub fn load(&mut self, driver: PathBuf) {
        self.driver = Some(driver);
    }

    /// Returns a description of the processes' memory.
    pub fn memory(&self) -> &'static str {
        if self.pages.is_some() {
            "2 MB huge pages"
        } else {
            "no huge pages: this host has none to give"
        }
    }

    /// Returns true if the processes can map each other's memory (zero-copy).
    pub fn has_huge_pages(&self) -> bool {
        self.pages.is_some()
    }

    /// Returns an unused name for a socket.
    pub fn socket(&mut self) -> PathBuf {
        self.sockets += 1;
        self.directory.path(&format!("{}.sock", self.sockets))
    }

    /// Returns the command of a process on one core with these devices; its own arguments follow.
    fn command(&self, program: &Path, core: usize, threads: usize, devices: &[String]) -> Command {
        let lcores: Vec<_> = (0..threads).map(|n| format!("{n}@{core}")).collect();
        let mut command = Command::new(program);
        command.args(["--lcores", &lcores.join(",")]);
        command.args(["--no-pci", "--no-telemetry"]);
        command.args(["--log-level", "error", "-m", &MEGABYTES.to_string()]);
        // Either way no file is left behind.
        command.args(if self.pages.is_some() {
            ["--in-memory", "--single-file-segments"]
        } else {
            ["--no-huge", "--no-shconf"]
        });
        if let Some(driver) = &self.driver {
            // Not by `-d`: EAL takes no driver from below a directory that everybody may write to, such as /tmp.
            command.env("LD_PRELOAD", driver);
        }
        for device in devices {
            command.args(["--vdev", device]);
        }
        command.arg("--");
        if let Ok(log) = File::options().create(true).append(true).open(self.log()) {
            command.stderr(log);
        }
        command
    }

    /// The output of the processes, for the error message of a process that fails.
    fn log(&self) -> PathBuf {
        self.directory.path("dpdk.log")
    }

    /// Adds the last output of the processes to an error.
    pub fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        match log.lines().last() {
            Some(last) => error.context(format!("DPDK said last: {last}")),
            None => error,
        }
    }

    /// Starts a program of DPDK's own on one core, as that of an instance whose ports are these devices.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_program(
        &self,
        instance: &ScratchInstance,
        (program, arguments): (&Path, &[&str]),
        core: usize,
        devices: &[String],
    ) -> anyhow::Result<Service> {
        let mut command = self.command(program, core, 1, devices);
        let spawn = |command: &mut Command| Ok(instance.spawn(command)?);
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        Service::start_by(&name, command.args(arguments), self.log(), spawn)
    }

    fn testpmd() -> anyhow::Result<PathBuf> {
        find("dpdk-testpmd").ok_or_else(|| CannotRun(install(PACKAGES)).into())
    }
}

/// Waits until a server has made its sockets.
///
/// # Errors
/// When the server ends, or takes too long.
pub fn await_sockets(sockets: &[PathBuf], mut lives: impl FnMut() -> bool) -> anyhow::Result<()> {
    let start = Instant::now();
    while !sockets.iter().all(|socket| socket.exists()) {
        let waits = lives() && start.elapsed() < PATIENCE;
        waits
            .then(|| std::thread::sleep(Duration::from_millis(5)))
            .context("a process on DPDK does not make its socket")?;
    }
    Ok(())
}
