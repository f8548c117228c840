//! One job of a test run: a program, and its result.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::guest::{Event, Guest};
use crate::programs::Program;
use crate::session::{Outcome, Session, Watchdog};
use crate::tally::{Output, Tally};

use super::progress::Progress;

/// Time after which a job counts as hung. The limit protects the run; it does not limit what a test may take: the
/// longest test takes a tenth of it on an idle machine.
const MINUTES_MAX: u64 = 30;
/// 100,000 instances alone take a quarter of an hour.
const SOAK_MINUTES_MAX: u64 = 6 * 60;

/// Environment of the programs of all jobs.
pub struct Surroundings {
    /// PATH with the folder of Python programs first.
    pub path: std::ffi::OsString,
    /// The folder for temporary files of programs.
    pub temp_dir: PathBuf,
    /// The folder for the evidence of failed tests.
    pub evidence: PathBuf,
    /// Run the long form of tests: `make soak`.
    pub is_soak: bool,
}

pub struct Job {
    /// Name for readers: `platform_crash: a_killed_daemon`.
    pub name: String,
    /// The step of the job.
    pub step: &'static str,
    /// Rough time in seconds, for a job that has not run before.
    pub seconds: f64,
    pub work: Work,
}

pub enum Work {
    /// A program with libtest: all of its tests, or the test of this name.
    Libtest(Program, Option<String>),
    /// A program that is one test, and passes if it exits with 0; with the folder of its libraries.
    Plain(PathBuf, PathBuf),
    /// Documentation tests, which cargo compiles and runs.
    Documentation(Box<Command>),
    /// A kernel with the tests that run in it.
    Guest(Guest),
}

/// Result of a job.
#[derive(Default)]
pub struct Ended {
    pub tally: Tally,
    /// All output lines.
    pub transcript: Vec<String>,
    pub seconds: f64,
}

impl Job {
    /// Runs the job to its end.
    ///
    /// # Errors
    /// Only an interrupt; everything else is a failed test.
    pub fn run(
        self,
        session: &Session,
        surroundings: &Surroundings,
        progress: &Progress,
    ) -> Result<Ended> {
        let start = Instant::now();
        let evidence = surroundings.evidence.join(file_name(&self.name));
        let mut ended = Ended::default();
        match self.work {
            Work::Guest(guest) => {
                let series = guest.series;
                ended.tally = guest.run(session, |event| match event {
                    Event::Line(line) => ended.transcript.push(line.to_owned()),
                    Event::Case(case) => progress.case(
                        &format!("{series} {}: {}", case.program, case.name),
                        case.seconds,
                        case.verdict,
                    ),
                })?;
            }
            Work::Libtest(program, test) => {
                let mut command = session.command(&program.path);
                command.current_dir(&program.folder);
                command.env("CARGO_MANIFEST_DIR", &program.folder);
                if let Some(test) = test {
                    command.args(["--exact", &test, "--test-threads=1"]);
                }
                surroundings.apply(&mut command, session, &evidence);
                ended.libtest(session, self.step, &self.name, &mut command)?;
            }
            Work::Documentation(mut command) => {
                surroundings.apply(&mut command, session, &evidence);
                ended.libtest(session, self.step, &self.name, &mut command)?;
            }
            Work::Plain(program, libraries) => {
                let mut command = session.command(program);
                command.env("LD_LIBRARY_PATH", libraries);
                surroundings.apply(&mut command, session, &evidence);
                match ended.follow(session, &mut command, |_| {}) {
                    Ok(Outcome::Exited(status)) if status.success() => ended.tally.passed(),
                    Ok(outcome) => {
                        let how = describe(&outcome);
                        ended
                            .tally
                            .failed(format!("{}: {} {how}", self.step, self.name));
                    }
                    Err(error) => ended.broken(self.step, &self.name, error)?,
                }
            }
        }
        ended.seconds = start.elapsed().as_secs_f64();
        Ok(ended)
    }
}

impl Surroundings {
    fn apply(&self, command: &mut Command, session: &Session, evidence: &Path) {
        command
            .env("TMPDIR", &self.temp_dir)
            .env("PATH", &self.path);
        command.env("NFLUID_BIN_DIR", session.target.join("debug"));
        command.env("NFLUID_EVIDENCE_DIR", evidence);
        command.env("RUST_BACKTRACE", "1");
        if self.is_soak {
            command.env("NFLUID_SOAK", "1");
        }
    }
}

impl Ended {
    /// Runs a program with libtest, and counts the tests of its output.
    fn libtest(
        &mut self,
        session: &Session,
        step: &str,
        name: &str,
        command: &mut Command,
    ) -> Result<()> {
        let mut output = Output::default();
        match self.follow(session, command, |line| output.line(line)) {
            Ok(Outcome::Exited(status)) => output.end(status),
            Ok(outcome) => output.broken(format!("{name} {}", describe(&outcome))),
            Err(error) => return self.broken(step, name, error),
        }
        let program = name.split(": ").next().unwrap_or(name);
        self.tally.add(&format!("{step}: {program}"), output);
        Ok(())
    }

    fn follow(
        &mut self,
        session: &Session,
        command: &mut Command,
        mut on_line: impl FnMut(&str),
    ) -> Result<Outcome> {
        let is_soak = command.get_envs().any(|(name, _)| name == "NFLUID_SOAK");
        let minutes = if is_soak {
            SOAK_MINUTES_MAX
        } else {
            MINUTES_MAX
        };
        let limit = Duration::from_secs(minutes * 60);
        let watchdog = Watchdog {
            silence: limit,
            total: limit,
        };
        session.capture(command, watchdog, |line| {
            on_line(line);
            self.transcript.push(line.to_owned());
        })
    }

    /// Counts an error of running the job as a failure. Returns an interrupt.
    fn broken(&mut self, step: &str, name: &str, error: anyhow::Error) -> Result<()> {
        if error.is::<crate::session::Interrupted>() {
            return Err(error);
        }
        self.transcript.push(format!("{error:#}"));
        self.tally.failed(format!("{step}: {name}: {error:#}"));
        Ok(())
    }
}

fn describe(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Exited(status) => format!("ended with {status}"),
        Outcome::Hung => "hung, and was killed".to_owned(),
    }
}

/// Returns a job's name as a file name.
pub fn file_name(job: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    job.replace(": ", ".")
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect()
}
