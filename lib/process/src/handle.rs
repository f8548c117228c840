//! The daemon's side of a process.

use crate::protocol::{End, Job, News, Opened, PROTOCOL, Request};
use crate::service::Service;
use anyhow::{Context, bail};
use nfluid_sandbox::{Ended, Instance, InstanceError, ProcessIdentity, ThreadUse};
use nfluid_uplink::{ErrorKind, ReportedError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time of a start: the kernel checks a program, drivers reset.
const OPENING: Duration = Duration::from_secs(60);
/// Longest time until the process identifies itself.
const HELLO: Duration = Duration::from_secs(3);
/// Longest time until the process carries out an order, or ends.
const CLOSING: Duration = Duration::from_secs(15);
/// Longest time until a killed process is gone.
const DEATH: Duration = Duration::from_secs(5);
/// Between two attempts to follow a process that runs but has hung up.
const AGAIN: Duration = Duration::from_secs(1);
/// Longer than any answer: a status may name every instance.
const ANSWER_MAX: usize = 4 << 20;

/// A running process.
#[derive(Debug)]
pub struct Process<S: Service> {
    /// Absent: it was started by an earlier daemon.
    child: Option<Child>,
    process: Instance,
    socket: PathBuf,
    heard: Arc<Mutex<S::Status>>,
}

impl<S: Service> Process<S> {
    /// Starts a process for the object `name`. `record` is called with the process before the process does anything,
    /// so that a later daemon knows the process; `errors` takes the output of a panic.
    ///
    /// # Errors
    /// The reason for which the process cannot do its task, or could not be started; there is no process then.
    pub fn start(
        name: &str,
        job: &Job<S::Task>,
        errors: File,
        record: impl FnOnce(&ProcessIdentity) -> anyhow::Result<()>,
    ) -> Result<Self, ReportedError> {
        let failed = |error: anyhow::Error| ReportedError {
            kind: ErrorKind::System,
            text: format!("{} '{name}': {error:#}", S::ROLE),
        };
        let mut child = spawn(S::ROLE, name, errors).map_err(failed)?;
        let opened = instruct::<S>(&mut child, job, record);
        match opened {
            Ok((process, Opened::Up(status))) => {
                let heard = Arc::new(Mutex::new(status));
                let stream = connect::<S>(&job.socket, &Request::Follow).map(BufReader::new);
                follow::<S>(
                    name,
                    stream.ok(),
                    job.socket.clone(),
                    Arc::downgrade(&heard),
                );
                Ok(Process {
                    child: Some(child),
                    process,
                    socket: job.socket.clone(),
                    heard,
                })
            }
            Ok((_, Opened::Refused(error))) => {
                put_down(&mut child);
                Err(error)
            }
            Err(error) => {
                put_down(&mut child);
                Err(failed(error))
            }
        }
    }

    /// Takes over a process that an earlier daemon has started, if it is of this version.
    ///
    /// # Errors
    /// The reason. The process still runs then, if it did.
    pub fn adopt(name: &str, identity: &ProcessIdentity, socket: &Path) -> anyhow::Result<Self> {
        let process = Instance::adopt(identity)?;
        let stream = connect::<S>(socket, &Request::Follow)?;
        let mut reader = BufReader::new(stream);
        let line = read_line(&mut reader).context("the program did not introduce itself")?;
        let Ok(News::Hello {
            protocol,
            abi,
            version,
            status,
        }) = serde_json::from_str(&line)
        else {
            bail!("it is of another version");
        };
        if (protocol, abi) != (PROTOCOL, nfluid_switch::abi::VERSION) {
            bail!("it is of version {version}");
        }
        let heard = Arc::new(Mutex::new(status));
        follow::<S>(
            name,
            Some(reader),
            socket.to_owned(),
            Arc::downgrade(&heard),
        );
        Ok(Process {
            child: None,
            process,
            socket: socket.to_owned(),
            heard,
        })
    }

    /// Returns the process number.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// CPU time that it has used.
    pub fn cpu_time(&self) -> Option<Duration> {
        self.process.cpu_time()
    }

    /// Returns the CPU time of a thread of the process.
    pub fn thread_use(&self, tid: i32) -> Option<ThreadUse> {
        self.process.thread_use(tid)
    }

    /// Returns the status of the process at its last change.
    pub fn status(&self) -> S::Status {
        self.heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Asks it to do something, with descriptors, and waits until it is done.
    ///
    /// `Err` within: why nothing was done.
    ///
    /// # Errors
    /// The process has ended or does not answer; the effect of the order is not known.
    pub fn order(
        &self,
        order: S::Order,
        fds: &[BorrowedFd<'_>],
    ) -> anyhow::Result<Result<S::Answer, String>> {
        let stream = open_socket(&self.socket)?;
        say::<S>(&stream, &Request::Obey(order), fds)?;
        stream.set_read_timeout(Some(CLOSING))?;
        let line = read_line(&mut BufReader::new(stream)).context("waiting for its answer")?;
        serde_json::from_str(&line).context("its answer cannot be understood")
    }

    /// Returns how the process ended, if it has ended.
    pub fn try_wait(&mut self) -> Option<Ended> {
        let Some(child) = &mut self.child else {
            return self.process.try_wait().ok().flatten();
        };
        let status = child.try_wait().ok().flatten()?;
        Some(match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Exited(code),
            (None, Some(signal)) => Ended::Killed(signal),
            (None, None) => Ended::Unknown,
        })
    }

    /// Orders the process to end, and waits until it has ended. Kills the process if it does not obey.
    ///
    /// # Errors
    /// An error at the end of the process: its changes are still to be undone then.
    pub fn end(mut self, how: End) -> anyhow::Result<()> {
        let ended = ask_to_end::<S>(&self.socket, how);
        let patience = if ended.is_ok() { DEATH } else { Duration::ZERO };
        self.reap(patience)?;
        ended
    }

    fn reap(&mut self, patience: Duration) -> anyhow::Result<()> {
        if self.process.wait_timeout(patience)?.is_some() {
            self.try_wait();
            return Ok(());
        }
        self.process.kill()?;
        if self.process.wait_timeout(DEATH)?.is_none() {
            bail!("process {} cannot be killed", self.pid());
        }
        self.try_wait();
        Ok(())
    }
}

/// The pidfd: readable once the process has ended.
impl<S: Service> AsFd for Process<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

/// Ends a process of an earlier daemon that is not taken over, unless it has ended already.
///
/// # Errors
/// An error at the end of the process, or that the process cannot be killed.
pub fn end_if_alive<S: Service>(
    identity: &ProcessIdentity,
    socket: &Path,
    how: End,
) -> anyhow::Result<()> {
    let process = match Instance::adopt(identity) {
        Err(InstanceError::Gone { .. }) => return Ok(()),
        other => other?,
    };
    let unheard = Process::<S> {
        child: None,
        process,
        socket: socket.to_owned(),
        heard: Arc::default(),
    };
    unheard.end(how)
}

fn spawn(role: &str, name: &str, errors: File) -> anyhow::Result<Child> {
    // The path of this very program, also when its file has been replaced by a newer one.
    Command::new("/proc/self/exe")
        .arg0("nfluidd")
        .args([role, name])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .context("starting its process")
}

/// Sends the process its job and waits for the answer.
fn instruct<S: Service>(
    child: &mut Child,
    job: &Job<S::Task>,
    record: impl FnOnce(&ProcessIdentity) -> anyhow::Result<()>,
) -> anyhow::Result<(Instance, Opened<S::Status>)> {
    let identity = ProcessIdentity::of(child.id()).context("looking at its process")?;
    let process = Instance::adopt(&identity).context("looking at its process")?;
    record(&identity).context("writing down its process")?;
    let mut input = child.stdin.take().context("it has no input")?;
    input
        .write_all(&serde_json::to_vec(job)?)
        .context("telling its process what to do")?;
    drop(input);
    let mut output = child.stdout.take().context("it has no output")?;
    let answer = read_answer(&mut output)?;
    let opened = serde_json::from_slice(&answer)
        .context("its process ended without an answer; see its .stderr file")?;
    Ok((process, opened))
}

/// Reads until the end of the line, or of the process.
fn read_answer(output: &mut (impl Read + AsFd)) -> anyhow::Result<Vec<u8>> {
    let start = Instant::now();
    let mut answer = Vec::new();
    let mut part = [0u8; 4096];
    while !answer.ends_with(b"\n") && answer.len() < ANSWER_MAX {
        let rest = OPENING.saturating_sub(start.elapsed());
        let mut fds = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)];
        let timeout = Timespec::try_from(rest).unwrap_or_default();
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => bail!("its process did not answer within {} s", OPENING.as_secs()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match output.read(&mut part)? {
            0 => break,
            count => answer.extend_from_slice(&part[..count]),
        }
    }
    Ok(answer)
}

fn put_down(child: &mut Child) {
    // The process has ended by itself, or hangs: nothing is lost.
    let _gone = child.kill();
    let _reaped = child.wait();
}

fn connect<S: Service>(socket: &Path, request: &Request<S::Order>) -> anyhow::Result<UnixStream> {
    let stream = open_socket(socket)?;
    say::<S>(&stream, request, &[])?;
    Ok(stream)
}

fn open_socket(socket: &Path) -> anyhow::Result<UnixStream> {
    let stream = UnixStream::connect(socket)
        .with_context(|| format!("connecting to {}", socket.display()))?;
    stream.set_read_timeout(Some(HELLO))?;
    stream.set_write_timeout(Some(HELLO))?;
    Ok(stream)
}

fn say<S: Service>(
    stream: &UnixStream,
    request: &Request<S::Order>,
    fds: &[BorrowedFd<'_>],
) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    nfluid_sandbox::fds::send_line(stream, &line, fds)?;
    Ok(())
}

fn read_line(reader: &mut BufReader<UnixStream>) -> anyhow::Result<String> {
    let mut line = String::new();
    let count = reader
        .by_ref()
        .take(ANSWER_MAX as u64)
        .read_line(&mut line)?;
    if count == 0 {
        bail!("it has hung up");
    }
    Ok(line)
}

fn ask_to_end<S: Service>(socket: &Path, how: End) -> anyhow::Result<()> {
    let stream = connect::<S>(socket, &Request::End(how))?;
    stream.set_read_timeout(Some(CLOSING))?;
    let line = read_line(&mut BufReader::new(stream)).context("waiting for its end")?;
    match serde_json::from_str::<News<S::Status>>(&line) {
        Ok(News::Ended { error: None }) => Ok(()),
        Ok(News::Ended { error: Some(error) }) => bail!(error),
        _ => bail!("it says {line}"),
    }
}

/// Follows a process in a thread of its own, until the process ends or the receiver of its news is dropped.
fn follow<S: Service>(
    name: &str,
    mut stream: Option<BufReader<UnixStream>>,
    socket: PathBuf,
    heard: Weak<Mutex<S::Status>>,
) {
    let owned = name.to_owned();
    let follow = move || {
        while heard.strong_count() > 0 {
            if let Some(stream) = stream.take() {
                listen::<S>(&owned, stream, &heard);
            }
            thread::sleep(AGAIN);
            if heard.strong_count() > 0 {
                let connected = connect::<S>(&socket, &Request::Follow);
                stream = connected.map(BufReader::new).ok();
            }
        }
    };
    let started = thread::Builder::new()
        .name(format!("{}-news", S::ROLE))
        .spawn(follow);
    if let Err(error) = started {
        tracing::error!(process = S::ROLE, name, %error, "no thread to follow it");
    }
}

fn listen<S: Service>(
    name: &str,
    mut reader: BufReader<UnixStream>,
    heard: &Weak<Mutex<S::Status>>,
) {
    // No news means that the process works.
    if reader.get_ref().set_read_timeout(None).is_err() {
        return;
    }
    while let Ok(line) = read_line(&mut reader) {
        let Some(heard) = heard.upgrade() else { return };
        match serde_json::from_str(&line) {
            Ok(News::Status(status) | News::Hello { status, .. }) => {
                *heard.lock().unwrap_or_else(PoisonError::into_inner) = status;
            }
            Ok(News::Line { level, text }) => log(S::ROLE, name, &level, &text),
            Ok(News::Ended { .. }) | Err(_) => {}
        }
    }
}

fn log(process: &str, name: &str, level: &str, text: &str) {
    match level {
        "error" => tracing::error!(process, name, "{text}"),
        "warn" => tracing::warn!(process, name, "{text}"),
        "info" => tracing::info!(process, name, "{text}"),
        _ => tracing::debug!(process, name, "{text}"),
    }
}
