//! The daemon's sockets, locks and end.

use crate::server::Daemon;
use anyhow::{Context, bail};
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

/// How long the lock of a platform may outlive the daemon that had it: a child that it was forking when it was killed has
/// the lock too, until it notices.
const LOCK_OUTLIVES: Duration = Duration::from_secs(2);
const LOCK_POLL: Duration = Duration::from_millis(20);
/// File system magic of bpffs (linux/magic.h).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Makes `directory`, below a BPF file system that is mounted if need be.
///
/// # Errors
/// When it cannot be mounted or made.
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

/// One daemon per platform.
///
/// # Errors
/// When another daemon has it.
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

/// How the daemon is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGTERM, SIGINT: interfaces are as before.
    Stop,
    /// SIGUSR2: another daemon takes over in a moment; everything goes on.
    HandOver,
}

/// Serves the API until a signal tells how to end.
///
/// # Errors
/// When the socket cannot be made.
pub fn until_told_to_end(daemon: Arc<Daemon>, socket: &Path) -> anyhow::Result<End> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the run-time")?;
    let listener = runtime.block_on(async { bind(socket) })?;
    tracing::info!(socket = %socket.display(), "listening");
    let router = nfluid_api::server::router(daemon);
    let served = runtime.block_on(async {
        let (mut term, mut interrupt, mut hand_over) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::user_defined2())?,
        );
        tokio::select! {
            result = async { axum::serve(listener, router).await } => result.map(|()| End::Stop),
            _ = term.recv() => Ok(End::Stop),
            _ = interrupt.recv() => Ok(End::Stop),
            _ = hand_over.recv() => Ok(End::HandOver),
        }
    });
    // Not waited for: clients that follow events or captures would keep the daemon alive.
    runtime.shutdown_background();
    let _ = fs::remove_file(socket);
    served.context("serving the API")
}

fn bind(socket: &Path) -> anyhow::Result<UnixListener> {
    // The platform's lock is ours: a socket that lies there is of a daemon that died.
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket)
        .with_context(|| format!("making the socket {}", socket.display()))?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o660))
        .with_context(|| format!("restricting {}", socket.display()))?;
    // Members of the group may use the API; without such a group, root alone.
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
