//! `nfluid gen`: the arguments, and the runners behind them.
//!
//! On a network interface everything works from here. The program finds and opens ring ports, and hands in a
//! [`PortSource`] for them. All output goes through the writer that is handed in.

mod args;
mod endpoint;

use std::io::{self, Write};
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::capture::Capture;
use crate::clock::MonotonicClock;
use crate::io::{IoError, Receiver, Sender};
use crate::pingpong::{PingError, ping, reflect};
use crate::receive::receive;
use crate::replay::{ReplayError, replay};
use crate::report::ReceiveReport;
use crate::script::ScriptError;
use crate::send::{SendError, send};

pub use args::{
    EndpointArgs, FlowArgs, GenCommand, OutputArgs, OutputFormat, PingArgs, ReceiveArgs,
    ReflectArgs, ReplayArgs, SendArgs,
};

/// Opens ring ports by the name that the user gave.
pub trait PortSource {
    /// The sending half.
    type Sender: Sender;
    /// The receiving half.
    type Receiver: Receiver;

    /// Opens the port. A caller that needs one half drops the other.
    ///
    /// # Errors
    /// [`IoError::Open`] with what the user can do.
    fn open(&mut self, port: &str) -> Result<(Self::Sender, Self::Receiver), IoError>;
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Sending failed.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A ping failed.
    #[error(transparent)]
    Ping(#[from] PingError),
    /// A replay failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A script cannot be used.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A port failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The output could not be written.
    #[error("cannot write the report: {0}")]
    Output(#[from] io::Error),
    /// The traffic does not meet `--require-clean`.
    #[error("not clean: {0}")]
    NotClean(String),
}

/// Runs `command` until it is done or `stop` is set, writing lines and report to `output`.
///
/// # Errors
/// See [`CliError`].
pub fn run(
    command: &GenCommand,
    ports: &mut impl PortSource,
    stop: &AtomicBool,
    output: &mut dyn Write,
) -> Result<(), CliError> {
    match command {
        GenCommand::Send(args) => run_send(args, ports, stop, output),
        GenCommand::Receive(args) => run_receive(args, ports, stop, output),
        GenCommand::Ping(args) => run_ping(args, ports, stop, output),
        GenCommand::Reflect(args) => run_reflect(args, ports, stop, output),
        GenCommand::Replay(args) => run_replay(args, ports, stop, output),
    }
}

fn run_send(
    args: &SendArgs,
    ports: &mut impl PortSource,
    stop: &AtomicBool,
    output: &mut dyn Write,
) -> Result<(), CliError> {
    let job = args.job()?;
    let mut sender = args.endpoint.open_sender(ports)?;
    let mut printer = Printer::new(&args.output, output);
    let mut observe = |line: &_| printer.line(line);
    let report = send(&job, &mut sender, &MonotonicClock, stop, &mut observe)?;
    printer.report(&report)
}

fn run_receive(
    args: &ReceiveArgs,
    ports: &mut impl PortSource,
    stop: &AtomicBool,
    output: &mut dyn Write,
) -> Result<(), CliError> {
    let mut receiver = args.endpoint.open_receiver(ports)?;
    let mut printer = Printer::new(&args.output, output);
    let mut observe = |line: &_| printer.line(line);
    let report = receive(
        &args.job(),
        &mut receiver,
        &MonotonicClock,
        stop,
        &mut observe,
    )?;
    printer.report(&report)?;
    if args.require_clean {
        check_clean(&report)
    } else {
        Ok(())
    }
}

fn run_ping(
    args: &PingArgs,
    ports: &mut impl PortSource,
    stop: &AtomicBool,
    output: &mut dyn Write,
) -> Result<(), CliError> {
    let job = args.job()?;
    let (mut sender, mut receiver) = args.endpoint.open(ports)?;
    let mut printer = Printer::new(&args.output, output);
    let mut observe = |line: &_| printer.line(line);
    let halves = (&mut sender, &mut receiver);
    let report = ping(&job, halves, &MonotonicClock, stop, &mut observe)?;
    printer.report(&report)
}

fn run_reflect(
    args: &ReflectArgs,
    ports: &mut impl PortSource,
    stop: &AtomicBool,
    output: &mut dyn Write,
) -> Result<(), CliError> {
    let (mut sender, mut receiver) = args.endpoint.open(ports)?;
    let halves = (&mut sender, &mut receiver);
    let report = reflect(&args.job(), halves, &MonotonicClock, stop)?;
    Printer::new(&args.output, output).report(&report)
}

fn run_replay(
    args: &ReplayArgs,
    ports: &mut impl PortSource,
    stop: &AtomicBool,
    output: &mut dyn Write,
) -> Result<(), CliError> {
    let mut sender = args.endpoint.open_sender(ports)?;
    let mut printer = Printer::new(&args.output, output);
    let mut observe = |line: &_| printer.line(line);
    let open = || Capture::open(&args.file);
    let report = replay(
        &args.job(),
        open,
        &mut sender,
        &MonotonicClock,
        stop,
        &mut observe,
    )?;
    printer.report(&report)
}

fn check_clean(report: &ReceiveReport) -> Result<(), CliError> {
    let clean = report.check.is_none_or(|check| check.is_clean());
    if clean && report.lost() == 0 && report.received.packets > 0 {
        return Ok(());
    }
    Err(CliError::NotClean(report.to_string()))
}

/// Writes lines and report as text, or as one JSON object per line.
struct Printer<'a> {
    args: &'a OutputArgs,
    output: &'a mut dyn Write,
    failure: Option<io::Error>,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event<'a, T> {
    Second(&'a T),
    Report(&'a T),
}

impl<'a> Printer<'a> {
    fn new(args: &'a OutputArgs, output: &'a mut dyn Write) -> Self {
        Printer {
            args,
            output,
            failure: None,
        }
    }

    /// Prints a second's line. A failure is kept for the report: it does not stop the traffic.
    fn line(&mut self, line: &(impl Serialize + std::fmt::Display)) {
        if self.args.quiet {
            return;
        }
        if let Err(error) = self.print(&Event::Second(line), line) {
            self.failure.get_or_insert(error);
        }
    }

    fn report(&mut self, report: &(impl Serialize + std::fmt::Display)) -> Result<(), CliError> {
        self.print(&Event::Report(report), report)?;
        match self.failure.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn print(&mut self, event: &impl Serialize, text: &impl std::fmt::Display) -> io::Result<()> {
        match self.args.format {
            OutputFormat::Text => writeln!(self.output, "{text}")?,
            OutputFormat::Json => {
                serde_json::to_writer(&mut *self.output, event)?;
                writeln!(self.output)?;
            }
        }
        self.output.flush()
    }
}

#[cfg(test)]
mod tests;
