//! Tasks on release builds: build, demo, bench.

use anyhow::{Result, bail};

use crate::deps::{self, Packages};
use crate::instance::{self, Profile};
use crate::leftovers::Leftovers;
use crate::programs;
use crate::session::Session;

/// # Errors
/// Something needed is missing and cannot be installed, or the build fails.
pub fn build(session: &Session) -> Result<()> {
    build_with(session, deps::FOR_BUILD)
}

/// Runs examples/demo/run on a fresh release build.
///
/// # Errors
/// Not root, the build fails, or the demo ends with an error.
pub fn demo(session: &Session, args: &[String]) -> Result<()> {
    if !deps::is_root() {
        bail!("the demo makes network namespaces: run `make demo` as root");
    }
    build_with(session, deps::FOR_DEMO)?;
    run_privileged(session, session.root.join("examples/demo/run"), args)
}

/// Runs nfluid-bench on a fresh release build.
///
/// # Errors
/// Not root, the build fails, or a benchmark ends with an error.
pub fn bench(session: &Session, args: &[String]) -> Result<()> {
    if !deps::is_root() {
        bail!("benchmarks make network namespaces: run `make bench` as root");
    }
    build_with(session, deps::FOR_BENCH)?;
    run_privileged(session, session.target.join("release/nfluid-bench"), args)
}

fn build_with(session: &Session, packages: &[Packages]) -> Result<()> {
    deps::install(session, packages)?;
    let mut cargo = programs::cargo_workspace(session, "build");
    session.run(cargo.args(["--release", "--exclude", "xtask"]))?;
    instance::build(session, Profile::Release)?;
    Ok(())
}

fn run_privileged(session: &Session, program: std::path::PathBuf, args: &[String]) -> Result<()> {
    let leftovers = Leftovers::watch()?;
    let mut command = session.command(program);
    command.args(args);
    command.env("TMPDIR", leftovers.temp_dir());
    command.env("NFLUID_BIN_DIR", session.target.join("release"));
    session.run_foreground(&mut command)
}
