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
mod report;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::deps;
use crate::leftovers::Leftovers;
use crate::session::{Interrupted, Outcome, Session};
use crate::tally::Tally;

/// Integration tests of nfluid-tests that run in guests, by the beginning of their names.
const PREFIXES: [&str; 2] = ["guest_", "security_"];

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
    /// Do not build the platform's programs: enough for tests that start none of them
    #[arg(long)]
    without_platform: bool,
}

/// A program that cargo built.
pub struct Program {
    pub name: String,
    pub path: PathBuf,
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
    let tests = test_programs(session, options)?;
    if tests.is_empty() {
        bail!(
            "no test program's name begins with {}",
            PREFIXES.join(" or ")
        );
    }
    let programs = match options.without_platform {
        true => Vec::new(),
        false => platform_programs(session)?,
    };
    for series in kernel::chosen(&options.kernels) {
        let step = format!("kernel {series}");
        println!("\n== {step}");
        match run_kernel(session, series, &tests, &programs, options) {
            Ok(report) => report.count(&step, &tests, tally),
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => tally.failed(format!("{step}: {error:#}")),
        }
    }
    Ok(())
}

fn run_kernel(
    session: &Session,
    series: &str,
    tests: &[Program],
    programs: &[Program],
    options: &Options,
) -> Result<report::Report> {
    let kernel = kernel::obtain(session, series)?;
    let folder = kernel.folder();
    let content = initramfs::Content {
        session,
        kernel: &kernel,
        tests,
        programs,
    };
    let image = folder.join("initramfs.cpio");
    content.write(&image, options.filter.as_deref())?;
    boot::boot(session, &kernel, &image, &folder.join("console.log"))
}

/// The integration tests that run in guests.
fn test_programs(session: &Session, options: &Options) -> Result<Vec<Program>> {
    let mut programs = built(
        session,
        session.cargo(["test", "-p", "nfluid-tests", "--no-run"]),
        "test",
    )?;
    programs.retain(|program| {
        PREFIXES
            .iter()
            .any(|prefix| program.name.starts_with(prefix))
    });
    if !options.tests.is_empty() {
        programs.retain(|program| options.tests.contains(&program.name));
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// The platform's own programs, which tests may start.
fn platform_programs(session: &Session) -> Result<Vec<Program>> {
    let mut programs = built(session, session.cargo(["build", "--workspace"]), "bin")?;
    programs.retain(|program| program.name.starts_with("nfluid"));
    Ok(programs)
}

/// Builds and returns the programs of one kind; cargo's own words go to the terminal.
fn built(session: &Session, mut cargo: Command, kind: &str) -> Result<Vec<Program>> {
    cargo.arg("--message-format=json-render-diagnostics");
    let mut messages = Vec::new();
    let outcome = session.stream(&mut cargo, None, |line| messages.push(line.to_owned()))?;
    if !matches!(outcome, Outcome::Exited(status) if status.success()) {
        bail!("the {kind} programs do not build");
    }
    programs(&messages, kind)
}

/// Programs of one kind in cargo's JSON messages, one message per line.
fn programs(messages: &[String], kind: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.iter().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line).context("reading cargo's messages")?;
        let target = &message["target"];
        let kinds = target["kind"].as_array();
        if !kinds.is_some_and(|kinds| kinds.iter().any(|value| value == kind)) {
            continue;
        }
        if let (Some(name), Some(path)) = (target["name"].as_str(), message["executable"].as_str())
        {
            programs.push(Program {
                name: name.to_owned(),
                path: path.into(),
            });
        }
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executables_of_the_kind_are_taken() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"a"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"guest_smoke"},"executable":"/t/guest_smoke-1"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"nfluidd"},"executable":"/t/nfluidd"}
{"reason":"build-finished","success":true}"#;
        let messages: Vec<String> = messages.lines().map(str::to_owned).collect();
        let programs = programs(&messages, "test").unwrap();
        assert_eq!(programs.len(), 1);
        assert_eq!(programs[0].name, "guest_smoke");
        assert!(super::programs(&["{not json".to_owned()], "test").is_err());
    }
}
