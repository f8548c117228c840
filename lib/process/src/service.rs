//! The purpose of a helper process, and its life from the start on.

use crate::journal::Journal;
use crate::protocol::{End, Job, Opened, PROTOCOL};
use crate::{privileges, serve};
use anyhow::Context;
use nfluid_control::model::{Backoff, Restart, RestartPolicy};
use nfluid_control::quantity::Millis;
use nfluid_uplink::{ErrorKind, ReportedError};
use rustix::thread::CapabilitySet;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::CStr;
use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Longer than any job.
const JOB_MAX: u64 = 64 * 1024;

/// The restart policy of such a process: always, as traffic waits for it.
pub const RESTART: Restart = Restart {
    policy: RestartPolicy::Always,
    backoff: Backoff {
        shortest: Millis(10),
        longest: Millis(5000),
    },
    max: None,
    healthy: Millis(10_000),
};

/// The purpose of such a process.
pub trait Service: Sized {
    /// The task that the process is given at its start.
    type Task: Serialize + DeserializeOwned;
    /// The status of the process.
    type Status: Clone + Default + Serialize + DeserializeOwned + Send + 'static;
    /// An order to the process.
    type Order: Serialize + DeserializeOwned;
    /// The result of an order.
    type Answer: Serialize + DeserializeOwned;

    /// The word after `nfluidd` by which it is started.
    const ROLE: &'static str;
    /// The title in the list of processes.
    const TITLE: &'static CStr;
    /// The capabilities that it needs as long as it lives.
    const NEEDED: CapabilitySet;

    /// Begins.
    ///
    /// # Errors
    /// The reason for which the process cannot work; nothing has changed.
    fn open(job: &Job<Self::Task>) -> Result<Self, ReportedError>;

    /// Returns the status.
    fn status(&self) -> Self::Status;

    /// Readable when the status has changed; absent: it changes by orders alone.
    fn changes(&self) -> Option<BorrowedFd<'_>>;

    /// Returns true if the status has changed since the last question.
    fn has_changed(&self) -> bool;

    /// Carries out an order.
    ///
    /// # Errors
    /// The reason against the order, for the operator; nothing has changed.
    fn obey(&mut self, order: Self::Order, fds: Vec<OwnedFd>) -> Result<Self::Answer, String>;

    /// Ends.
    ///
    /// # Errors
    /// Changes that could not be undone.
    fn end(self, how: End) -> anyhow::Result<()>;
}

/// Runs the process that standard input describes, until an order ends it.
///
/// # Errors
/// When the daemon is gone before it has sent the job; or another error, which the daemon has been sent as well.
pub fn run<S: Service>() -> anyhow::Result<()> {
    // A thread that panics must not leave a process behind that looks alive.
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        std::process::abort();
    }));
    let reading = || {
        format!(
            "reading the job; 'nfluidd {}' is started by the daemon",
            S::ROLE
        )
    };
    let job = read_job::<S>().with_context(reading)?;
    let journal = Journal::new().context("making an event descriptor")?;
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(&job.log))
        .with_writer(journal.clone())
        .with_ansi(false)
        .with_level(false)
        .with_target(false)
        .without_time()
        .init();
    privileges::keep_only(S::NEEDED).context("dropping privileges")?;
    detach(S::TITLE);
    let opened = open::<S>(&job);
    let answer = match &opened {
        Ok((service, _)) => Opened::Up(service.status()),
        Err(error) => Opened::Refused(error.clone()),
    };
    // The process goes on without a daemon that reads the answer.
    let _sent = send_answer(&answer);
    let (service, listener) = opened?;
    serve::until_end(service, &listener, &journal, &job.socket)
}

fn read_job<S: Service>() -> anyhow::Result<Job<S::Task>> {
    let mut text = Vec::new();
    std::io::stdin().take(JOB_MAX).read_to_end(&mut text)?;
    let job: Job<S::Task> = serde_json::from_slice(&text)?;
    anyhow::ensure!(
        job.protocol == PROTOCOL,
        "the daemon speaks version {} of the protocol, this program version {PROTOCOL}",
        job.protocol
    );
    Ok(job)
}

fn send_answer(answer: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = std::io::stdout();
    out.write_all(&line)?;
    out.flush()?;
    Ok(())
}

/// Leaves the daemon's session, so that what ends that does not end this process.
fn detach(title: &CStr) {
    // The name is shown in process lists.
    let _unnamed = rustix::thread::set_name(title);
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "no session of its own");
    }
    // No file system is kept busy.
    let _root = std::env::set_current_dir("/");
}

fn open<S: Service>(job: &Job<S::Task>) -> Result<(S, UnixListener), ReportedError> {
    let service = S::open(job)?;
    match listen(&job.socket) {
        Ok(listener) => Ok((service, listener)),
        Err(error) => {
            let mut text = format!("making the socket {}: {error}", job.socket.display());
            if let Err(error) = service.end(End::Leave) {
                text += &format!("; {error:#}");
            }
            let kind = ErrorKind::System;
            Err(ReportedError { kind, text })
        }
    }
}

/// Only root can open the folder of the socket, and so the socket.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    // Left by a predecessor that was killed.
    let _absent = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
