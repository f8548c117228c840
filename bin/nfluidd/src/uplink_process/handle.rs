//! The daemon's side of an uplink process.

use super::protocol::{Job, News, Opened, PROTOCOL, Request};
use anyhow::{Context, bail};
use nfluid_sandbox::{Ended, Instance, ProcessIdentity};
use nfluid_switch::uplink::{ErrorKind, ToldError, UplinkStatus};
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

/// How long a process may take to open its uplink: the kernel checks a program, drivers reset.
const OPENING: Duration = Duration::from_secs(60);
/// How long it may take to say who it is.
const HELLO: Duration = Duration::from_secs(3);
/// How long it may take to let go of its interface.
const CLOSING: Duration = Duration::from_secs(15);
/// How long a killed process may take to be gone.
const DEATH: Duration = Duration::from_secs(5);
/// Between two attempts to follow a process that runs but has hung up.
const AGAIN: Duration = Duration::from_secs(1);
/// Longer than any answer.
const ANSWER_MAX: usize = 64 * 1024;

/// A running uplink process.
#[derive(Debug)]
pub struct UplinkProcess {
    /// Absent: it was started by an earlier daemon.
    child: Option<Child>,
    process: Instance,
    socket: PathBuf,
    heard: Arc<Mutex<UplinkStatus>>,
}

impl UplinkProcess {
    /// Starts a process. `record` is told which one it is before it does anything, so that a daemon
    /// that comes later knows; `errors` takes what it says if it panics.
    ///
    /// # Errors
    /// Those of the uplink, and what kept the process from running; there is no process then.
    pub fn start(
        name: &str,
        job: &Job,
        errors: File,
        record: impl FnOnce(&ProcessIdentity) -> std::io::Result<()>,
    ) -> Result<Self, ToldError> {
        let failed = |error: anyhow::Error| ToldError {
            kind: ErrorKind::System,
            text: format!("uplink '{name}': {error:#}"),
        };
        let mut child = spawn(name, errors).map_err(failed)?;
        let opened = instruct(&mut child, job, record);
        match opened {
            Ok((process, Opened::Up(status))) => {
                let heard = Arc::new(Mutex::new(status));
                let stream = connect(&job.socket, Request::Follow).map(BufReader::new);
                follow(
                    name,
                    stream.ok(),
                    job.socket.clone(),
                    Arc::downgrade(&heard),
                );
                Ok(UplinkProcess {
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
    /// Why not. The process still runs then, if it did.
    pub fn adopt(name: &str, identity: &ProcessIdentity, socket: &Path) -> anyhow::Result<Self> {
        let process = Instance::adopt(identity)?;
        let stream = connect(socket, Request::Follow)?;
        let mut reader = BufReader::new(stream);
        let line = read_line(&mut reader).context("it does not say who it is")?;
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
        follow(
            name,
            Some(reader),
            socket.to_owned(),
            Arc::downgrade(&heard),
        );
        Ok(UplinkProcess {
            child: None,
            process,
            socket: socket.to_owned(),
            heard,
        })
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// CPU time that it has used.
    pub fn cpu_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        // The name, in parentheses, may hold anything; user and system time are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks: u64 = fields
            .split_ascii_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        let per_second = rustix::param::clock_ticks_per_second();
        Some(Duration::from_millis(ticks * 1000 / per_second.max(1)))
    }

    /// How the uplink was when it last changed.
    pub fn status(&self) -> UplinkStatus {
        self.heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How it ended, if it has.
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

    /// Tells it to end, and waits until it is gone; kills it if it does not obey.
    ///
    /// # Errors
    /// What went wrong at its end: what it has changed is still to be undone then.
    pub fn end(mut self, request: Request) -> anyhow::Result<()> {
        let ended = ask_to_end(&self.socket, request);
        let patience = if ended.is_ok() { DEATH } else { Duration::ZERO };
        self.bury(patience)?;
        ended
    }

    fn bury(&mut self, patience: Duration) -> anyhow::Result<()> {
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
impl AsFd for UplinkProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

/// Ends a process of an earlier daemon that is not taken over; it may have ended before.
///
/// # Errors
/// What went wrong at its end, or that it cannot be killed.
pub fn end_recorded(
    identity: &ProcessIdentity,
    socket: &Path,
    request: Request,
) -> anyhow::Result<()> {
    let process = Instance::adopt(identity)?;
    let unheard = UplinkProcess {
        child: None,
        process,
        socket: socket.to_owned(),
        heard: Arc::default(),
    };
    unheard.end(request)
}

fn spawn(name: &str, errors: File) -> anyhow::Result<Child> {
    // This very program, also when its file has been replaced by a newer one.
    Command::new("/proc/self/exe")
        .arg0("nfluidd")
        .args(["uplink", name])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .context("starting its process")
}

/// Tells the process what to do and hears what has become of it.
fn instruct(
    child: &mut Child,
    job: &Job,
    record: impl FnOnce(&ProcessIdentity) -> std::io::Result<()>,
) -> anyhow::Result<(Instance, Opened)> {
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
    // It has ended by itself, or hangs: nothing is lost.
    let _gone = child.kill();
    let _reaped = child.wait();
}

fn connect(socket: &Path, request: Request) -> anyhow::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("connecting to {}", socket.display()))?;
    stream.set_read_timeout(Some(HELLO))?;
    stream.set_write_timeout(Some(HELLO))?;
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(stream)
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

fn ask_to_end(socket: &Path, request: Request) -> anyhow::Result<()> {
    let stream = connect(socket, request)?;
    stream.set_read_timeout(Some(CLOSING))?;
    let line = read_line(&mut BufReader::new(stream)).context("waiting for its end")?;
    match serde_json::from_str(&line) {
        Ok(News::Ended { error: None }) => Ok(()),
        Ok(News::Ended { error: Some(error) }) => bail!(error),
        _ => bail!("it says {line}"),
    }
}

/// Follows a process in a thread of its own, until it ends or nobody wants to know any more.
fn follow(
    name: &str,
    mut stream: Option<BufReader<UnixStream>>,
    socket: PathBuf,
    heard: Weak<Mutex<UplinkStatus>>,
) {
    let owned = name.to_owned();
    let follow = move || {
        while heard.strong_count() > 0 {
            if let Some(stream) = stream.take() {
                listen(&owned, stream, &heard);
            }
            thread::sleep(AGAIN);
            if heard.strong_count() > 0 {
                let connected = connect(&socket, Request::Follow);
                stream = connected.map(BufReader::new).ok();
            }
        }
    };
    let started = thread::Builder::new()
        .name("uplink-news".to_owned())
        .spawn(follow);
    if let Err(error) = started {
        tracing::error!(uplink = name, %error, "no thread to follow the uplink");
    }
}

fn listen(name: &str, mut reader: BufReader<UnixStream>, heard: &Weak<Mutex<UplinkStatus>>) {
    // Nothing to hear is good news.
    if reader.get_ref().set_read_timeout(None).is_err() {
        return;
    }
    while let Ok(line) = read_line(&mut reader) {
        let Some(heard) = heard.upgrade() else { return };
        match serde_json::from_str(&line) {
            Ok(News::Status(status) | News::Hello { status, .. }) => {
                *heard.lock().unwrap_or_else(PoisonError::into_inner) = status;
            }
            Ok(News::Line { level, text }) => log(name, &level, &text),
            Ok(News::Ended { .. }) | Err(_) => {}
        }
    }
}

fn log(name: &str, level: &str, text: &str) {
    match level {
        "error" => tracing::error!(uplink = name, "{text}"),
        "warn" => tracing::warn!(uplink = name, "{text}"),
        "info" => tracing::info!(uplink = name, "{text}"),
        _ => tracing::debug!(uplink = name, "{text}"),
    }
}
