//! A log that is read, line by line, while a program writes to it.

use anyhow::Context;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// A log that is being read.
#[derive(Debug)]
pub struct LogReader {
    log: BufReader<File>,
    /// The line that is being written, as far as it is there.
    line: String,
}

impl LogReader {
    /// Opens a log at its beginning; makes the file if nothing was written yet.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(log: &Path) -> anyhow::Result<Self> {
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(log);
        let file = file.with_context(|| format!("opening {}", log.display()))?;
        Ok(LogReader {
            log: BufReader::new(file),
            line: String::new(),
        })
    }

    /// The next line, once it is there as a whole: it may come in parts.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn line(&mut self) -> anyhow::Result<Option<String>> {
        self.log.read_line(&mut self.line)?;
        let is_whole = self.line.ends_with('\n');
        Ok(is_whole.then(|| std::mem::take(&mut self.line)))
    }
}
