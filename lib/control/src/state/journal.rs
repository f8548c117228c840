//! Small changes, appended to a file beside the saved state: what each costs does not depend on how large the state is.
//!
//! The first line names the state that the changes were made to, so that those of a former state are never taken for its
//! successor's. A journal that has become long is followed by another one, and made a part of the state meanwhile
//! ([`super::tidying`]). Each change is a line of JSON. It is staged with its line left open, where a full disk is noticed while
//! nothing has changed, and counts once its line is ended, in bytes that are there already.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Longest journal that is read, in bytes.
const READ_MAX: u64 = 256 << 20;

/// What the changes of a journal were made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The state of this name.
    Base(u64),
    /// The state of this name and the changes of the journal before; or the state of the other name, which is both.
    After {
        /// The first.
        state: u64,
        /// The other; 0 while there is none.
        both: u64,
    },
}

impl Head {
    /// Whether the changes were made to the state of this name, and no others before them.
    pub fn is_of(self, state: u64) -> bool {
        match self {
            Head::Base(base) => base == state,
            Head::After { both, .. } => both != 0 && both == state,
        }
    }

    /// Whether they were made after those of another journal of this state.
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

    /// Reads the line that [`Head::line`] writes.
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

/// What a journal says.
#[derive(Debug)]
pub struct Contents {
    /// What the changes were made to.
    pub head: Head,
    /// The changes that count, a line each.
    pub lines: String,
    /// Where they end in the file.
    end: u64,
}

/// The journal of one saved state.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Arc<Synced>,
    /// What has to be on the disk before any of its changes counts there.
    before: Option<(Arc<Synced>, u64)>,
    /// Bytes that count.
    end: u64,
    /// Where the line that is staged ends.
    staged: Option<u64>,
}

impl Journal {
    /// A new journal; one that lies there is overwritten.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: &Path, head: Head) -> io::Result<Self> {
        let mut file = super::private_file(path)?;
        let head = head.line();
        file.write_all(head.as_bytes())?;
        Ok(Self::of(path, file, head.len() as u64))
    }

    /// One for the changes that come after these; whose end is on the disk before any of those.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn followed(&self, path: &Path, state: u64) -> io::Result<Self> {
        let mut next = Self::create(path, Head::After { state, both: 0 })?;
        next.before = Some((Arc::clone(&self.file), self.end));
        Ok(next)
    }

    /// What a journal says; nothing if there is none. A change whose line was left open does not count.
    ///
    /// # Errors
    /// It cannot be read.
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

    /// The journal that says this, for more changes.
    ///
    /// # Errors
    /// It cannot be written.
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

    /// The changes before its own are part of a state that is on the disk: nobody waits for them any more, and their file is
    /// closed.
    pub fn forget_former(&mut self) {
        self.before = None;
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What names, in the head of one that follows another, the state that the other was made a part of.
    pub fn naming(&self) -> Naming {
        Naming(Arc::clone(&self.file))
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Writes a change down that does not count yet.
    ///
    /// # Errors
    /// It cannot be written; nothing of it is left.
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

    /// Makes the staged change count.
    ///
    /// # Errors
    /// It does not.
    pub fn commit(&mut self) -> io::Result<Durable> {
        if let Some(end) = self.staged.take() {
            self.file.file.write_all_at(b"\n", end - 1)?;
            self.end = end;
            self.file.written.store(end, Ordering::Release);
        }
        let own = (Arc::clone(&self.file), self.end);
        Ok(Durable(self.before.iter().cloned().chain([own]).collect()))
    }

    /// Forgets the staged change.
    pub fn discard(&mut self) {
        self.staged = None;
        // An open line is overwritten by the next one, and does not count.
        let _ = self.file.file.set_len(self.end);
    }

    /// Removes it: its changes are part of another state.
    pub fn remove(self) {
        // One that stays names a state that is not there any more.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// See [`Journal::naming`].
#[derive(Debug)]
pub struct Naming(Arc<Synced>);

impl Naming {
    /// Names it; on the disk when it returns.
    ///
    /// # Errors
    /// It is not.
    pub fn name(&self, state: u64, both: u64) -> io::Result<()> {
        let head = Head::After { state, both }.line();
        self.0.file.write_all_at(head.as_bytes(), 0)?;
        self.0.file.sync_data()
    }
}

/// What names a state: its text by FNV-1a (Fowler, Noll, Vo; 64 bits). It tells accidents apart, not forgeries: whoever can
/// write one of the files can write the other.
pub fn name_of(text: Option<&[u8]>) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325u64;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    text.map_or(0, |text| text.iter().fold(start, step))
}

/// A file that several threads want on the disk: one of them sees to it for all whose bytes were written by then.
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

/// A change that counts, and may have to be waited for until it would survive a power cut. Nobody else waits meanwhile.
#[derive(Debug, Default)]
#[must_use]
pub struct Durable(Vec<(Arc<Synced>, u64)>);

impl Durable {
    /// Waits until it is on the disk.
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
