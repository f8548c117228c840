//! Runs test programs inside Debian's stock kernels.
//!
//! Each kernel is booted once, all of them side by side, in QEMU (`microvm` machine, TCG: no KVM needed), with an initramfs that holds busybox, a
//! few network tools and the test programs with the libraries they are linked to. tests/guest/init runs the programs one
//! after the other and frames their output; `report` reads it back. Which tests run there: tests/tests/guest_*.rs and
//! tests/tests/security_*.rs.

mod boot;
mod cpio;
mod initramfs;
mod kernel;
mod programs;
mod report;

use std::thread;

use anyhow::{Result, anyhow};
use clap::Args;

use crate::deps;
use crate::leftovers::Leftovers;
use crate::session::{Interrupted, Session};
use crate::tally::Tally;
use programs::Programs;

/// Which kernels, which tests.
#[derive(Args, Default)]
pub struct Options {
    /// Kernel series; without it, all of them
    #[arg(long = "kernel", value_parser = kernel::series())]
    kernels: Vec<String>,
    /// Run only tests whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// Run only the test program of this name (repeatable)
    #[arg(long = "test")]
    tests: Vec<String>,
    /// Build only the tests' own programs: enough for tests that start none of the platform's
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

/// Enough for all tests.
const MEMORY_MIB: u32 = 1024;

/// Boots the chosen kernels and prints the counting line.
///
/// # Errors
/// Something needed is missing, the tests do not build, or a test failed.
pub fn run(session: &Session, options: &Options) -> Result<()> {
    deps::install(session, deps::FOR_TEST)?;
    let _leftovers = Leftovers::watch()?;
    let mut tally = Tally::default();
    run_kernels(session, options, &mut tally)?;
    Ok(tally.conclude()?)
}

/// All tests in all kernels.
///
/// # Errors
/// Only an interrupt; everything else is a failed test in the tally.
pub fn run_all(session: &Session, tally: &mut Tally) -> Result<()> {
    let options = Options {
        memory: MEMORY_MIB,
        ..Options::default()
    };
    match run_kernels(session, &options, tally) {
        Err(error) if error.is::<Interrupted>() => Err(error),
        Err(error) => {
            tally.failed(format!("guests: {error:#}"));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// All chosen kernels at once: a guest's tests run one after the other and leave a core of the host idle.
fn run_kernels(session: &Session, options: &Options, tally: &mut Tally) -> Result<()> {
    let programs = if options.run.is_some() {
        Programs::release(session)?
    } else {
        Programs::build(session, &options.tests, options.without_platform)?
    };
    let chosen = kernel::chosen(&options.kernels);
    let prepared: Vec<_> = chosen
        .into_iter()
        .map(|series| (series, prepare(session, series, &programs, options)))
        .collect();
    let reports: Vec<_> = thread::scope(|scope| {
        let boot = |(series, kernel): (_, Result<_>)| {
            (
                series,
                scope.spawn(move || boot::boot(session, &kernel?, options.memory)),
            )
        };
        let guests: Vec<_> = prepared.into_iter().map(boot).collect();
        let join = |(series, guest): (_, thread::ScopedJoinHandle<'_, _>)| {
            let ended = guest.join();
            (
                series,
                ended.unwrap_or_else(|_| Err(anyhow!("xtask failed"))),
            )
        };
        guests.into_iter().map(join).collect()
    });
    for (series, report) in reports {
        let step = format!("kernel {series}");
        match report {
            Ok(report) => report.count(&step, &programs.tests, tally),
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => tally.failed(format!("{step}: {error:#}")),
        }
    }
    Ok(())
}

/// Makes what the guest boots.
fn prepare(
    session: &Session,
    series: &str,
    programs: &Programs,
    options: &Options,
) -> Result<kernel::Kernel> {
    println!("\n== kernel {series}");
    let kernel = kernel::obtain(session, series)?;
    let content = initramfs::Content {
        session,
        kernel: &kernel,
        programs,
    };
    content.write(
        &kernel.initramfs(),
        options.filter.as_deref(),
        options.run.as_deref(),
    )?;
    Ok(kernel)
}
