//! Runs test programs inside Debian's stock kernels.
//!
//! Each kernel is booted once in QEMU (`microvm` machine, TCG: no KVM needed), with an initramfs that holds busybox, a
//! few network tools and the test programs with the libraries they are linked to. tests/guest/init runs the programs one
//! after the other and frames their output; `report` reads it back. Which tests run there: tests/tests/guest_*.rs and
//! tests/tests/security_*.rs.

mod boot;
mod cpio;
mod initramfs;
mod kernel;
mod programs;
mod report;

use anyhow::Result;
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
}

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
    match run_kernels(session, &Options::default(), tally) {
        Err(error) if error.is::<Interrupted>() => Err(error),
        Err(error) => {
            tally.failed(format!("guests: {error:#}"));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn run_kernels(session: &Session, options: &Options, tally: &mut Tally) -> Result<()> {
    let programs = Programs::build(session, &options.tests, options.without_platform)?;
    for series in kernel::chosen(&options.kernels) {
        let step = format!("kernel {series}");
        println!("\n== {step}");
        match run_kernel(session, series, &programs, options) {
            Ok(report) => report.count(&step, &programs.tests, tally),
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => tally.failed(format!("{step}: {error:#}")),
        }
    }
    Ok(())
}

fn run_kernel(
    session: &Session,
    series: &str,
    programs: &Programs,
    options: &Options,
) -> Result<report::Report> {
    let kernel = kernel::obtain(session, series)?;
    let folder = kernel.folder();
    let content = initramfs::Content {
        session,
        kernel: &kernel,
        programs,
    };
    let image = folder.join("initramfs.cpio");
    content.write(&image, options.filter.as_deref())?;
    boot::boot(session, &kernel, &image, &folder.join("console.log"))
}
