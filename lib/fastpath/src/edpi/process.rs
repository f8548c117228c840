//! The process of an eDPI's slow path, as the daemon sees it: start in a sandbox, requests, end.

use super::config::InspectorConfig;
use super::inspector::{Hello, PROTOCOL, ROLE, Request, line_of};
use crate::processes::{Processes, Running, Start, program_version};
use crate::record::SlowRecord;
use anyhow::{Context, bail};
use nfluid_evnf::inspector::cpus;
use nfluid_protocol::daemon::Asked;
use nfluid_sandbox::Instance;
use nfluid_sandbox::cgroup::{Cgroup, CgroupStats};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long the setup of nDPI may take.
const OPENING: Duration = Duration::from_secs(60);
/// How long a process may take to answer after its setup.
const PATIENCE: Duration = Duration::from_secs(5);
/// The process has one thread.
const TASKS_MAX: u32 = 4;
/// The CPU time of the process beside others: the share of a core.
const WEIGHT_PER_MILLE: u32 = 1000;
/// The first restart is immediate; after each further death in a row the delay doubles, from this one on.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// After a process has run this long, its death counts as the first of a row.
const LIFE: Duration = Duration::from_secs(60);

/// The process of a slow path.
#[derive(Default)]
pub struct InspectorProcess {
    process: Option<Instance>,
    cgroup: Option<Cgroup>,
    /// The answer to the request to begin, and the deadline for it.
    beginning: Option<(Asked, Instant)>,
    since: Option<Instant>,
    /// Deaths in a row.
    failures: u32,
    due: Option<Instant>,
    problem: Option<String>,
}

impl InspectorProcess {
    /// Returns a process that does not run, and is started by the next `look`.
    pub fn due_now() -> Self {
        InspectorProcess {
            due: Some(Instant::now()),
            ..InspectorProcess::default()
        }
    }

    /// Returns true if the process runs.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Returns the process ID.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Instance::pid)
    }

    /// Returns the resources that the process has used.
    pub fn used(&self) -> CgroupStats {
        let cgroup = self.cgroup.as_ref();
        cgroup
            .and_then(|cgroup| cgroup.stats().ok())
            .unwrap_or_default()
    }

    /// Returns the reason why the process is impaired.
    pub fn problem(&self) -> Option<String> {
        self.problem.clone()
    }

    /// Returns true if it is time to start the process.
    pub fn is_due(&self) -> bool {
        self.process.is_none() && self.due.is_some_and(|due| due <= Instant::now())
    }

    /// Returns descriptors that are readable when the process has ended, or has answered that it has begun.
    pub fn descriptors(&self) -> Vec<OwnedFd> {
        let process = self.process.as_ref().map(AsFd::as_fd);
        let beginning = self.beginning.as_ref().map(|(asked, _)| asked.as_fd());
        let all = process.into_iter().chain(beginning);
        all.filter_map(|fd| fd.try_clone_to_owned().ok()).collect()
    }

    /// Starts the process, and asks it to begin with these tables. Does not wait for the answer.
    ///
    /// # Errors
    /// When the process cannot be started; then no process runs.
    pub fn start(
        &mut self,
        processes: &dyn Processes,
        name: &str,
        record: &mut SlowRecord,
        config: &InspectorConfig,
        tables: [OwnedFd; 4],
    ) -> anyhow::Result<()> {
        self.due = None;
        let Running { process, cgroup } = processes.start(&Start {
            name,
            role: ROLE,
            user: record.user,
            memory: config.memory,
            tasks: TASKS_MAX,
            weight_per_mille: WEIGHT_PER_MILLE,
        })?;
        let asked = cpus().map_err(Into::into).and_then(|cpus| {
            let work = Request::Work {
                config: config.text.clone(),
                cpus,
            };
            let fds = tables.each_ref().map(AsFd::as_fd);
            processes.ask(name, &line_of(&work)?, &fds)
        });
        match asked {
            Ok(asked) => {
                record.process = Some(process.identity().clone());
                record.program = program_version();
                self.beginning = Some((asked, Instant::now() + OPENING));
                self.process = Some(process);
                self.cgroup = Some(cgroup);
                self.since = Some(Instant::now());
                Ok(())
            }
            Err(why) => {
                processes.end(name, Some(process.identity()));
                Err(why)
            }
        }
    }

    /// Waits until the process has begun.
    ///
    /// # Errors
    /// The reason why the process has not begun.
    pub fn await_begun(&mut self, record: &mut SlowRecord) -> anyhow::Result<()> {
        let (mut asked, until) = self.beginning.take().context("it was not started")?;
        asked.wait(until);
        self.note_beginning(record, &mut asked)
    }

    fn note_beginning(&mut self, record: &mut SlowRecord, asked: &mut Asked) -> anyhow::Result<()> {
        match read_answer(asked) {
            Ok(hello) => {
                record.library = hello.library;
                record.applications = hello.applications;
                self.problem = None;
                Ok(())
            }
            Err(why) => {
                self.problem = Some(format!("its slow path does not begin: {why:#}"));
                Err(why)
            }
        }
    }

    /// Returns an event's text if the process has answered that it has begun. Does not wait.
    pub fn poll_begun(&mut self, record: &mut SlowRecord) -> Option<String> {
        let (asked, until) = self.beginning.as_mut()?;
        if !asked.listen() && Instant::now() < *until {
            return None;
        }
        let (mut asked, _) = self.beginning.take()?;
        let begun = self.note_beginning(record, &mut asked);
        begun
            .is_ok()
            .then(|| format!("classifies with nDPI {}", record.library))
    }

    /// Returns an event's text if the process has ended. A restart is scheduled.
    pub fn look(&mut self, record: &mut SlowRecord) -> Option<String> {
        let ended = match self.process.as_ref()?.try_wait() {
            Ok(None) => return None,
            Ok(Some(ended)) => ended.to_string(),
            Err(error) => error.to_string(),
        };
        // The last answer may contain the reason.
        let why = self
            .beginning
            .take()
            .and_then(|(mut asked, _)| read_answer(&mut asked).err());
        let lived = self.since.take().map_or(Duration::ZERO, |at| at.elapsed());
        if lived > LIFE {
            self.failures = 0;
        }
        self.process = None;
        record.process = None;
        record.deaths += 1;
        let why = why.map_or(ended.clone(), |why| format!("{ended}: {why:#}"));
        Some(self.failed(format!("the process of its slow path: {why}")))
    }

    /// Notes that no process runs, and schedules the next start. Returns the text for the operator.
    pub fn failed(&mut self, why: String) -> String {
        let wait = match self.failures {
            0 => Duration::ZERO,
            more => AGAIN.saturating_mul(1 << (more - 1).min(16)).min(AGAIN_MAX),
        };
        self.failures += 1;
        self.due = Some(Instant::now() + wait);
        let problem = format!(
            "{why}; packets go on, what is not in its table goes unclassified; again in {} ms",
            wait.as_millis()
        );
        self.problem = Some(problem.clone());
        problem
    }

    /// Sends a request to the process, and waits for the answer.
    ///
    /// # Errors
    /// The reason why the process has not served the request.
    pub fn request(
        &self,
        processes: &dyn Processes,
        name: &str,
        order: Request,
    ) -> anyhow::Result<()> {
        let asked = processes.ask(name, &line_of(&order)?, &[])?;
        receive_answer(asked, PATIENCE).map(drop)
    }

    /// Takes over a process that an earlier daemon has started.
    ///
    /// # Errors
    /// The reason why it cannot be taken over; the process may still run.
    pub fn adopt(
        &mut self,
        processes: &dyn Processes,
        name: &str,
        record: &SlowRecord,
        kept: bool,
    ) -> anyhow::Result<()> {
        if !kept {
            bail!("its tables are gone");
        }
        if record.program.is_none() || record.program != program_version() {
            bail!("it is of another version");
        }
        let identity = record.process.as_ref().context("there is none")?;
        let process = Instance::adopt(identity)?;
        let asked = processes.ask(name, &line_of(&Request::Hello)?, &[])?;
        let hello = receive_answer(asked, PATIENCE)?;
        if !hello.works || hello.protocol != PROTOCOL {
            bail!("it has not begun, or is of another version");
        }
        self.cgroup = Some(processes.take_over(name)?);
        self.process = Some(process);
        self.since = Some(Instant::now());
        Ok(())
    }
}

/// Waits for an answer.
fn receive_answer(mut asked: Asked, patience: Duration) -> anyhow::Result<Hello> {
    asked.wait(Instant::now() + patience);
    if !asked.listen() {
        bail!("no answer within {patience:?}");
    }
    understood(asked.line())
}

/// Reads an answer that has already arrived.
fn read_answer(asked: &mut Asked) -> anyhow::Result<Hello> {
    if !asked.listen() {
        bail!("it does not answer");
    }
    understood(asked.line())
}

fn understood(line: &[u8]) -> anyhow::Result<Hello> {
    if line.is_empty() {
        bail!("it ended without an answer; 'nfluid logs' may have its last words");
    }
    let answer: Result<Hello, String> =
        serde_json::from_slice(line).context("its answer cannot be understood")?;
    answer.map_err(anyhow::Error::msg)
}
