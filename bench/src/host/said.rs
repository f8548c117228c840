//! What an instance writes, line by line while it does.

use anyhow::Context;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// A log that is being read.
#[derive(Debug)]
pub struct Said {
    log: BufReader<File>,
    /// As far as it has been written.
    line: String,
}

impl Said {
    /// From its beginning; a log to which nothing was written yet is made.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn of(log: &Path) -> anyhow::Result<Self> {
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(log);
        let file = file.with_context(|| format!("opening {}", log.display()))?;
        Ok(Said {
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
