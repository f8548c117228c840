//! A moving window on a file: enough of it in memory to hold one record, and its place in the file.

use std::io::{self, Read};

use super::{Flaw, RECORD_MAX};

/// Bytes read from the file at once.
const CHUNK: usize = 1 << 17;

/// The window. Bytes before `start` have been taken, those up to `end` have been read.
#[derive(Debug)]
pub(super) struct Window<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Place in the file of `buffer[start]`.
    offset: u64,
    /// Length of the record last taken, which ends at `start`.
    last: usize,
}

impl<R: Read> Window<R> {
    pub(super) fn new(source: R) -> Self {
        Window {
            source,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            offset: 0,
            last: 0,
        }
    }

    /// Place in the file of the next byte to be taken.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next `count` bytes, or all that are left if these are fewer.
    pub(super) fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        if self.end - self.start < count {
            self.fill(count)?;
        }
        let available = count.min(self.end - self.start);
        Ok(&self.buffer[self.start..self.start + available])
    }

    /// The next `count` bytes as a whole record part.
    pub(super) fn need(&mut self, count: usize, what: &str) -> Result<&[u8], Flaw> {
        if count > 2 * RECORD_MAX {
            return Err(format!("{what} of {count} bytes is longer than any record"));
        }
        let bytes = self.peek(count).map_err(|cause| cause.to_string())?;
        if bytes.len() < count {
            return Err(format!(
                "cut off: {what} needs {count} bytes, {} are left",
                bytes.len()
            ));
        }
        Ok(bytes)
    }

    /// Takes the next `count` bytes, which must have been peeked at.
    pub(super) fn take(&mut self, count: usize) {
        self.start += count;
        self.offset += count as u64;
        self.last = count;
    }

    /// The bytes last taken.
    pub(super) fn last(&self) -> &[u8] {
        &self.buffer[self.start - self.last..self.start]
    }

    fn fill(&mut self, count: usize) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        self.last = 0;
        if self.buffer.len() < count {
            self.buffer.resize(count.max(CHUNK), 0);
        }
        while self.end < count {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
