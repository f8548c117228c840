//! Small changes, appended to a file beside the saved state: what each costs does not depend on how large the state is.
//!
//! The first line names the state that the changes were made to, so that those of a former state are never taken for its
//! successor's. Each change is a line of JSON. It is staged with its line left open, where a full disk is noticed while
//! nothing has changed, and counts once its line is ended, in bytes that are there already.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Longest journal that is read, in bytes.
const READ_MAX: u64 = 256 << 20;

/// The journal of one saved state.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Arc<Synced>,
    /// Bytes that count.
    end: u64,
    /// Where the line that is staged ends.
    staged: Option<u64>,
}

impl Journal {
    /// A new journal of the state `base`; one that lies there is overwritten.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: &Path, base: u64) -> io::Result<Self> {
        let mut file = File::create(path)?;
        let head = head(base);
        file.write_all(head.as_bytes())?;
        Ok(Journal {
            path: path.to_owned(),
            end: head.len() as u64,
            file: Arc::new(Synced::of(file)),
            staged: None,
        })
    }

    /// The journal of the state `base` and its changes; nothing if there is none. A change whose line was left open does
    /// not count.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path, base: u64) -> io::Result<Option<(Self, String)>> {
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        (&mut file).take(READ_MAX).read_to_end(&mut bytes)?;
        let Some(lines) = bytes.strip_prefix(head(base).as_bytes()) else {
            return Ok(None);
        };
        let last = lines.iter().rposition(|byte| *byte == b'\n');
        let lines = lines
            .get(..last.map_or(0, |last| last + 1))
            .unwrap_or_default();
        let text = String::from_utf8(lines.to_vec()).map_err(io::Error::other)?;
        let end = (head(base).len() + lines.len()) as u64;
        file.set_len(end)?;
        file.seek(SeekFrom::End(0))?;
        let journal = Journal {
            path: path.to_owned(),
            end,
            file: Arc::new(Synced::of(file)),
            staged: None,
        };
        Ok(Some((journal, text)))
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
        Ok(Durable(Some((Arc::clone(&self.file), self.end))))
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

fn head(base: u64) -> String {
    format!("{{\"base\":\"{base:016x}\"}}\n")
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
pub struct Durable(Option<(Arc<Synced>, u64)>);

impl Durable {
    /// Waits until it is on the disk.
    ///
    /// # Errors
    /// The disk fails.
    pub fn wait(&self) -> io::Result<()> {
        match &self.0 {
            Some((file, end)) => file.wait_for(*end),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Journal, name_of};

    #[test]
    fn only_ended_lines_of_the_same_state_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let base = name_of(Some(b"state"));
        let mut journal = Journal::create(&path, base).unwrap();
        journal.stage(b"{\"a\":1}").unwrap();
        journal.commit().unwrap().wait().unwrap();
        journal.stage(b"{\"discarded\":1}").unwrap();
        journal.discard();
        journal.stage(b"{\"b\":2}").unwrap();
        journal.commit().unwrap().wait().unwrap();
        journal.stage(b"{\"open\":3}").unwrap();
        drop(journal);
        assert!(
            Journal::open(&path, name_of(Some(b"other")))
                .unwrap()
                .is_none()
        );
        let (mut journal, lines) = Journal::open(&path, base).unwrap().unwrap();
        assert_eq!(lines, "{\"a\":1}\n{\"b\":2}\n");
        journal.stage(b"{\"c\":4}").unwrap();
        journal.commit().unwrap().wait().unwrap();
        let (_, lines) = Journal::open(&path, base).unwrap().unwrap();
        assert_eq!(lines.lines().count(), 3);
    }

    #[test]
    fn names_tell_texts_apart() {
        // FNV-1a's own test vectors.
        assert_eq!(name_of(Some(b"")), 0xcbf2_9ce4_8422_2325);
        assert_eq!(name_of(Some(b"a")), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(name_of(None), name_of(Some(b"")));
    }
}
