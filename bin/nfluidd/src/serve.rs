//! The daemon's sockets, its lock, and its end.

use crate::remote;
use crate::server::Daemon;
use anyhow::{Context, bail};
use nfluid_api::server::remote::Listener;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock};
use rustix::mount::MountFlags;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

/// Time for which the lock of a platform may outlive the daemon that held the lock. A child that the daemon was
/// forking when the daemon was killed holds the lock too, until the child notices.
const LOCK_OUTLIVES: Duration = Duration::from_secs(2);
const LOCK_POLL: Duration = Duration::from_millis(20);
/// File system magic of bpffs (linux/magic.h).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Creates `directory` below a BPF file system. Mounts the file system if necessary.
///
/// # Errors
/// The file system cannot be mounted, or the directory cannot be created.
pub fn mount_bpf_file_system(directory: &Path) -> anyhow::Result<()> {
    let parent = directory
        .parent()
        .context("--bpf-dir is the root directory")?;
    fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    let found =
        rustix::fs::statfs(parent).with_context(|| format!("looking at {}", parent.display()))?;
    if found.f_type as u64 & 0xffff_ffff != BPF_FS_MAGIC {
        rustix::mount::mount("bpf", parent, "bpf", MountFlags::empty(), None)
            .with_context(|| format!("mounting a BPF file system at {}", parent.display()))?;
    }
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))
}

/// Locks the platform, so that it has at most one daemon.
///
/// # Errors
/// Another daemon holds the lock.
pub fn lock_platform(run_dir: &Path) -> anyhow::Result<OwnedFd> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(run_dir)
        .with_context(|| format!("creating {}", run_dir.display()))?;
    let path = run_dir.join("nfluidd.lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR)
        .with_context(|| format!("opening {}", path.display()))?;
    let end = Instant::now() + LOCK_OUTLIVES;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= end {
            bail!(
                "another nfluidd has this platform ({} is locked)",
                path.display()
            );
        }
        std::thread::sleep(LOCK_POLL);
    }
    Ok(file)
}

/// The way in which the daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGTERM, SIGINT: the daemon restores the interfaces.
    Stop,
    /// SIGUSR2: another daemon takes over in a moment; instances and uplinks go on.
    HandOver,
}

/// Serves the API until a signal ends the daemon. Returns the way in which the signal ends it.
///
/// # Errors
/// The socket cannot be created.
pub fn until_end_signal(
    daemon: Arc<Daemon>,
    socket: &Path,
    clients: Option<Listener>,
) -> anyhow::Result<End> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the run-time")?;
    let listener = runtime.block_on(async { bind(socket) })?;
    tracing::info!(socket = %socket.display(), "listening");
    let router = nfluid_api::server::router(Arc::clone(&daemon));
    let served = runtime.block_on(async {
        let (mut term, mut interrupt, mut hand_over) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::user_defined2())?,
        );
        tokio::select! {
            result = async { axum::serve(listener, router).await } => result.map(|()| End::Stop),
            result = remote::serve(daemon, clients) => result.map(|()| End::Stop),
            _ = term.recv() => Ok(End::Stop),
            _ = interrupt.recv() => Ok(End::Stop),
            _ = hand_over.recv() => Ok(End::HandOver),
        }
    });
    // The shutdown does not wait: clients that follow events or captures would keep the daemon alive.
    runtime.shutdown_background();
    let _ = fs::remove_file(socket);
    served.context("serving the API")
}

fn bind(socket: &Path) -> anyhow::Result<UnixListener> {
    // This daemon holds the platform's lock, so a socket at this path belongs to a daemon that died.
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket)
        .with_context(|| format!("making the socket {}", socket.display()))?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o660))
        .with_context(|| format!("restricting {}", socket.display()))?;
    // Members of the group may use the API. Without such a group only root may.
    if let Some(group) = group_id("nfluid") {
        std::os::unix::fs::chown(socket, None, Some(group))
            .with_context(|| format!("giving {} to group nfluid", socket.display()))?;
    }
    Ok(listener)
}

fn group_id(name: &str) -> Option<u32> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    let line = groups
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}
