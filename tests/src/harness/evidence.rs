//! Evidence of a failing test: one failure on a machine that is gone afterwards must be enough to find the cause.
//!
//! The daemon's logs, its journal and its records go to standard error, which the test's report shows, and whole into
//! the folder that `NFLUID_EVIDENCE_DIR` names. So do the counters of dropped frames.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of last lines of a daemon's log that are shown.
const LOG_LINES_MAX: usize = 200;
/// Largest file of the platform's state whose content is shown; of a larger file only the name is shown.
const SHOWN_BYTES_MAX: u64 = 16 * 1024;
/// Largest number of files that are examined.
const FILES_MAX: usize = 200;
/// Folders of a platform's directory with its journal, its records, and the output of its instances.
const FOLDERS: [&str; 2] = ["state", "run"];

/// Shows and keeps the logs, journal and records in a platform's directory. `logs` are the logs of its daemon, one per
/// start.
pub fn leave(directory: &Path, logs: impl Iterator<Item = PathBuf>) {
    for (number, log) in (1..).zip(logs) {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let hidden = lines.len().saturating_sub(LOG_LINES_MAX);
        eprintln!("nfluidd {number} said ({hidden} lines before these):");
        lines[hidden..]
            .iter()
            .for_each(|line| eprintln!("  {line}"));
        keep(directory, &log);
    }
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(&directory.join(folder), &mut files);
    }
    for file in files {
        show(directory, &file);
        keep(directory, &file);
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if files.len() == FILES_MAX {
            return;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(&entry.path(), files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

fn show(directory: &Path, file: &Path) {
    let name = file.strip_prefix(directory).unwrap_or(file).display();
    let bytes = fs::metadata(file).map_or(0, |about| about.len());
    match fs::read(file) {
        Ok(content) if bytes <= SHOWN_BYTES_MAX => {
            eprintln!("{name}:");
            let text = String::from_utf8_lossy(&content).into_owned();
            text.lines().for_each(|line| eprintln!("  {line}"));
        }
        Ok(_) => eprintln!("{name}: {bytes} bytes"),
        Err(error) => eprintln!("{name}: {error}"),
    }
}

/// Copies a file into the evidence folder, if one is configured.
fn keep(directory: &Path, file: &Path) {
    let Some(folder) = std::env::var_os("NFLUID_EVIDENCE_DIR") else {
        return;
    };
    let platform = Path::new(directory.file_name().unwrap_or_default());
    let inside = file.strip_prefix(directory).unwrap_or(file);
    let to = Path::new(&folder).join(platform).join(inside);
    let made = to.parent().map_or(Ok(()), fs::create_dir_all);
    if let Err(error) = made.and_then(|()| fs::copy(file, &to).map(drop)) {
        eprintln!("keeping {}: {error}", file.display());
    }
}

/// Shows which frames were dropped and where, by this command of `nfluid`, if the daemon answers.
pub fn dropped(nfluid: &mut Command) {
    let Ok(stats) = nfluid.args(["stats", "--output", "table"]).output() else {
        return;
    };
    let stats = String::from_utf8_lossy(&stats.stdout);
    let counters = stats.lines().filter(|line| line.contains("drop"));
    let is_zero = |line: &&str| line.split_whitespace().next_back() == Some("0");
    for line in counters.filter(|line| !is_zero(line)) {
        eprintln!("counted: {line}");
    }
}
