//! `nfluid-sim`: every experiment is one command that prints a table, then one line per figure.

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use nfluid_figures::record::{Record, command};
use nfluid_figures::results::{Results, json};
use nfluid_figures::terminal::figure_lines;
use nfluid_sim::experiments::{ALL, BATCH, Experiment, LINE, POOLING, THRESHOLDS, TWO_FLOWS};
use nfluid_sim::report::{PROGRAM, Report, Settings};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Simulates TCP senders through network functions that share a CPU.
///
/// The same command and seed print and write the same bytes. Exit codes: 0; 1 on an error; 2 on a wrong command line.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Folder for each experiment's JSON file and plots.
    #[arg(long, global = true, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Write the figures of all repetitions, and the plots, to this file too.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Command {
    /// Name the experiments
    List,
    /// Run all experiments
    All,
    #[command(about = TWO_FLOWS.summary)]
    TwoFlows,
    #[command(about = LINE.summary)]
    Line,
    #[command(about = BATCH.summary)]
    Batch,
    #[command(about = POOLING.summary)]
    Pooling,
    #[command(about = THRESHOLDS.summary)]
    Thresholds,
    /// Print a completion script for a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed it.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{PROGRAM}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::List => {
            let line = |e: &Experiment| format!("{:<12} {}\n", e.name, e.summary);
            print(&ALL.iter().map(line).collect::<String>())
        }
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), PROGRAM, &mut script);
            print(&String::from_utf8(script)?)
        }
        Command::All => experiments(arguments, ALL),
        Command::TwoFlows => experiments(arguments, &[TWO_FLOWS]),
        Command::Line => experiments(arguments, &[LINE]),
        Command::Batch => experiments(arguments, &[BATCH]),
        Command::Pooling => experiments(arguments, &[POOLING]),
        Command::Thresholds => experiments(arguments, &[THRESHOLDS]),
    }
}

fn experiments(arguments: &Arguments, chosen: &[Experiment]) -> anyhow::Result<()> {
    let results = Results::new(&arguments.results);
    let mut records = Vec::new();
    for experiment in chosen {
        print(&format!(
            "\n== {}: {}\n",
            experiment.name, experiment.summary
        ))?;
        let mut report = Report::new(experiment.name, experiment.summary, &arguments.settings);
        (experiment.run)(&mut report).with_context(|| format!("experiment {}", experiment.name))?;
        let (text, record) = report.finish();
        let files = results.write(&record)?;
        print(&format!(
            "{text}\n# results in {}: {}\n",
            arguments.results.display(),
            files.join(", ")
        ))?;
        records.push(record);
    }
    let figures = records.iter().map(|record| figure_lines(&record.figures));
    print(&figures.collect::<String>())?;
    let all = command(PROGRAM, "all", arguments.settings.quick);
    if let (Some(path), Some(joined)) = (&arguments.json, Record::join(&records, &all)) {
        std::fs::write(path, json(&joined)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
