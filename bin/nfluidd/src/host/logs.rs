//! What instances write to their standard output and error.
//!
//! Each has a named pipe, which the daemon reads into a file of bounded size. An instance that
//! writes faster than that, or while no daemon reads, loses lines and nothing else.

use anyhow::Context;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of a log file before it is moved aside; one older file is kept.
const FILE_MAX: u64 = 1 << 20;
/// Bytes read from one instance before the next one's turn.
const TURN: usize = 16 << 10;
/// Pause after a turn: bounds what a hostile instance can make the daemon do to about 1.6 MB/s.
const PAUSE: Duration = Duration::from_millis(10);

struct Followed {
    pipe: Arc<OwnedFd>,
    file: PathBuf,
    /// The daemon's end of the instance's doorbell: kept open so that no ring meets a closed pipe.
    _bell: OwnedFd,
}

type Table = Arc<Mutex<BTreeMap<String, Followed>>>;

/// Reads the logs of all instances, in a thread.
pub struct LogCollector {
    followed: Table,
    wake: OwnedFd,
}

impl LogCollector {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start() -> anyhow::Result<Self> {
        let followed = Table::default();
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).context("eventfd")?;
        let (table, waked) = (Arc::clone(&followed), wake.try_clone().context("eventfd")?);
        std::thread::Builder::new()
            .name("logs".to_owned())
            .spawn(move || {
                loop {
                    collect(&table, &waked);
                    std::thread::sleep(PAUSE);
                }
            })
            .context("starting the log thread")?;
        Ok(LogCollector { followed, wake })
    }

    /// Reads the log of instance `name` from `pipe` into `file`, and keeps `bell` open.
    pub fn follow(&self, name: &str, pipe: OwnedFd, file: PathBuf, bell: OwnedFd) {
        let followed = Followed {
            pipe: Arc::new(pipe),
            file,
            _bell: bell,
        };
        self.table().insert(name.to_owned(), followed);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Stops reading it.
    pub fn forget(&self, name: &str) {
        self.table().remove(name);
    }

    fn table(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn collect(table: &Table, wake: &OwnedFd) {
    let followed: Vec<(Arc<OwnedFd>, PathBuf)> = {
        let table = table.lock().unwrap_or_else(PoisonError::into_inner);
        table
            .values()
            .map(|one| (Arc::clone(&one.pipe), one.file.clone()))
            .collect()
    };
    let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
    fds.extend(
        followed
            .iter()
            .map(|(pipe, _)| PollFd::new(pipe.as_ref(), PollFlags::IN)),
    );
    if poll(&mut fds, None).is_err() {
        return;
    }
    let _ = rustix::io::read(wake, &mut [0u8; 8]);
    let ready: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
    for ((pipe, file), _) in followed.iter().zip(ready).filter(|(_, ready)| *ready) {
        let mut bytes = vec![0u8; TURN];
        let read = rustix::io::read(pipe.as_ref(), &mut bytes).unwrap_or(0);
        if let Err(error) = append(file, &bytes[..read]) {
            tracing::warn!(file = %file.display(), %error, "writing an instance's log");
        }
    }
}

fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    if file.metadata()?.len() > FILE_MAX {
        std::fs::rename(path, path.with_extension("log.1"))?;
        file = OpenOptions::new().append(true).create(true).open(path)?;
    }
    file.write_all(bytes)
}

/// Lines of a log from byte `since` on, at most the last `tail`, and the position behind them.
///
/// # Errors
/// When the file cannot be read; a file that is not there is an empty log.
pub fn read_lines(path: &Path, since: u64, tail: usize) -> io::Result<(Vec<String>, u64)> {
    let mut file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        other => other?,
    };
    let len = file.metadata()?.len();
    // Moved aside since: from the start of the new file.
    let start = if since > len { 0 } else { since };
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(2 * FILE_MAX).read_to_end(&mut bytes)?;
    let end = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let skip = lines.len().saturating_sub(tail);
    Ok((
        lines[skip..]
            .iter()
            .map(|line| (*line).to_owned())
            .collect(),
        start + end as u64,
    ))
}
