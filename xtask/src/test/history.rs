//! Duration of each test in the last run, for the starting order and the estimate of the run's duration.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Seconds by the names of jobs. A missing or damaged file is an empty history.
pub struct History {
    path: PathBuf,
    seconds: BTreeMap<String, f64>,
}

impl History {
    /// The history of the runs in this target folder.
    pub fn read(target: &Path) -> Self {
        let path = target.join("test-history.json");
        let text = fs::read_to_string(&path).unwrap_or_default();
        Self {
            path,
            seconds: serde_json::from_str(&text).unwrap_or_default(),
        }
    }

    /// Returns the seconds that a job took in its last run.
    pub fn of(&self, job: &str) -> Option<f64> {
        self.seconds.get(job).copied()
    }

    /// Stores the durations of these jobs for the next run. Other jobs keep their entries.
    pub fn update(mut self, jobs: impl IntoIterator<Item = (String, f64)>) {
        self.seconds.extend(jobs);
        let text = serde_json::to_string_pretty(&self.seconds).unwrap_or_default();
        // Without the file the next run only lacks estimates: no failure of this run.
        if let Err(error) = fs::write(&self.path, text) {
            eprintln!("xtask: writing {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_knows_what_earlier_ones_took() {
        let folder = tempfile::tempdir().unwrap();
        let first = History::read(folder.path());
        assert_eq!(first.of("a"), None);
        first.update([("a".to_owned(), 1.5), ("b".to_owned(), 2.0)]);
        History::read(folder.path()).update([("a".to_owned(), 3.0)]);
        let last = History::read(folder.path());
        assert_eq!((last.of("a"), last.of("b")), (Some(3.0), Some(2.0)));
        fs::write(folder.path().join("test-history.json"), "{").unwrap();
        assert_eq!(History::read(folder.path()).of("a"), None);
    }
}
