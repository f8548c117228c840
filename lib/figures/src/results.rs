//! The results folder: `EXPERIMENT.json` with figures, repetitions and environment, and a drawing
//! `PLOT.svg` for each of its plots. A run replaces what an earlier run of the same experiment left.

use crate::record::Record;
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Larger than any result: nothing else is read into memory.
const SIZE_MAX: u64 = 64 << 20;

/// A results folder.
pub struct Results(PathBuf);

impl Results {
    /// The folder; it need not exist.
    pub fn new(folder: &Path) -> Self {
        Results(folder.to_owned())
    }

    /// Writes an experiment's results and returns the names of the files.
    ///
    /// # Errors
    /// When a plot cannot be drawn or a file cannot be written.
    pub fn write(&self, record: &Record) -> anyhow::Result<Vec<String>> {
        let mut files = Vec::new();
        for plot in &record.plots {
            files.push((format!("{}.svg", plot.id), plot.svg()?));
        }
        files.push((format!("{}.json", record.experiment), json(record)?));
        for (name, text) in &files {
            self.file(name, text)?;
        }
        Ok(files.into_iter().map(|(name, _)| name).collect())
    }

    /// Writes one file and returns its path: the whole text or, where that fails, what was there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn file(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.0.join(name);
        let replace = || {
            fs::create_dir_all(&self.0)?;
            let new = tempfile::NamedTempFile::new_in(&self.0)?;
            fs::write(new.path(), text)?;
            fs::set_permissions(
                new.path(),
                std::os::unix::fs::PermissionsExt::from_mode(0o644),
            )?;
            new.persist(&path)?;
            anyhow::Ok(())
        };
        replace().with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// All results in the folder, by the names of their files.
    ///
    /// # Errors
    /// When there are none, or one of the `.json` files is not a result; names the file.
    pub fn read(&self) -> anyhow::Result<Vec<Record>> {
        let mut records = Vec::new();
        for path in self.json_files()? {
            let record = read_record(&path).with_context(|| {
                let path = path.display();
                format!(
                    "{path} is not a result of an experiment: remove it, or run its experiment again"
                )
            })?;
            records.push(record);
        }
        if records.is_empty() {
            bail!(
                "no results in {}: run experiments first ('nfluid-bench all --quick'), or name another folder with --results",
                self.0.display()
            );
        }
        Ok(records)
    }

    fn json_files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries,
        };
        let read = || -> std::io::Result<Vec<PathBuf>> {
            entries?.map(|entry| Ok(entry?.path())).collect()
        };
        let mut paths = read().with_context(|| format!("reading folder {}", self.0.display()))?;
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        paths.sort();
        Ok(paths)
    }
}

/// A record as the text of a file.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn json(record: &Record) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(record)? + "\n")
}

fn read_record(path: &Path) -> anyhow::Result<Record> {
    let file = fs::metadata(path)?;
    if !file.is_file() || file.len() > SIZE_MAX {
        bail!("it is not a file, or larger than {} MiB", SIZE_MAX >> 20);
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::Results;
    use crate::record::{Record, sample};
    use std::fs;

    fn folder() -> (tempfile::TempDir, Results) {
        let folder = tempfile::tempdir().unwrap();
        let results = Results::new(&folder.path().join("results"));
        (folder, results)
    }

    #[test]
    fn what_is_written_is_read_again_and_replaced_by_the_next_run() {
        let (folder, results) = folder();
        let files = results.write(&sample("h3")).unwrap();
        assert_eq!(files, ["h3.plot.svg", "h3.json"]);
        let svg = fs::read_to_string(folder.path().join("results/h3.plot.svg")).unwrap();
        assert!(svg.contains("<svg"));
        let again = Record {
            quick: false,
            ..sample("h3")
        };
        results.write(&again).unwrap();
        results.write(&sample("h2")).unwrap();
        let read = results.read().unwrap();
        let names: Vec<_> = read.iter().map(|r| r.experiment.as_str()).collect();
        assert_eq!(names, ["h2", "h3"]);
        assert!(read[0].quick && !read[1].quick);
        assert_eq!(read[1].figures[0].samples, [8.0, 9.0, 10.0]);
        assert!(
            read[1].figures[1].value.is_nan(),
            "a figure without a value"
        );
        assert_eq!(read[1].plots[0].series[0].points.len(), 1);
    }

    // promise: 13.6
    #[test]
    fn a_damaged_file_is_named() {
        let (folder, results) = folder();
        results.write(&sample("h3")).unwrap();
        let path = folder.path().join("results/h4.json");
        for damaged in ["", "{", "[]", "{\"experiment\": 1}", "\u{0}"] {
            fs::write(&path, damaged).unwrap();
            let error = format!("{:#}", results.read().unwrap_err());
            assert!(error.contains("results/h4.json"), "{error}");
            assert!(error.contains("run its experiment again"), "{error}");
        }
    }

    #[test]
    fn an_empty_folder_says_what_to_do() {
        let (folder, results) = folder();
        let error = results.read().unwrap_err().to_string();
        assert!(error.contains("nfluid-bench all --quick"), "{error}");
        fs::create_dir_all(folder.path().join("results")).unwrap();
        assert!(results.read().is_err());
    }
}
