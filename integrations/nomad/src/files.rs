//! Paths that a task names: `/local`, `/secrets` and `/alloc` are the folders that Nomad has made for it.

use crate::protocol::drivers::TaskConfig;
use anyhow::{Context, bail, ensure};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Maximum length of a file that a configuration names, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The folders of a task.
pub struct Folders {
    alloc: PathBuf,
    task: String,
}

impl Folders {
    /// Returns the folders of a task.
    pub fn of(task: &TaskConfig) -> Self {
        Folders {
            alloc: PathBuf::from(&task.alloc_dir),
            task: task.name.clone(),
        }
    }

    /// Returns the folder that Nomad reads a task's log from.
    pub fn logs(&self) -> PathBuf {
        self.alloc.join("alloc/logs")
    }

    /// Divides a path below one of the task's folders into the folder and the rest; `None` for other paths.
    fn divide(&self, path: &str) -> Option<(PathBuf, String)> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (first, rest) = path.split_once('/').unwrap_or((path, "."));
        let folder = match first {
            "alloc" => self.alloc.join("alloc"),
            "local" | "secrets" => self.alloc.join(&self.task).join(first),
            _ => return None,
        };
        Some((folder, rest.to_owned()))
    }

    /// Returns where a path of the task is on the host; a path that is below none of its folders is returned as it is.
    ///
    /// # Errors
    /// The path leads out of the folder.
    pub fn on_host(&self, path: &str) -> anyhow::Result<String> {
        let Some((folder, rest)) = self.divide(path) else {
            return Ok(path.to_owned());
        };
        let mut parts = Path::new(&rest).components();
        let is_inside = parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        ensure!(is_inside, "'{path}' leads out of the task's folders");
        let place = folder.join(rest).components().collect::<PathBuf>();
        let place = place.into_os_string().into_string();
        place.ok().context("a path is not in UTF-8")
    }

    /// Reads a file of the task. Links that lead out of the task's folders are not followed.
    ///
    /// # Errors
    /// The file is not below the task's folders, cannot be read, or is too long.
    pub fn read(&self, path: &str) -> anyhow::Result<String> {
        let Some((folder, rest)) = self.divide(path) else {
            bail!(
                "'{path}' is not among the task's files: write 'local/...', 'secrets/...' or 'alloc/...'"
            );
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let folder = openat(
            CWD,
            &folder,
            flags | OFlags::DIRECTORY | OFlags::NOFOLLOW,
            Mode::empty(),
        );
        let folder = folder.with_context(|| format!("opening the folder of '{path}'"))?;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(&folder, &rest, flags, Mode::empty(), inside)
            .with_context(|| format!("opening '{path}'"))?;
        let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
        ensure!(kind == FileType::RegularFile, "'{path}' is no file");
        let mut text = String::new();
        let mut limited = File::from(file).take(FILE_BYTES_MAX + 1);
        limited
            .read_to_string(&mut text)
            .with_context(|| format!("reading '{path}'"))?;
        let is_short = text.len() as u64 <= FILE_BYTES_MAX;
        ensure!(
            is_short,
            "'{path}' has more than {} MiB",
            FILE_BYTES_MAX >> 20
        );
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn folders(alloc: &Path) -> Folders {
        Folders {
            alloc: alloc.to_owned(),
            task: "fw".to_owned(),
        }
    }

    #[test]
    fn a_tasks_folders_are_found_on_the_host_and_nothing_outside() {
        let folders = folders(Path::new("/n/a1"));
        for (path, place) in [
            ("/local/nf", "/n/a1/fw/local/nf"),
            ("local/x/./y", "/n/a1/fw/local/x/y"),
            ("secrets/key", "/n/a1/fw/secrets/key"),
            ("/alloc", "/n/a1/alloc"),
            ("/usr/sbin/nginx", "/usr/sbin/nginx"),
            ("/localx/nf", "/localx/nf"),
        ] {
            assert_eq!(folders.on_host(path).expect("inside"), place);
        }
        for path in ["local/../../a2", "/alloc/..", "local//etc"] {
            let found = folders.on_host(path);
            assert!(
                found.is_err() || found.is_ok_and(|found| found.starts_with("/n/a1/")),
                "{path}"
            );
        }
    }

    #[test]
    fn files_are_read_and_no_link_leads_out() {
        let alloc = tempfile::tempdir().expect("a folder");
        let local = alloc.path().join("fw/local");
        fs::create_dir_all(&local).expect("made");
        fs::write(local.join("rules"), "allow ip from any to any\n").expect("written");
        fs::write(alloc.path().join("outside"), "secret").expect("written");
        symlink("rules", local.join("inside")).expect("a link");
        symlink("../../outside", local.join("out")).expect("a link");
        symlink(alloc.path().join("outside"), local.join("far")).expect("a link");
        rustix::fs::mknodat(CWD, local.join("pipe"), FileType::Fifo, Mode::RUSR, 0)
            .expect("a pipe");
        let file = File::create(local.join("long")).expect("made");
        file.set_len(FILE_BYTES_MAX + 1).expect("long");
        let folders = folders(alloc.path());
        for good in ["local/rules", "/local/inside"] {
            assert_eq!(
                folders.read(good).expect("read"),
                "allow ip from any to any\n"
            );
        }
        for bad in [
            "local/out",
            "local/far",
            "local/../../outside",
            "local/pipe",
            "local/long",
            "local/none",
            "local",
            "/etc/passwd",
        ] {
            assert!(folders.read(bad).is_err(), "{bad}");
        }
    }
}
