//! `nfluid-bench`: every experiment is one command that prints a table, then one line per figure.

mod choice;
mod dpdk;
mod environment;
mod experiment;
mod experiments;
mod host;
mod io_model;
mod literature;
mod needs;
mod netmap;
mod options;
mod ovs;
mod page;
mod peer;
mod phases;
mod report;
mod roles;
mod session;
mod setups;
mod sweep;
mod traffic;
mod workload;

use choice::choose;
use clap::Parser;
use nfluid_testbed::CannotRun;
use nfluid_testbed::interrupt::{self, Interrupted};
use options::Options;
use session::Session;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code of an experiment that this host cannot run.
const CANNOT_RUN: u8 = 3;

/// Runs one of nfluid's experiments. `nfluid-bench list` prints their names and their ids in the
/// literature; both are accepted. `nfluid-bench packages` (or `packages NAME`) prints the Debian packages
/// that experiments need and this host lacks, `nfluid-bench report` joins their results into one page.
///
/// Exit codes: 0; 1 on an error; 3 if this host cannot run the experiment, or none of them; 130 when
/// interrupted. `all` leaves out, with the reason, what the host cannot run, and continues after an
/// experiment that fails: it exits with 1 at the end.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    /// The experiment (its name, or its id in the literature), `all`, `list`, `packages`, or `report`.
    experiment: String,
    /// For `packages`: the experiment to run [default: all].
    #[arg(requires = "experiment")]
    of: Option<String>,
    /// End within 20 seconds: fewer and shorter repetitions, fewer sizes.
    #[arg(long)]
    quick: bool,
    /// Write figures, raw repetitions and the environment to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Folder for each experiment's JSON file and plots, and for the report.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// For `report`: also replace the figures by topic in this page (docs/performance.md) by those of full runs.
    #[arg(long, value_name = "PAGE")]
    update: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// A role of this program as an instance of the platform: its name, the check that the program was started in this
/// role, and its main function.
type AsInstance = (&'static str, fn() -> bool, fn() -> anyhow::Result<()>);

const INSTANCES: [AsInstance; 3] = [
    ("probe", roles::probe::is_asked_for, roles::probe::run),
    ("pump", roles::pump::is_asked_for, roles::pump::run),
    (
        "subscribers",
        roles::subscribers::is_asked_for,
        roles::subscribers::run,
    ),
];

fn main() -> ExitCode {
    if let Some(role) = roles::from_env() {
        return role.run();
    }
    for (name, is_asked_for, run) in INSTANCES {
        if is_asked_for() {
            return match run() {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("nfluid-bench: {name}: {error:#}");
                    ExitCode::FAILURE
                }
            };
        }
    }
    let arguments = Arguments::parse();
    if arguments.experiment == "list" {
        for line in choice::list(experiments::TOPICS) {
            println!("{line}");
        }
        return ExitCode::SUCCESS;
    }
    let outcome = match arguments.experiment.as_str() {
        "report" => page::write(&arguments.results, arguments.update.as_deref()),
        "packages" => packages(arguments.of.as_deref().unwrap_or("all")),
        _ => run(&arguments),
    };
    match outcome {
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

/// Prints the Debian packages that experiments need and this host lacks, one per line.
fn packages(name: &str) -> anyhow::Result<()> {
    let missing = choose(&experiments::all(), name)?
        .into_iter()
        .flat_map(|experiment| experiment.needs.missing().concat());
    for package in missing.collect::<BTreeSet<_>>() {
        println!("{package}");
    }
    Ok(())
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(other) = &arguments.of {
        anyhow::bail!("one experiment at a time, or 'all': what is '{other}'?");
    }
    if arguments.update.is_some() {
        anyhow::bail!("--update is an option of 'report'");
    }
    let chosen = choose(&experiments::all(), &arguments.experiment)?;
    if !rustix::process::geteuid().is_root() {
        return Err(CannotRun("it makes cgroups and BPF maps; run it as root".to_owned()).into());
    }
    interrupt::watch()?;
    let mut session = Session::new(
        &arguments.results,
        arguments.quick || arguments.options.brief,
    );
    session.options = arguments.options.clone();
    let outcome = if let [experiment] = chosen[..] {
        session.run(experiment)
    } else {
        session.run_all(&chosen)
    };
    // The figures so far are printed, also after an error or an interrupt.
    session.print_figures();
    outcome?;
    match &arguments.json {
        Some(path) => session.write_json(path),
        None => Ok(()),
    }
}
