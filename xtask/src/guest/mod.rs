//! Runs test programs inside Debian's stock kernels.
//!
//! Each kernel is booted in QEMU (`microvm` machine, TCG: no KVM needed), with an initramfs that holds busybox, a few
//! network tools and the test programs with their shared libraries. tests/guest/init runs the programs one after the
//! other and frames their output; `report` parses the frames. The tests of guests: tests/tests/guest_*.rs and
//! tests/tests/security_*.rs.

mod boot;
mod cpio;
mod initramfs;
mod kernel;
mod report;

pub use kernel::obtain_oldest as unpack_oldest_kernel;

use std::sync::Arc;
use std::thread;

use anyhow::{Result, anyhow};
use clap::Args;

use crate::deps;
use crate::leftovers::Leftovers;
use crate::programs::Programs;
use crate::session::{Interrupted, Session};
use crate::tally::Tally;
pub use report::Case;

/// The kernels and the tests.
#[derive(Args, Clone)]
pub struct Options {
    /// Kernel series; default: all
    #[arg(long = "kernel", value_parser = kernel::series())]
    kernels: Vec<String>,
    /// Run only tests whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// Run only the test program of this name (repeatable)
    #[arg(long = "test")]
    tests: Vec<String>,
    /// Build only the tests' own programs: enough for tests that start no program of the platform
    #[arg(long)]
    without_platform: bool,
    /// Instead of the tests, run this in a shell, with the release build of the platform's programs on its path: for
    /// example "nfluid-bench footprint --quick"
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["filter", "tests", "without_platform"])]
    run: Option<String>,
    /// Memory of each guest
    #[arg(long, value_name = "MIB", default_value_t = MEMORY_MIB)]
    memory: u32,
}

/// Enough memory for all tests. Half of what the archive of files leaves is the room for the unpacked files.
const MEMORY_MIB: u32 = 1536;

/// A kernel to boot, and the programs to run in it.
pub struct Guest {
    /// The kernel series, for example 6.1.
    pub series: &'static str,
    programs: Arc<Programs>,
    filter: Option<String>,
    command: Option<String>,
    memory_mib: u32,
}

/// An event in a running guest.
pub enum Event<'a> {
    /// A line of the guest's console.
    Line(&'a str),
    /// A test has ended.
    Case(Case<'a>),
}

/// Boots the chosen kernels in parallel and prints the counting line.
///
/// # Errors
/// A dependency is missing, the tests do not build, or a test failed.
pub fn run(session: &Session, options: &Options) -> Result<()> {
    deps::install(session, deps::FOR_TEST)?;
    let _leftovers = Leftovers::watch()?;
    let programs = if options.run.is_some() {
        Programs::release(session)?
    } else {
        Programs::for_guests(session, &options.tests, options.without_platform)?
    };
    let programs = Arc::new(programs);
    let guest = |series| Guest {
        series,
        programs: Arc::clone(&programs),
        filter: options.filter.clone(),
        command: options.run.clone(),
        memory_mib: options.memory,
    };
    let guests: Vec<Guest> = kernel::chosen(&options.kernels).map(guest).collect();
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let boot = |guest: Guest| {
            scope.spawn(move || {
                let series = guest.series;
                guest.run(session, |event| {
                    if let Event::Line(line) = event {
                        println!("{series} | {line}");
                    }
                })
            })
        };
        let running: Vec<_> = guests.into_iter().map(boot).collect();
        running.into_iter().try_for_each(|guest| {
            let ended = guest.join();
            tally.merge(ended.unwrap_or_else(|_| Err(anyhow!("xtask itself failed")))?);
            anyhow::Ok(())
        })
    })?;
    Ok(tally.conclude()?)
}

/// Programs that load each eBPF program and make each sandbox: what a kernel between the oldest and this host's may refuse.
const ESSENTIAL: [&str; 11] = [
    "guest_dataplane",
    "guest_dispatcher",
    "guest_edpi",
    "guest_efw",
    "guest_guard",
    "guest_smoke",
    "guest_spread",
    "guest_tc",
    "security_lifecycle",
    "security_limits",
    "security_process_tier",
];

/// Returns a guest for every kernel: with all of these tests for the oldest, and for each if `with_everything`, otherwise
/// with those of [`ESSENTIAL`]. What all tests see on the oldest kernel and on this host's is seldom another on one between
/// them, and a guest takes a core for twenty minutes.
pub fn all(programs: Programs, with_everything: bool) -> Vec<Guest> {
    let mut few = programs.clone();
    let is_essential = |name: &str| ESSENTIAL.contains(&name);
    few.platform.retain(|program| is_essential(&program.name));
    let (whole, few) = (Arc::new(programs), Arc::new(few));
    let oldest = kernel::chosen(&[]).next();
    let guest = |series| {
        let all = with_everything || Some(series) == oldest;
        Guest {
            series,
            programs: Arc::clone(if all { &whole } else { &few }),
            filter: None,
            command: None,
            memory_mib: MEMORY_MIB,
        }
    };
    let guests = kernel::chosen(&[]).map(guest);
    guests
        .filter(|guest| guest.programs.guest_tests().next().is_some())
        .collect()
}

impl Guest {
    /// Boots the guest and follows it until it powers off.
    ///
    /// # Errors
    /// Only an interrupt; everything else is a failed test.
    pub fn run(self, session: &Session, mut on_event: impl FnMut(Event<'_>)) -> Result<Tally> {
        let mut tally = Tally::default();
        let step = format!("kernel {}", self.series);
        match self.boot(session, &mut on_event) {
            Ok(report) => {
                let tests: &mut dyn Iterator<Item = _> = if self.command.is_some() {
                    &mut std::iter::empty()
                } else {
                    &mut self.programs.guest_tests()
                };
                for line in report.count(&step, tests, &mut tally) {
                    on_event(Event::Line(&line));
                }
            }
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => {
                on_event(Event::Line(&format!("{error:#}")));
                tally.failed(format!("{step}: {error:#}"));
            }
        }
        Ok(tally)
    }

    /// Boots, and once more if the kernel has died before it ran anything of ours: TCG runs code on one CPU while the kernel rewrites that
    /// code from the other, and now and then a kernel finds its own breakpoint there (`Oops: int3`).
    fn boot(
        &self,
        session: &Session,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<report::Report> {
        let kernel = self.prepare(session)?;
        let report = boot::boot(session, &kernel, self.memory_mib, on_event)?;
        if !report.died_early() {
            return Ok(report);
        }
        on_event(Event::Line(
            "the kernel has died before init: it is booted once more",
        ));
        boot::boot(session, &kernel, self.memory_mib, on_event)
    }

    /// Makes the kernel and the initramfs.
    fn prepare(&self, session: &Session) -> Result<kernel::Kernel> {
        let kernel = kernel::obtain(session, self.series)?;
        let content = initramfs::Content {
            session,
            kernel: &kernel,
            programs: &self.programs,
        };
        content.write(
            &kernel.initramfs(),
            self.filter.as_deref(),
            self.command.as_deref(),
        )?;
        Ok(kernel)
    }
}
