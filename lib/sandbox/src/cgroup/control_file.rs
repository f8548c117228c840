//! Reading and writing the small text files of the cgroup file system.

use super::CgroupError;
use crate::error::{Errno, OsError};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

/// The largest file that is read: `memory.stat` is 2 KiB, `cgroup.procs` 8 bytes per process.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Returns the remedy for an errno that the cgroup file system gives for a known reason.
fn remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            "nfluid needs root, and the cgroup file system mounted writable"
        }
        Errno::BUSY => {
            "a cgroup with processes of its own cannot hand controllers to children: move them into a leaf, or give \
             nfluid a cgroup of its own"
        }
        Errno::OPNOTSUPP => {
            "the cgroup is `threaded` or `domain invalid`: see its cgroup.type; place nfluid in a domain cgroup"
        }
        Errno::AGAIN | Errno::NOSPC => {
            "a limit of a cgroup above is reached: cgroup.max.descendants, cgroup.max.depth or pids.max"
        }
        _ => "",
    }
}

/// An error of `operation` on `path`.
pub(super) fn failed(operation: &'static str, path: &Path, error: &std::io::Error) -> CgroupError {
    let error = OsError::from_io(operation, path.display(), error);
    let remedy = remedy(error.errno);
    error.remedy(remedy).into()
}

/// Writes `value` in one write, as the kernel's parsers expect.
pub(super) fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    let written = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(|error| {
        let error = OsError::from_io("write", format!("{value} to {}", path.display()), &error);
        let remedy = remedy(error.errno);
        error.remedy(remedy).into()
    })
}

/// Reads the whole file.
pub(super) fn read(path: &Path) -> Result<String, CgroupError> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| failed("read", path, &error))?;
    Ok(text)
}

/// Reads the file, or nothing when it does not exist (an older kernel, a controller that is off).
pub(super) fn read_optional(path: &Path) -> Result<Option<String>, CgroupError> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(CgroupError::Os(error)) if error.errno == Errno::NOENT => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a file that holds one number. `max` is [`u64::MAX`].
pub(super) fn read_number(path: &Path) -> Result<u64, CgroupError> {
    let text = read(path)?;
    number(&text).ok_or_else(|| unexpected(path, &text))
}

/// The value of `key` in a file of `key value` lines; nothing if there is no such key.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(found, _)| *found == key)
        .and_then(|(_, value)| number(value))
}

fn number(text: &str) -> Option<u64> {
    match text.trim() {
        "max" => Some(u64::MAX),
        text => text.parse().ok(),
    }
}

fn unexpected(path: &Path, content: &str) -> CgroupError {
    CgroupError::Unexpected {
        path: path.to_owned(),
        content: content.chars().take(80).collect(),
    }
}

/// Writes a setting that not every kernel or configuration has.
pub(super) fn write_if_present(path: &Path, value: &str) -> Result<(), CgroupError> {
    match write(path, value) {
        Err(CgroupError::Os(error)) if error.errno == Errno::NOENT => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_files_are_read_by_whole_keys() {
        let text = "usage_usec 12\nuser_usec 7\nnr_throttled max\nbad\noom 3\noom_kill 4\n";
        assert_eq!(keyed(text, "usage_usec"), Some(12));
        assert_eq!(keyed(text, "oom_kill"), Some(4));
        assert_eq!(keyed(text, "nr_throttled"), Some(u64::MAX));
        assert_eq!(keyed(text, "usec"), None);
        assert_eq!(keyed(text, "bad"), None);
    }

    #[test]
    fn errors_name_the_value_and_the_file() {
        let path = Path::new("/nonexistent/cpu.max");
        let text = write(path, "1000 10000")
            .expect_err("no such file")
            .to_string();
        assert!(text.contains("/nonexistent/cpu.max") && text.contains("1000 10000"));
        assert!(
            read_optional(path)
                .expect("absent is not an error")
                .is_none()
        );
    }
}
