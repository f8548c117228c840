//! A log that is read, line by line, while a program writes to it.

use anyhow::Context;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Reader of a log.
#[derive(Debug)]
pub struct LogReader {
    log: BufReader<File>,
    /// The incomplete last line, as far as it has been written.
    line: String,
}

impl LogReader {
    /// Opens a log at its beginning; creates the file if nothing has been written yet.
    ///
    /// # Errors
    /// When the log cannot be opened.
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

    /// Returns the next line once it is complete; a line may be written in parts. `None` if no line is complete.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn line(&mut self) -> anyhow::Result<Option<String>> {
        self.log.read_line(&mut self.line)?;
        let is_whole = self.line.ends_with('\n');
        Ok(is_whole.then(|| std::mem::take(&mut self.line)))
    }
}
