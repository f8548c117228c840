//! The tasks of this repository: `cargo xtask help`. The Makefile only calls them.
//!
//! One file per task. A task runs other programs through [`session::Session`], which stops them when the task is
//! interrupted, and holds a [`leftovers::Leftovers`], which removes their leftovers. Nothing here is needed at run
//! time.

mod clean;
mod cycles;
mod deps;
mod fuzz;
mod guest;
mod install;
mod instance;
mod leftovers;
mod lint;
mod mutants;
mod programs;
mod promises;
mod release;
mod session;
mod soak;
mod tally;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use session::{Interrupted, Session};
use tally::TestsFailed;

/// Repository tasks of nfluid. `make TASK` runs the same.
#[derive(Parser)]
#[command(name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what is missing: Debian packages (as root) and Rust targets
    Deps {
        /// Only print what is missing; exit 1 if something is missing
        #[arg(long)]
        check: bool,
    },
    /// Build everything in release mode
    Build,
    /// Run every test and print `N passed, N failed, N skipped`
    Test(test::Options),
    /// Run the long tests before a release: the long form of every test, every experiment, an hour of fuzzing
    Soak(soak::Options),
    /// Boot Debian's stock kernels in QEMU and run the guest_* and security_* tests inside
    Guest(guest::Options),
    /// Show real traffic crossing a chain of isolated network functions
    Demo {
        /// Arguments of examples/demo/run
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the benchmarks; arguments go to nfluid-bench
    Bench {
        /// Arguments of nfluid-bench
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Format Rust and C sources
    Fmt {
        /// Change nothing; fail if a file is not formatted
        #[arg(long)]
        check: bool,
    },
    /// Fuzz the parsers and rings with libFuzzer
    Fuzz(fuzz::Options),
    /// Insert faults into the switch and check that a test detects each
    Mutants(mutants::Options),
    /// Check formatting, clippy, the dependency policy, and that each promise of SPECIFICATION.md has a test
    Lint,
    /// Write docs/promises.md, the tests of each promise, from the tests' tags
    Promises,
    /// Build the documentation without warnings
    Doc,
    /// Remove build results, and leftovers of killed tests when run as root
    Clean,
    /// Install programs, library, header, systemd unit and completions
    Install(install::Options),
    /// Remove what `install` installed
    Uninstall(install::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let session = match Session::start(&root()) {
        Ok(session) => session,
        Err(error) => return report(&error),
    };
    match run(&session, cli.task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// The project's folder: cargo sets the variable for `cargo run`; the folder at build time is the fallback.
fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or(manifest.clone(), PathBuf::from)
}

fn run(session: &Session, task: Task) -> anyhow::Result<()> {
    match task {
        Task::Deps { check: true } => deps::check(deps::ALL),
        Task::Deps { check: false } => deps::install(session, deps::ALL),
        Task::Build => release::build(session),
        Task::Test(options) => test::run(session, &options),
        Task::Soak(options) => soak::run(session, &options),
        Task::Guest(options) => guest::run(session, &options),
        Task::Demo { args } => release::demo(session, &args),
        Task::Bench { args } => release::bench(session, &args),
        Task::Fuzz(options) => fuzz::run(session, &options),
        Task::Mutants(options) => mutants::run(session, &options),
        Task::Fmt { check } => lint::format(session, check),
        Task::Lint => lint::lint(session),
        Task::Promises => promises::write(&session.root),
        Task::Doc => lint::doc(session),
        Task::Clean => clean::run(session),
        Task::Install(options) => install::install(session, &options),
        Task::Uninstall(options) => install::uninstall(session, &options),
    }
}

fn report(error: &anyhow::Error) -> ExitCode {
    // The counting line is the last line of the output.
    if !error.is::<TestsFailed>() {
        eprintln!("xtask: {error:#}");
    }
    match error.downcast_ref::<Interrupted>() {
        Some(interrupted) => ExitCode::from(interrupted.exit_code()),
        None => ExitCode::FAILURE,
    }
}
