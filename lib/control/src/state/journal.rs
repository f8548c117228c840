//! Small changes, appended to a file beside the saved state. The cost of a change does not depend on the size of the
//! state.
//!
//! The first line identifies the state that the changes apply to, so that changes to a former state are never applied
//! to a later one. A journal that has become long is continued in another journal, and merged into the state meanwhile
//! ([`super::tidying`]). Each change is a line of JSON. A staged change has no line end yet: a full disk is noticed
//! then, while nothing has changed. The line end commits the change, and is written into bytes that are already
//! allocated.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Maximum number of bytes of a journal that are read.
const READ_MAX: u64 = 256 << 20;

/// The state that the changes of a journal apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The state with this identifier.
    Base(u64),
    /// The state with this identifier plus the changes of the preceding journal, or the merged state, which contains
    /// both.
    After {
        /// Identifier of the state before the preceding journal.
        state: u64,
        /// Identifier of the merged state; 0 until that is known.
        both: u64,
    },
}

impl Head {
    /// Returns true if the changes apply directly to the state with this identifier.
    pub fn is_of(self, state: u64) -> bool {
        match self {
            Head::Base(base) => base == state,
            Head::After { both, .. } => both != 0 && both == state,
        }
    }

    /// Returns true if the changes follow those of another journal of this state.
    pub fn is_after(self, state: u64) -> bool {
        matches!(self, Head::After { state: after, .. } if after == state)
    }

    fn line(self) -> String {
        match self {
            Head::Base(base) => format!("{{\"base\":\"{base:016x}\"}}\n"),
            Head::After { state, both } => {
                format!("{{\"after\":\"{state:016x}\",\"then\":\"{both:016x}\"}}\n")
            }
        }
    }

    /// Parses the line that [`Head::line`] writes.
    fn parse(line: &[u8]) -> Option<Self> {
        let words: BTreeMap<String, String> = serde_json::from_slice(line).ok()?;
        let name = |key| u64::from_str_radix(words.get(key)?, 16).ok();
        match (name("base"), name("after")) {
            (Some(base), _) => Some(Head::Base(base)),
            (None, Some(state)) => Some(Head::After {
                state,
                both: name("then")?,
            }),
            (None, None) => None,
        }
    }
}

/// The contents of a journal.
#[derive(Debug)]
pub struct Contents {
    /// The state that the changes apply to.
    pub head: Head,
    /// The committed changes, one per line.
    pub lines: String,
    /// End of the committed changes in the file.
    end: u64,
}

/// The journal of one saved state.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Arc<Synced>,
    /// The preceding journal and its length. These bytes must be on the disk before a change of this journal is
    /// durable.
    before: Option<(Arc<Synced>, u64)>,
    /// Number of committed bytes.
    end: u64,
    /// End of the staged line.
    staged: Option<u64>,
}

impl Journal {
    /// Creates a new journal; an existing file is overwritten.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, head: Head) -> io::Result<Self> {
        let mut file = super::private_file(path)?;
        let head = head.line();
        file.write_all(head.as_bytes())?;
        Ok(Self::of(path, file, head.len() as u64))
    }

    /// Creates the journal for the changes that follow those of this journal. A change there is durable only when all
    /// changes here are on the disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn followed(&self, path: &Path, state: u64) -> io::Result<Self> {
        let mut next = Self::create(path, Head::After { state, both: 0 })?;
        next.before = Some((Arc::clone(&self.file), self.end));
        Ok(next)
    }

    /// Returns the contents of a journal; `None` if the file does not exist. A change without a line end is ignored.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(path: &Path) -> io::Result<Option<Contents>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        file.take(READ_MAX).read_to_end(&mut bytes)?;
        let first = bytes.iter().position(|byte| *byte == b'\n');
        let Some((at, head)) = first.and_then(|at| Some((at + 1, Head::parse(&bytes[..at])?)))
        else {
            return Ok(None);
        };
        let last = bytes.iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(last.map_or(at, |last| last + 1));
        let end = bytes.len() as u64;
        let lines = String::from_utf8(bytes.split_off(at)).map_err(io::Error::other)?;
        Ok(Some(Contents { head, lines, end }))
    }

    /// Opens the journal with these contents for more changes.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn resume(path: &Path, contents: &Contents) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        super::make_private(&file)?;
        file.set_len(contents.end)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self::of(path, file, contents.end))
    }

    fn of(path: &Path, file: File, end: u64) -> Self {
        Journal {
            path: path.to_owned(),
            end,
            file: Arc::new(Synced::of(file)),
            before: None,
            staged: None,
        }
    }

    /// Notes that the state on the disk contains the changes of the preceding journal. No thread waits for them any
    /// more, and their file is closed.
    pub fn forget_former(&mut self) {
        self.before = None;
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the handle that writes, into the head of this journal, the identifier of the state that the preceding
    /// journal was merged into.
    pub fn naming(&self) -> Naming {
        Naming(Arc::clone(&self.file))
    }

    /// Returns the length of the committed part in bytes.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Writes a change without committing it.
    ///
    /// # Errors
    /// The change cannot be written; no part of it is left.
    pub fn stage(&mut self, line: &[u8]) -> io::Result<()> {
        let mut open = line.to_vec();
        open.push(b' ');
        if let Err(error) = self.file.file.write_all_at(&open, self.end) {
            self.discard();
            return Err(error);
        }
        self.staged = Some(self.end + open.len() as u64);
        Ok(())
    }

    /// Commits the staged change.
    ///
    /// # Errors
    /// The change is not committed.
    pub fn commit(&mut self) -> io::Result<Durable> {
        if let Some(end) = self.staged.take() {
            self.file.file.write_all_at(b"\n", end - 1)?;
            self.end = end;
            self.file.written.store(end, Ordering::Release);
        }
        let own = (Arc::clone(&self.file), self.end);
        Ok(Durable(self.before.iter().cloned().chain([own]).collect()))
    }

    /// Discards the staged change.
    pub fn discard(&mut self) {
        self.staged = None;
        // The next line overwrites the open line, which is ignored until then.
        let _ = self.file.file.set_len(self.end);
    }

    /// Removes the file: its changes are part of another state.
    pub fn remove(self) {
        // A file that remains refers to a state that no longer exists.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// See [`Journal::naming`].
#[derive(Debug)]
pub struct Naming(Arc<Synced>);

impl Naming {
    /// Writes the identifiers; they are on the disk when `name` returns.
    ///
    /// # Errors
    /// The identifiers are not on the disk.
    pub fn name(&self, state: u64, both: u64) -> io::Result<()> {
        let head = Head::After { state, both }.line();
        self.0.file.write_all_at(head.as_bytes(), 0)?;
        self.0.file.sync_data()
    }
}

/// Returns the identifier of a state: the FNV-1a hash of its text (Fowler, Noll, Vo; 64 bits). The identifier detects
/// accidents, not forgeries: a user who can write one of the files can write the other as well.
pub fn name_of(text: Option<&[u8]>) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325u64;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    text.map_or(0, |text| text.iter().fold(start, step))
}

/// A file that several threads sync. One thread syncs on behalf of all threads whose bytes were written by then.
#[derive(Debug)]
struct Synced {
    file: File,
    written: AtomicU64,
    state: Mutex<SyncState>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct SyncState {
    /// Bytes that are on the disk.
    synced: u64,
    is_syncing: bool,
}

impl Synced {
    fn of(file: File) -> Self {
        Synced {
            file,
            written: AtomicU64::new(0),
            state: Mutex::default(),
            done: Condvar::new(),
        }
    }

    fn wait_for(&self, end: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.synced < end {
            if state.is_syncing {
                let waited = self.done.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_syncing = true;
            drop(state);
            let until = self.written.load(Ordering::Acquire);
            let result = self.file.sync_data();
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_syncing = false;
            self.done.notify_all();
            result?;
            state.synced = state.synced.max(until);
        }
        Ok(())
    }
}

/// A committed change. Its client can wait until the change would survive a power failure; other clients do not wait.
#[derive(Debug, Default)]
#[must_use]
pub struct Durable(Vec<(Arc<Synced>, u64)>);

impl Durable {
    /// Waits until the change is on the disk.
    ///
    /// # Errors
    /// The disk fails.
    pub fn wait(&self) -> io::Result<()> {
        self.0
            .iter()
            .try_for_each(|(file, end)| file.wait_for(*end))
    }
}

#[cfg(test)]
mod tests {
    use super::{Head, Journal, name_of};

    fn lines(path: &std::path::Path) -> String {
        Journal::read(path).unwrap().unwrap().lines
    }

    #[test]
    fn only_ended_lines_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let head = Head::Base(name_of(Some(b"state")));
        assert!(Journal::read(&path).unwrap().is_none());
        let mut journal = Journal::create(&path, head).unwrap();
        journal.stage(b"{\"a\":1}").unwrap();
        journal.commit().unwrap().wait().unwrap();
        journal.stage(b"{\"discarded\":1}").unwrap();
        journal.discard();
        journal.stage(b"{\"b\":2}").unwrap();
        journal.commit().unwrap().wait().unwrap();
        journal.stage(b"{\"open\":3}").unwrap();
        drop(journal);
        let contents = Journal::read(&path).unwrap().unwrap();
        assert_eq!(contents.head, head);
        assert_eq!(contents.lines, "{\"a\":1}\n{\"b\":2}\n");
        let mut journal = Journal::resume(&path, &contents).unwrap();
        journal.stage(b"{\"c\":4}").unwrap();
        journal.commit().unwrap().wait().unwrap();
        assert_eq!(lines(&path).lines().count(), 3);
    }

    // promise: 5.15
    #[test]
    fn one_that_follows_another_is_of_both_once_they_have_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["first", "next"].map(|name| folder.path().join(name));
        let mut first = Journal::create(&paths[0], Head::Base(7)).unwrap();
        first.stage(b"{\"a\":1}").unwrap();
        let _first = first.commit().unwrap();
        let mut next = first.followed(&paths[1], 7).unwrap();
        next.stage(b"{\"b\":2}").unwrap();
        next.commit().unwrap().wait().unwrap();
        let head = || Journal::read(&paths[1]).unwrap().unwrap().head;
        assert!(head().is_after(7) && !head().is_of(7) && !head().is_of(0));
        next.naming().name(7, 9).unwrap();
        assert!(head().is_after(7) && head().is_of(9));
        assert_eq!(lines(&paths[1]), "{\"b\":2}\n", "nothing else has changed");
    }

    #[test]
    fn what_is_no_journal_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        for text in [
            "",
            "\n",
            "{}\n",
            "{\"base\":7}\n",
            "{\"base\":\"x\"}\n{}\n",
            "{\"after\":\"7\"}\n",
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(Journal::read(&path).unwrap().is_none(), "{text}");
        }
    }

    #[test]
    fn names_tell_texts_apart() {
        // FNV-1a's own test vectors.
        assert_eq!(name_of(Some(b"")), 0xcbf2_9ce4_8422_2325);
        assert_eq!(name_of(Some(b"a")), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(name_of(None), name_of(Some(b"")));
    }
}
