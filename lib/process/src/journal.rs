//! The log of a process: lines wait in memory until the daemon takes them.
//!
//! A pipe or file would need a process that reads or cuts it, or it would stop the process one day.

use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that are kept until they are taken; the oldest lines give way.
const LINES_MAX: usize = 256;
/// Longer lines are cut.
const LINE_MAX: usize = 2048;

/// The log.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lines: Mutex<VecDeque<(Level, String)>>,
    /// Readable when there are lines.
    fresh: OwnedFd,
}

impl Journal {
    /// An empty one.
    ///
    /// # Errors
    /// When the kernel has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Journal(Arc::new(Inner {
            lines: Mutex::default(),
            fresh: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })))
    }

    fn push(&self, level: Level, text: &str) {
        let mut lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        let mut end = text.len().min(LINE_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        lines.push_back((level, text[..end].trim_end().to_owned()));
        drop(lines);
        // The write can only fail when the counter is readable already.
        let _readable = rustix::io::write(&self.0.fresh, &1u64.to_ne_bytes());
    }

    /// Takes all lines, the oldest first.
    pub fn take(&self) -> Vec<(Level, String)> {
        let _none = rustix::io::read(&self.0.fresh, &mut [0u8; 8]);
        let mut lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.drain(..).collect()
    }
}

/// Readable when there are lines to take.
impl AsFd for Journal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fresh.as_fd()
    }
}

/// A line on its way into the journal.
#[derive(Debug)]
pub struct Line {
    journal: Journal,
    level: Level,
}

impl io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.journal
            .push(self.level, &String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Journal {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line {
            journal: self.clone(),
            level: Level::INFO,
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line {
        Line {
            journal: self.clone(),
            level: *metadata.level(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_is_not_read_does_not_grow() {
        let journal = Journal::new().unwrap();
        for number in 0..LINES_MAX + 5 {
            journal.push(Level::INFO, &format!("{number}\n"));
        }
        journal.push(Level::WARN, &"é".repeat(LINE_MAX));
        let lines = journal.take();
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(lines[0], (Level::INFO, "6".to_owned()));
        let (level, last) = lines.last().unwrap();
        assert_eq!((*level, last.len()), (Level::WARN, LINE_MAX));
        assert!(journal.take().is_empty());
    }
}
