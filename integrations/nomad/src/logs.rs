//! Copies what an instance says to where `nomad alloc logs` reads it. Nomad's own collector, a process for each task, is not used.

use crate::files::Folders;
use crate::tasks::Task;
use nfluid_api::client::Client;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Interval of looks at the log of an instance that says something.
const OFTEN: Duration = Duration::from_millis(250);
/// Interval of looks at the log of one that does not.
const RARELY: Duration = Duration::from_secs(4);
/// Maximum length of a file in bytes, and number of files: Nomad's defaults.
const FILE_BYTES_MAX: u64 = 10 << 20;
const FILES_MAX: u64 = 10;

/// The files of a task's log.
struct Files {
    folder: PathBuf,
    task: String,
    number: u64,
    file: File,
}

impl Files {
    /// Opens the newest file.
    fn open(folder: PathBuf, task: &str) -> io::Result<Self> {
        let prefix = format!("{task}.stdout.");
        let names =
            fs::read_dir(&folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let numbers = names.filter_map(|name| name.strip_prefix(&prefix)?.parse::<u64>().ok());
        let number = numbers.max().unwrap_or(0);
        let file = append(&folder.join(format!("{prefix}{number}")))?;
        Ok(Files {
            folder,
            task: task.to_owned(),
            number,
            file,
        })
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}.stdout.{number}", self.task))
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if self.file.metadata()?.len() >= FILE_BYTES_MAX {
            self.number += 1;
            self.file = append(&self.path(self.number))?;
            if let Some(oldest) = self.number.checked_sub(FILES_MAX) {
                let _gone_already = fs::remove_file(self.path(oldest));
            }
        }
        self.file.write_all(text.as_bytes())
    }
}

/// Opens a file that is no link to another one.
fn append(path: &std::path::Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NOFOLLOW.bits();
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o644)
        .custom_flags(flags as i32)
        .open(path)
}

/// Returns the position in a log at which the next instance of this name begins.
pub async fn position(client: &Client, name: &str) -> u64 {
    client
        .logs(name, 0, Some(1))
        .await
        .map_or(0, |logs| logs.next)
}

/// Where the position is kept for a driver that starts anew, beside the files.
fn kept(task: &Task) -> PathBuf {
    Folders::of(&task.config)
        .logs()
        .join(format!(".{}.nfluid", task.config.name))
}

fn keep(task: &Task, since: u64) {
    let kept = kept(task);
    let written = fs::remove_file(&kept).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    });
    let written = written.and_then(|()| append(&kept)?.write_all(since.to_string().as_bytes()));
    if let Err(error) = written {
        tracing::warn!(task = task.config.id, %error, "keeping the position in its log");
    }
}

/// Copies the log of a task's instance until the task has ended and the log was read. `since` is the position at which the task begins; without
/// it, the position that an earlier driver has kept.
pub async fn copy(client: Client, task: std::sync::Arc<Task>, since: Option<u64>) {
    let folder = Folders::of(&task.config).logs();
    let mut files = match Files::open(folder, &task.config.name) {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(task = task.config.id, %error, "its log cannot be copied");
            return;
        }
    };
    let earlier = || fs::read_to_string(kept(&task)).ok()?.parse().ok();
    let mut since = since.or_else(earlier).unwrap_or(0);
    let mut interval = OFTEN;
    loop {
        let has_ended = task.end().is_some();
        interval = match client.logs(&task.name, since, None).await {
            Ok(logs) if logs.lines.is_empty() => RARELY.min(interval * 2),
            Ok(logs) => {
                since = logs.next;
                keep(&task, since);
                let text: String = logs.lines.iter().map(|line| format!("{line}\n")).collect();
                if let Err(error) = files.write(&text) {
                    tracing::warn!(task = task.config.id, %error, "writing its log");
                }
                OFTEN
            }
            Err(_) => RARELY,
        };
        if has_ended {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            _ = task.ended() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_of_bounded_length_and_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = "x".repeat(FILE_BYTES_MAX as usize);
        for _ in 0..FILES_MAX + 3 {
            // Each time anew, as after a restart of the driver.
            let mut files = Files::open(folder.path().to_owned(), "fw").expect("opened");
            files.write(&line).expect("written");
        }
        let names = fs::read_dir(folder.path()).expect("there");
        assert_eq!(names.count() as u64, FILES_MAX);
        let newest = folder.path().join(format!("fw.stdout.{}", FILES_MAX + 2));
        assert_eq!(fs::metadata(newest).expect("there").len(), FILE_BYTES_MAX);
    }

    #[test]
    fn a_link_is_not_written_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("target");
        std::os::unix::fs::symlink(&target, folder.path().join("fw.stdout.0")).expect("a link");
        assert!(Files::open(folder.path().to_owned(), "fw").is_err());
        assert!(!target.exists());
    }
}
