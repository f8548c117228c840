//! The standard output and error of instances.
//!
//! Each instance has a named pipe, which the daemon reads into a file of bounded size. All files together have a
//! bound as well ([`LogRoom`]). An instance that writes faster, or while no daemon reads, loses lines and nothing
//! else. The files of the last [`FORMER_MAX`] ended instances stay. Files of instances on demand are removed with the
//! instance, since any stranger can cause such instances.

use crate::doorbell;
use crate::log_room::{FILE_MAX, LogRoom};
use anyhow::{Context, bail};
use nfluid_control::members::front_of;
use nfluid_control::template::AT;
use nfluid_sandbox::start_with_own_files;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes read from one instance before the next instance's turn.
const TURN: usize = 16 << 10;
/// Pause after a turn: bounds what a hostile instance can make the daemon do to about 1.6 MB/s.
const PAUSE: Duration = Duration::from_millis(10);
/// Logs that are read before the next pause. The kernel reports the others first after the pause.
const AT_ONCE: usize = 64;
/// Number of logs of ended instances that are kept.
pub const FORMER_MAX: usize = 256;
/// A number that no log has: a request waits.
const REQUESTS: u64 = 0;

struct Followed {
    file: Arc<Path>,
    /// The result of opening the pipe, once known.
    is_read: Option<Result<(), String>>,
}

/// A request to the thread.
enum Request {
    Open(u64, PathBuf),
    Close(u64),
    /// Count a file that an earlier daemon has left, with its older part.
    Adopt(PathBuf),
    /// Remove a file with its older part.
    Remove(PathBuf),
}

/// The logs that are read.
#[derive(Default)]
struct Table {
    next: u64,
    numbers: BTreeMap<String, u64>,
    followed: BTreeMap<u64, Followed>,
    requests: VecDeque<Request>,
    /// Ended instances and their files, the oldest first.
    former: VecDeque<(String, PathBuf)>,
}

impl Table {
    fn forget(&mut self, number: u64) -> Option<Arc<Path>> {
        let followed = self.followed.remove(&number);
        self.requests.push_back(Request::Close(number));
        followed.map(|followed| followed.file)
    }

    /// Keeps the file of an ended instance, in place of the oldest one that is kept.
    fn retire(&mut self, name: String, file: PathBuf) {
        if name.contains(AT) && front_of(&name).is_none() {
            return self.requests.push_back(Request::Remove(file));
        }
        self.former.retain(|(former, _)| *former != name);
        self.former.push_back((name, file));
        while self.former.len() > FORMER_MAX {
            let Some((name, file)) = self.former.pop_front() else {
                return;
            };
            // A new instance may have the name by now.
            if !self.numbers.contains_key(&name) {
                self.requests.push_back(Request::Remove(file));
            }
        }
    }
}

/// The state that the thread shares with its callers.
#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// A request was done.
    done: Condvar,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the logs of all instances in a thread with a descriptor table of its own, so that the pipes take no
/// descriptor of the daemon.
pub struct LogCollector {
    shared: Arc<Shared>,
    asked: Arc<OwnedFd>,
}

impl LogCollector {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start() -> anyhow::Result<Self> {
        let shared = Arc::<Shared>::default();
        let asked = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let asked = Arc::new(asked.context("making the log thread's bell")?);
        let theirs = Arc::clone(&shared);
        start_with_own_files("logs", Arc::clone(&asked), move |asked| {
            if let Err(error) = Reader::new(&theirs, asked).map(Reader::run) {
                tracing::error!(%error, "the logs of instances are not read");
            }
        })
        .context("starting the log thread")?;
        Ok(LogCollector { shared, asked })
    }

    /// Starts to read the log of instance `name` from `pipe`, which exists, into `file`.
    pub fn follow(&self, name: &str, pipe: PathBuf, file: PathBuf) {
        let mut table = self.shared.table();
        table.next += 1;
        let number = table.next;
        // The instance may have a log of an earlier daemon.
        table.requests.push_back(Request::Adopt(file.clone()));
        let followed = Followed {
            file: file.into(),
            is_read: None,
        };
        table.followed.insert(number, followed);
        if let Some(before) = table.numbers.insert(name.to_owned(), number) {
            table.forget(before);
        }
        table.requests.push_back(Request::Open(number, pipe));
        self.ask();
    }

    /// Waits until the log of instance `name` is read.
    ///
    /// # Errors
    /// Returns the reason why the log is not read.
    pub fn await_reading(&self, name: &str) -> anyhow::Result<()> {
        let mut table = self.shared.table();
        loop {
            let followed = table.numbers.get(name);
            let followed = followed.and_then(|number| table.followed.get(number));
            match followed.map(|followed| &followed.is_read) {
                Some(None) => {
                    let waited = self.shared.done.wait(table);
                    table = waited.unwrap_or_else(PoisonError::into_inner);
                }
                Some(Some(Err(why))) => bail!("reading its log: {why}"),
                Some(Some(Ok(()))) | None => return Ok(()),
            }
        }
    }

    /// Continues the log of `former`, which is instance `name` from now on, in `file`.
    pub fn rename(&self, former: &str, name: &str, file: PathBuf) {
        let mut table = self.shared.table();
        let Some(number) = table.numbers.remove(former) else {
            return;
        };
        if let Some(followed) = table.followed.get_mut(&number) {
            followed.file = file.into();
        }
        if let Some(before) = table.numbers.insert(name.to_owned(), number) {
            table.forget(before);
            self.ask();
        }
    }

    /// Stops reading a log.
    pub fn forget(&self, name: &str) {
        let mut table = self.shared.table();
        if let Some(number) = table.numbers.remove(name) {
            if let Some(file) = table.forget(number) {
                table.retire(name.to_owned(), file.to_path_buf());
            }
            self.ask();
        }
    }

    /// Takes over the files in `folder` of instances that an earlier daemon had and that do not exist any more.
    pub fn adopt_former(&self, folder: &Path) {
        let mut table = self.shared.table();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let name = name.strip_suffix(".log").map(str::to_owned);
            let written = entry.metadata().and_then(|it| it.modified()).ok();
            if let Some(name) = name.filter(|name| !table.numbers.contains_key(name)) {
                found.push((written, name, entry.path()));
            }
        }
        found.sort();
        for (_, name, file) in found {
            table.requests.push_back(Request::Adopt(file.clone()));
            table.retire(name, file);
        }
        self.ask();
    }

    fn ask(&self) {
        // A full eventfd is readable already.
        let _ = rustix::io::write(&*self.asked, &1u64.to_ne_bytes());
    }
}

/// The state of the thread.
struct Reader<'a> {
    shared: &'a Shared,
    asked: &'a OwnedFd,
    events: OwnedFd,
    pipes: BTreeMap<u64, OwnedFd>,
    room: LogRoom,
}

impl<'a> Reader<'a> {
    fn new(shared: &'a Shared, asked: &'a OwnedFd) -> io::Result<Self> {
        let events = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&events, asked, EventData::new_u64(REQUESTS), EventFlags::IN)?;
        Ok(Reader {
            shared,
            asked,
            events,
            pipes: BTreeMap::new(),
            room: LogRoom::default(),
        })
    }

    fn run(mut self) {
        loop {
            if self.collect() {
                self.pause();
            }
        }
    }

    /// Waits for requests and log data, handles the requests, and reads a turn of each log with data. Returns true if
    /// a log had data.
    fn collect(&mut self) -> bool {
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(REQUESTS),
        };
        let mut ready = [nothing; AT_ONCE];
        let count = epoll::wait(&self.events, &mut ready, None).unwrap_or(0);
        let mut has_read = false;
        for event in ready.iter().take(count) {
            match event.data.u64() {
                REQUESTS => self.handle_requests(),
                number => {
                    self.read(number);
                    has_read = true;
                }
            }
        }
        has_read
    }

    fn read(&mut self, number: u64) {
        let followed = self.shared.table();
        let file = followed
            .followed
            .get(&number)
            .map(|it| Arc::clone(&it.file));
        drop(followed);
        let (Some(file), Some(pipe)) = (file, self.pipes.get(&number)) else {
            return;
        };
        let mut bytes = vec![0u8; TURN];
        let read = rustix::io::read(pipe, &mut bytes).unwrap_or(0);
        match self.room.append(&file, &bytes[..read]) {
            // `LogRoom` reports this once: an instance can write at any rate.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "writing an instance's log");
            }
            Ok(()) => {}
        }
    }

    /// Reads nothing for a while, but handles requests.
    fn pause(&mut self) {
        let end = Instant::now() + PAUSE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let timeout = Timespec::try_from(left).unwrap_or_default();
            let mut asked = [PollFd::new(self.asked, PollFlags::IN)];
            if matches!(poll(&mut asked, Some(&timeout)), Ok(1..)) {
                self.handle_requests();
            }
        }
    }

    /// Handles the requests.
    fn handle_requests(&mut self) {
        let _ = rustix::io::read(self.asked, &mut [0; 8]);
        let requests = std::mem::take(&mut self.shared.table().requests);
        for request in requests {
            match request {
                Request::Close(number) => drop(self.pipes.remove(&number)),
                Request::Adopt(file) => self.room.adopt(&file),
                Request::Remove(file) => self.room.remove(&file),
                // The log was given up meanwhile.
                Request::Open(number, _) if !self.shared.table().followed.contains_key(&number) => {
                }
                Request::Open(number, path) => {
                    let opened = self.open(number, &path).map_err(|error| error.to_string());
                    if let Err(why) = &opened {
                        tracing::warn!(pipe = %path.display(), "a log is not read: {why}");
                    }
                    if let Some(followed) = self.shared.table().followed.get_mut(&number) {
                        followed.is_read = Some(opened);
                    }
                }
            }
        }
        self.shared.done.notify_all();
    }

    fn open(&mut self, number: u64, path: &Path) -> io::Result<()> {
        let pipe = doorbell::open_both(path)?;
        let data = EventData::new_u64(number);
        epoll::add(&self.events, &pipe, data, EventFlags::IN)?;
        self.pipes.insert(number, pipe);
        Ok(())
    }
}

/// Returns the lines of a log from byte `since` on, at most the last `tail`, and the position behind them.
///
/// # Errors
/// The file cannot be read. A missing file is an empty log.
pub fn read_lines(path: &Path, since: u64, tail: usize) -> io::Result<(Vec<String>, u64)> {
    let mut file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        other => other?,
    };
    let len = file.metadata()?.len();
    // The file was moved aside since: start at the beginning of the new file.
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

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 5.13
    #[test]
    fn logs_of_the_last_that_have_ended_are_kept_and_none_of_strangers() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(format!("{name}.log"));
        let names = || {
            let entries = std::fs::read_dir(folder.path()).expect("it is there");
            let names = entries.map(|entry| entry.expect("it is there").file_name());
            let names = names.map(|name| name.to_string_lossy().into_owned());
            names.collect::<std::collections::BTreeSet<String>>()
        };
        let write = |path: PathBuf, text: &str| std::fs::write(path, text).expect("room");
        for name in ["guest@10-0-0-7", "fw@r1", "here"] {
            write(file(name), "words\n");
        }
        write(folder.path().join("here.log.1"), "older\n");
        let shared = Shared::default();
        let logs = LogCollector {
            shared: Arc::new(shared),
            asked: Arc::new(eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd")),
        };
        logs.follow("here", folder.path().join("pipe"), file("here"));
        logs.adopt_former(folder.path());
        let mut reader = Reader::new(&logs.shared, &logs.asked).expect("an epoll");
        reader.handle_requests();
        assert_eq!(
            names(),
            ["fw@r1.log", "here.log", "here.log.1"]
                .map(str::to_owned)
                .into()
        );
        // This many more, so that the first one is removed.
        for number in 0..FORMER_MAX {
            let name = format!("n{number}");
            logs.follow(&name, folder.path().join("pipe"), file(&name));
            write(file(&name), "words\n");
            logs.forget(&name);
        }
        reader.handle_requests();
        let left = names();
        assert!(!left.contains("fw@r1.log") && left.contains("here.log"));
        assert_eq!(left.len(), FORMER_MAX + 2);
        // An instance that runs again is removed at its own end.
        logs.follow("n0", folder.path().join("pipe"), file("n0"));
        logs.forget("here");
        reader.handle_requests();
        assert!(names().contains("n0.log") && names().contains("here.log"));
    }
}
