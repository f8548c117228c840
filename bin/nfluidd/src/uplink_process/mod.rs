//! The process of an uplink: `nfluidd uplink NAME`, started by the daemon, outlives it.
//!
//! What an interface receives needs no process: an XDP program writes it into the rings of its
//! receivers. What is sent out of it does. So that this goes on while the daemon is down, each uplink
//! has a small process of its own, in the daemon's cgroup but in a session of its own. It is given a
//! [`Job`] on its standard input, answers on its standard output, and from then on listens to nothing
//! but its socket. See `docs/adr/0007-a-process-per-uplink.md`.

mod handle;
mod journal;
mod privileges;
mod protocol;
mod serve;

pub use handle::{UplinkProcess, end_recorded};
pub use protocol::{Job, PROTOCOL, Request};

use anyhow::Context;
use journal::Journal;
use nfluid_switch::Switch;
use nfluid_switch::uplink::{ToldError, Uplink, UplinkError};
use protocol::Opened;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Longer than any job.
const JOB_MAX: u64 = 64 * 1024;

/// Runs the uplink that standard input describes, until it is told to end.
///
/// # Errors
/// When the daemon is gone before it has said what to do, and what went wrong with the uplink, which
/// the daemon has been told as well.
pub fn run() -> anyhow::Result<()> {
    // A thread that panics must not leave a process behind that looks alive.
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        std::process::abort();
    }));
    let job = read_job().context("reading the job; 'nfluidd uplink' is started by the daemon")?;
    let journal = Journal::new().context("making an event descriptor")?;
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(&job.log))
        .with_writer(journal.clone())
        .with_ansi(false)
        .with_level(false)
        .with_target(false)
        .without_time()
        .init();
    privileges::drop_others().context("dropping privileges")?;
    detach();
    let opened = open(&job);
    let answer = match &opened {
        Ok((_, uplink, _)) => Opened::Up(uplink.status()),
        Err(error) => Opened::Refused(error.clone()),
    };
    // Without a daemon to read it, the uplink goes on all the same.
    let _told = tell(&answer);
    let (switch, uplink, listener) = opened?;
    serve::until_told_to_end(&switch, uplink, &listener, &journal, &job.socket)
}

fn read_job() -> anyhow::Result<Job> {
    let mut text = Vec::new();
    std::io::stdin().take(JOB_MAX).read_to_end(&mut text)?;
    let job: Job = serde_json::from_slice(&text)?;
    anyhow::ensure!(
        job.protocol == PROTOCOL,
        "the daemon speaks version {} of the protocol, this program version {PROTOCOL}",
        job.protocol
    );
    Ok(job)
}

fn tell(answer: &Opened) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = std::io::stdout();
    out.write_all(&line)?;
    out.flush()?;
    Ok(())
}

/// Leaves the daemon's session, so that what ends that does not end the uplink.
fn detach() {
    // For those who look at the list of processes.
    let _unnamed = rustix::thread::set_name(c"nfluidd-uplink");
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "no session of its own");
    }
    // Where the kernel groups by session, the uplink's priority would count only within its own.
    // Elsewhere there is no such file.
    let _absent = std::fs::write(
        "/proc/self/autogroup",
        nfluid_switch::uplink::NICE.to_string(),
    );
    // No file system is kept busy.
    let _root = std::env::set_current_dir("/");
}

fn open(job: &Job) -> Result<(Switch, Uplink, UnixListener), ToldError> {
    let told = |error: UplinkError| ToldError::from(&error);
    let switch = Switch::open(&job.pin, job.form, job.spec.port)
        .map_err(|error| told(UplinkError::Switch(error)))?;
    let uplink = Uplink::open(&switch, job.spec.clone()).map_err(told)?;
    let listener = match listen(&job.socket) {
        Ok(listener) => listener,
        Err(source) => {
            let what = format!("making the socket {}", job.socket.display());
            uplink.leave();
            return Err(told(UplinkError::System { what, source }));
        }
    };
    Ok((switch, uplink, listener))
}

/// Its folder is open to root alone, and so is the socket.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    // Left by a predecessor that was killed.
    let _absent = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
