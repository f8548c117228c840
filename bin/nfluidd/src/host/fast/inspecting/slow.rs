//! The process of a slow path: started in a sandbox, asked, ended.

use super::super::super::bells;
use super::super::super::launch::{control_socket, version};
use super::super::super::making::{self, Maker};
use super::super::record::SlowRecord;
use crate::inspector_process::{Hello, InspectorConfig, PROTOCOL, ROLE, Request, ask};
use anyhow::{Context, bail};
use nfluid_evnf::inspector::cpus;
use nfluid_protocol::daemon::{self, Asked};
use nfluid_ring::layout::SOL_NFLUID;
use nfluid_sandbox::cgroup::{Cgroup, CgroupStats, Share};
use nfluid_sandbox::seccomp::Policy;
use nfluid_sandbox::{
    InheritedFd, Instance, InstanceError, Launch, Program, Root, ShellSpec, spawn,
};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The running program, also when its file has been replaced.
const PROGRAM: &str = "/proc/self/exe";
/// How long nDPI may take to be set up.
const OPENING: Duration = Duration::from_secs(60);
/// How long a process that works may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// It has one thread.
const TASKS_MAX: u32 = 4;
/// What it may use beside others: a core's.
const WEIGHT_PER_MILLE: u32 = 1000;
/// After the first death it is started at once; after so many more in a row ever later.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// Who has lived so long has not died of its beginning.
const LIFE: Duration = Duration::from_secs(60);

/// The process of one.
#[derive(Default)]
pub struct Slow {
    process: Option<Instance>,
    cgroup: Option<Cgroup>,
    /// Where it answers that it has begun, and until when.
    beginning: Option<(Asked, Instant)>,
    since: Option<Instant>,
    /// Deaths in a row.
    failures: u32,
    due: Option<Instant>,
    problem: Option<String>,
}

/// Its cgroup.
fn cgroup_name(name: &str) -> String {
    format!("x-{name}")
}

impl Slow {
    /// None yet; it is to be started.
    pub fn due_now() -> Self {
        Slow {
            due: Some(Instant::now()),
            ..Slow::default()
        }
    }

    /// Whether there is a process.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Its number.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Instance::pid)
    }

    /// What it has used.
    pub fn used(&self) -> CgroupStats {
        let cgroup = self.cgroup.as_ref();
        cgroup
            .and_then(|cgroup| cgroup.stats().ok())
            .unwrap_or_default()
    }

    /// Why it is not as it should be.
    pub fn problem(&self) -> Option<String> {
        self.problem.clone()
    }

    /// Whether it is time to start it.
    pub fn is_due(&self) -> bool {
        self.process.is_none() && self.due.is_some_and(|due| due <= Instant::now())
    }

    /// Readable when it has ended, or says that it has begun.
    pub fn descriptors(&self) -> Vec<OwnedFd> {
        let process = self.process.as_ref().map(AsFd::as_fd);
        let beginning = self.beginning.as_ref().map(|(asked, _)| asked.as_fd());
        let all = process.into_iter().chain(beginning);
        all.filter_map(|fd| fd.try_clone_to_owned().ok()).collect()
    }

    /// Starts it, and asks it to begin on these tables; does not wait for the answer.
    ///
    /// # Errors
    /// Nothing runs.
    pub fn start(
        &mut self,
        maker: &Maker,
        name: &str,
        record: &mut SlowRecord,
        config: &InspectorConfig,
        tables: [OwnedFd; 4],
    ) -> anyhow::Result<()> {
        self.due = None;
        let (process, cgroup) = launch(maker, name, record, config)?;
        let asked = daemon::open(&maker.paths.control(name))
            .context("connecting to its process")
            .and_then(|stream| {
                let work = Request::Work {
                    config: config.text.clone(),
                    cpus: cpus()?,
                };
                ask(&stream, &work, &tables.each_ref().map(AsFd::as_fd))?;
                Ok(stream)
            });
        match asked {
            Ok(stream) => {
                record.process = Some(process.identity().clone());
                record.program = version(Path::new(PROGRAM));
                self.beginning = Some((Asked::on(stream), Instant::now() + OPENING));
                self.process = Some(process);
                self.cgroup = Some(cgroup);
                self.since = Some(Instant::now());
                Ok(())
            }
            Err(why) => {
                making::end(&process)?;
                Err(why)
            }
        }
    }

    /// Waits until it has begun.
    ///
    /// # Errors
    /// Why it has not.
    pub fn await_begun(&mut self, record: &mut SlowRecord) -> anyhow::Result<()> {
        let (mut asked, until) = self.beginning.take().context("it was not started")?;
        daemon::await_answers(&mut [&mut asked], until);
        self.note_beginning(record, &mut asked)
    }

    fn note_beginning(&mut self, record: &mut SlowRecord, asked: &mut Asked) -> anyhow::Result<()> {
        match said(asked) {
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

    /// What it has said, if it said that it has begun. It is not waited for, whatever it says.
    pub fn heard(&mut self, record: &mut SlowRecord) -> Option<String> {
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

    /// How it has ended, if it has. It is started again.
    pub fn look(&mut self, record: &mut SlowRecord) -> Option<String> {
        let ended = match self.process.as_ref()?.try_wait() {
            Ok(None) => return None,
            Ok(Some(ended)) => ended.to_string(),
            Err(error) => error.to_string(),
        };
        // What it said last.
        let why = self
            .beginning
            .take()
            .and_then(|(mut asked, _)| said(&mut asked).err());
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

    /// Notes that there is none, and when it is tried again.
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

    /// Has it do something.
    ///
    /// # Errors
    /// Why it has not done it.
    pub fn tell(&self, maker: &Maker, name: &str, order: Request) -> anyhow::Result<()> {
        let stream = daemon::open(&maker.paths.control(name));
        let stream = stream.context("connecting to its process")?;
        ask(&stream, &order, &[])?;
        hear(&stream, PATIENCE).map(drop)
    }

    /// Takes over a process that an earlier daemon has started.
    ///
    /// # Errors
    /// Why not; it may still run.
    pub fn adopt(
        &mut self,
        maker: &Maker,
        name: &str,
        record: &SlowRecord,
        kept: bool,
    ) -> anyhow::Result<()> {
        if !kept {
            bail!("its tables are gone");
        }
        if record.program.is_none() || record.program != version(Path::new(PROGRAM)) {
            bail!("it is of another version");
        }
        let identity = record.process.as_ref().context("there is none")?;
        let process = Instance::adopt(identity)?;
        let stream = daemon::open(&maker.paths.control(name)).context("connecting to it")?;
        ask(&stream, &Request::Hello, &[])?;
        let hello = hear(&stream, PATIENCE)?;
        if !hello.works || hello.protocol != PROTOCOL {
            bail!("it has not begun, or is of another version");
        }
        make_log(maker, name)?;
        self.cgroup = Some(maker.cgroups.open(&cgroup_name(name))?);
        self.process = Some(process);
        self.since = Some(Instant::now());
        Ok(())
    }
}

/// What it answers. It may be anything by now: only the beginning counts.
fn hear(stream: &UnixStream, patience: Duration) -> anyhow::Result<Hello> {
    stream.set_nonblocking(false)?;
    understood(daemon::line_within(stream, patience)?.as_bytes())
}

/// The same of what has come by now.
fn said(asked: &mut Asked) -> anyhow::Result<Hello> {
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

fn make_log(maker: &Maker, name: &str) -> anyhow::Result<()> {
    let (pipe, log) = (maker.paths.log_pipe(name), maker.paths.log(name));
    bells::make(&pipe).context("making the log pipe")?;
    maker.logs.follow(name, pipe, log);
    Ok(())
}

/// Starts the process in its sandbox: with libraries, and nothing else; its socket is its standard input.
fn launch(
    maker: &Maker,
    name: &str,
    record: &SlowRecord,
    config: &InspectorConfig,
) -> anyhow::Result<(Instance, Cgroup)> {
    let file = File::open(PROGRAM).context("opening this program")?;
    let origin = std::fs::read_link(PROGRAM).context("finding this program")?;
    let program = Program::from_fd(file.into(), &origin)?;
    let filter = Policy::new(program.linkage(), SOL_NFLUID as u32).with_handed_maps();
    let filter = filter.compile()?;
    let own = cgroup_name(name);
    let cgroup = maker.cgroups.create(&own).or_else(|_| {
        maker.cgroups.remove_leftover(&own)?;
        maker.cgroups.create(&own)
    })?;
    cgroup.set_weight(Share::from_per_mille(WEIGHT_PER_MILLE)?)?;
    cgroup.set_memory(config.memory)?;
    cgroup.set_pids(TASKS_MAX)?;
    make_log(maker, name)?;
    let log = bells::open_both(&maker.paths.log_pipe(name)).context("opening the log pipe")?;
    let socket = control_socket(&maker.paths.control(name))?;
    let root = Root::for_linkage(program.linkage());
    let shell = ShellSpec {
        zygote: Some(&maker.zygote),
        ..maker.sandbox(name.to_owned(), record.user, &cgroup, root)?
    };
    let mut launch = Launch::new(&program, &filter);
    launch.argv = ["nfluidd", ROLE, name]
        .into_iter()
        .map(CString::new)
        .collect::<Result<_, _>>()?;
    launch.fds = [(&socket, 0), (&log, 1), (&log, 2)]
        .map(|(fd, number)| InheritedFd {
            fd: fd.as_fd(),
            number,
        })
        .to_vec();
    let instance = spawn(&shell, &launch)?.instance;
    drop(launch);
    drop(shell);
    Ok((instance, cgroup))
}

/// Ends a process by its record, whoever has started it, and what else may be in its cgroup.
pub fn end(maker: &Maker, name: &str, record: &mut SlowRecord) {
    if let Some(identity) = record.process.take() {
        let ended = match Instance::adopt(&identity) {
            Err(InstanceError::Gone { .. }) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(process) => making::end(&process),
        };
        if let Err(why) = ended {
            tracing::warn!(
                instance = name,
                "ending the process of its slow path: {why:#}"
            );
        }
        // If it was this daemon's child, nobody else waits for it any more.
        let pid = i32::try_from(identity.pid).ok().and_then(Pid::from_raw);
        let _another_daemons = waitpid(pid, WaitOptions::NOHANG);
    }
    let _gone = maker.cgroups.remove_leftover(&cgroup_name(name));
}

/// Takes away what there was for its processes.
pub fn remove(maker: &Maker, name: &str) {
    let _gone = maker.cgroups.remove_leftover(&cgroup_name(name));
    maker.logs.forget(name);
    let paths = &maker.paths;
    for file in [paths.control(name), paths.log_pipe(name), paths.log(name)] {
        let _absent = std::fs::remove_file(file);
    }
}
