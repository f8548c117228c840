//! Tasks with optimised builds: build, demo, bench.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::deps;
use crate::instance::{self, Profile};
use crate::leftovers::Leftovers;
use crate::programs;
use crate::session::Session;

/// # Errors
/// A dependency is missing and cannot be installed, or the build fails.
pub fn build(session: &Session) -> Result<()> {
    deps::install(session, deps::FOR_BUILD)?;
    let mut cargo = programs::cargo_workspace(session, "build");
    session.run(cargo.args(["--release", "--exclude", "xtask"]))?;
    instance::build(session, Profile::Release)?;
    Ok(())
}

/// Runs examples/demo/run on a fresh build of only the programs that it starts.
///
/// # Errors
/// Not root, the build fails, or the demo ends with an error.
pub fn demo(session: &Session, args: &[String]) -> Result<()> {
    if !deps::is_root() {
        bail!("the demo makes network namespaces: run `make demo` as root");
    }
    println!("== 1 of 3: Debian packages and the Rust target that the demo needs");
    deps::install(session, deps::FOR_DEMO)?;
    println!("== 2 of 3: building nfluid, nfluidd and nfluid-nf");
    let mut cargo = session.cargo(["build", "--package", "nfluid", "--package", "nfluidd"]);
    session.run(cargo.args(["--bins", "--profile", Profile::Demo.name()]))?;
    instance::build(session, Profile::Demo)?;
    println!("== 3 of 3: the demo");
    let program = session.root.join("examples/demo/run");
    run_privileged(session, program, args, Profile::Demo)
}

/// Runs nfluid-bench on a fresh release build, with the Debian packages that the experiment needs or compares with.
///
/// # Errors
/// Not root, the build fails, or a benchmark ends with an error.
pub fn bench(session: &Session, args: &[String]) -> Result<()> {
    if !deps::is_root() {
        bail!("benchmarks make network namespaces: run `make bench` as root");
    }
    build(session)?;
    let program = session.target.join("release/nfluid-bench");
    if let Some(experiment) = args.iter().find(|word| !word.starts_with('-')) {
        // An unknown name is refused below, with a list of the known names.
        let missing = session.output(session.command(&program).args(["packages", experiment]));
        let missing = missing.unwrap_or_default();
        deps::install_packages(session, &missing.lines().collect::<Vec<_>>())?;
    }
    run_privileged(session, program, args, Profile::Release)
}

/// Returns the commit of the sources, marked if files differ from the commit; `None` outside of a git repository.
fn commit(session: &Session) -> Option<String> {
    let git = |args: [&str; 3]| session.output(session.command("git").args(args)).ok();
    let commit = git(["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(["status", "--porcelain", "--untracked-files=no"])?;
    let mark = if changes.is_empty() { "" } else { ", changed" };
    Some(commit.trim().to_owned() + mark)
}

/// Runs a program that starts the platform's programs of this profile.
fn run_privileged(
    session: &Session,
    program: PathBuf,
    args: &[String],
    profile: Profile,
) -> Result<()> {
    let leftovers = Leftovers::watch()?;
    let mut command = session.command(program);
    command.args(args);
    command.env("TMPDIR", leftovers.temp_dir());
    if let Some(commit) = commit(session) {
        command.env("NFLUID_COMMIT", commit);
    }
    command.env("NFLUID_BIN_DIR", session.target.join(profile.folder()));
    session.run_foreground(&mut command)
}
