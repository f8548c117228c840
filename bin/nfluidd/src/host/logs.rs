//! What instances write to their standard output and error.
//!
//! Each has a named pipe, which the daemon reads into a file of bounded size. An instance that
//! writes faster than that, or while no daemon reads, loses lines and nothing else.

use anyhow::Context;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of a log file before it is moved aside; one older file is kept.
const FILE_MAX: u64 = 1 << 20;
/// Bytes read from one instance before the next one's turn.
const TURN: usize = 16 << 10;
/// Pause after a turn: bounds what a hostile instance can make the daemon do to about 1.6 MB/s.
const PAUSE: Duration = Duration::from_millis(10);
/// Logs that are read before the next pause; the kernel tells the others first after it.
const AT_ONCE: usize = 64;

struct Followed {
    file: PathBuf,
    ends: Arc<Ends>,
}

/// The daemon's ends of an instance's pipes.
struct Ends {
    log: OwnedFd,
    /// Kept open so that no ring meets a closed pipe.
    _bell: OwnedFd,
}

/// Who is followed.
#[derive(Default)]
struct Table {
    next: u64,
    numbers: BTreeMap<String, u64>,
    followed: BTreeMap<u64, Arc<Followed>>,
}

/// Reads the logs of all instances, in a thread.
pub struct LogCollector {
    table: Arc<Mutex<Table>>,
    events: Arc<OwnedFd>,
}

impl LogCollector {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start() -> anyhow::Result<Self> {
        let table = Arc::<Mutex<Table>>::default();
        let events = epoll::create(CreateFlags::CLOEXEC).context("waiting for logs")?;
        let events = Arc::new(events);
        let (read, readable) = (Arc::clone(&table), Arc::clone(&events));
        std::thread::Builder::new()
            .name("logs".to_owned())
            .spawn(move || {
                loop {
                    collect(&read, &readable);
                    std::thread::sleep(PAUSE);
                }
            })
            .context("starting the log thread")?;
        Ok(LogCollector { table, events })
    }

    /// Reads the log of instance `name` from `pipe` into `file`, and keeps `bell` open.
    pub fn follow(&self, name: &str, pipe: OwnedFd, file: PathBuf, bell: OwnedFd) {
        let ends = Arc::new(Ends {
            log: pipe,
            _bell: bell,
        });
        let followed = Followed { file, ends };
        let mut table = locked(&self.table);
        table.next += 1;
        let number = table.next;
        let data = EventData::new_u64(number);
        if let Err(error) = epoll::add(&*self.events, &followed.ends.log, data, EventFlags::IN) {
            tracing::warn!(instance = name, %error, "its log is not read");
        }
        if let Some(before) = table.numbers.insert(name.to_owned(), number) {
            table.followed.remove(&before);
        }
        table.followed.insert(number, Arc::new(followed));
    }

    /// Goes on reading what was the log of `former`, which is instance `name` from now on, into `file`.
    pub fn rename(&self, former: &str, name: &str, file: PathBuf) {
        let mut table = locked(&self.table);
        let Some(number) = table.numbers.remove(former) else {
            return;
        };
        if let Some(followed) = table.followed.get_mut(&number) {
            *followed = Arc::new(Followed {
                file,
                ends: Arc::clone(&followed.ends),
            });
        }
        if let Some(before) = table.numbers.insert(name.to_owned(), number) {
            table.followed.remove(&before);
        }
    }

    /// Stops reading it.
    pub fn forget(&self, name: &str) {
        let mut table = locked(&self.table);
        if let Some(number) = table.numbers.remove(name) {
            table.followed.remove(&number);
        }
    }
}

fn locked(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until some have written something, and reads a turn of each.
fn collect(table: &Mutex<Table>, events: &OwnedFd) {
    let nothing = Event {
        flags: EventFlags::empty(),
        data: EventData::new_u64(0),
    };
    let mut ready = [nothing; AT_ONCE];
    let count = epoll::wait(events, &mut ready, None).unwrap_or(0);
    for event in ready.iter().take(count) {
        let Some(followed) = locked(table)
            .followed
            .get(&event.data.u64())
            .map(Arc::clone)
        else {
            continue;
        };
        let mut bytes = vec![0u8; TURN];
        let read = rustix::io::read(&followed.ends.log, &mut bytes).unwrap_or(0);
        let file = &followed.file;
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
