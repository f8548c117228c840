//! `nfluid-bench`: every experiment is one command that prints a table, then one line per figure.

mod dpdk;
mod environment;
mod experiments;
mod host;
mod peer;
mod report;
mod roles;
mod statistics;

use clap::Parser;
use host::interrupt::{self, Interrupted};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code of an experiment that this host cannot run.
const CANNOT_RUN: u8 = 3;

/// Runs one of nfluid's experiments. `nfluid-bench list` names them all.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    /// The experiment, `list`, or `all`.
    experiment: String,
    /// End within 20 seconds: fewer and shorter repetitions, fewer sizes.
    #[arg(long)]
    quick: bool,
    /// Write figures, raw repetitions and the environment to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The host cannot run the experiment; says why and what would help.
#[derive(Debug)]
pub struct CannotRun(pub String);

impl std::fmt::Display for CannotRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this host cannot run the experiment: {}", self.0)
    }
}

impl std::error::Error for CannotRun {}

fn main() -> ExitCode {
    if let Some(role) = roles::from_env() {
        return role.run();
    }
    let arguments = Arguments::parse();
    if arguments.experiment == "list" {
        for experiment in experiments::ALL {
            println!("{:<12} {}", experiment.name, experiment.summary);
        }
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nfluid-bench: {error:#}");
            if error.is::<CannotRun>() {
                ExitCode::from(CANNOT_RUN)
            } else if error.is::<Interrupted>() {
                ExitCode::from(interrupt::EXIT_CODE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let chosen: Vec<_> = experiments::ALL
        .iter()
        .filter(|e| arguments.experiment == "all" || e.name == arguments.experiment)
        .collect();
    if chosen.is_empty() {
        anyhow::bail!(
            "no experiment '{}'; 'nfluid-bench list' names them",
            arguments.experiment
        );
    }
    if !rustix::process::geteuid().is_root() {
        return Err(CannotRun("it makes cgroups and BPF maps; run it as root".to_owned()).into());
    }
    interrupt::watch()?;
    let mut report = Report::new(arguments.quick);
    let several = chosen.len() > 1;
    for experiment in chosen {
        match (experiment.run)(&mut report) {
            // The others can perhaps.
            Err(error) if several && error.is::<CannotRun>() => {
                println!("\n{} left out: {error:#}", experiment.name);
            }
            result => result?,
        }
    }
    report.print_figures();
    if let Some(path) = &arguments.json {
        report.write_json(path)?;
    }
    Ok(())
}
