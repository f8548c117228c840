//! Paths of programs: those of the host, and those of this workspace.

use crate::CannotRun;
use anyhow::ensure;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that a user's `PATH` may lack.
const SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A program, or the path of another file, and the Debian package that contains it.
pub type Need = (&'static str, &'static str);

/// Returns the Debian packages of the programs that are not installed, each package once.
pub fn missing<'a>(needs: impl IntoIterator<Item = &'a Need>) -> Vec<&'static str> {
    let absent = needs
        .into_iter()
        .filter(|(program, _)| find(program).is_none());
    let packages: BTreeSet<_> = absent.map(|(_, package)| *package).collect();
    packages.into_iter().collect()
}

/// Checks that all programs are installed.
///
/// # Errors
/// [`CannotRun`] with the names of the missing packages.
pub fn need(programs: &[Need]) -> Result<(), CannotRun> {
    let missing = missing(programs);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(CannotRun(install(&missing.join(" "))))
    }
}

/// Copies a program, by a process of its own: what this process had open for writing could be inherited by a child that another thread starts,
/// and could not be executed then (ETXTBSY).
///
/// # Errors
/// `cp` cannot copy the program.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = Command::new("cp").arg(from).arg(to).status()?;
    ensure!(
        copied.success(),
        "copying {} to {}",
        from.display(),
        to.display()
    );
    Ok(())
}

/// Returns the instruction that installs missing packages.
pub fn install(packages: &str) -> String {
    format!("it needs what is not installed: apt-get install --no-install-recommends {packages}")
}

/// Returns the first program of that name in `PATH` and the system folders; for a path, the file itself.
pub fn find(name: &str) -> Option<PathBuf> {
    find_all(name).into_iter().next()
}

/// Returns all programs of that name in `PATH` and the system folders.
pub fn find_all(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM.iter().map(PathBuf::from));
    let files = folders.map(|folder| folder.join(name));
    files.filter(|file| file.is_file()).collect()
}

/// Folder of guest images within that of all build results.
const GUESTS: &str = "guests/x86_64-unknown-none/guest";

/// Finds a program of this workspace: in the folder `NFLUID_BIN_DIR`, or beside the running program. Tests are in
/// `target/debug/deps`, programs in `target/debug`.
pub fn find_built(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os("NFLUID_BIN_DIR").map(PathBuf::from);
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.ancestors().skip(1).take(2).map(Path::to_owned);
    let mut files = named.into_iter().chain(beside).map(|it| it.join(name));
    files.find(|file| file.is_file())
}

/// As [`find_built`], of `package`.
///
/// # Errors
/// [`CannotRun`] when the program has not been built.
pub fn built(name: &str, package: &str) -> Result<PathBuf, CannotRun> {
    find_built(name).ok_or_else(|| {
        let own = std::env::current_exe().unwrap_or_default();
        CannotRun(format!(
            "no {}; make it with 'cargo build --release -p {package}' or 'make build'",
            own.with_file_name(name).display()
        ))
    })
}

/// Finds a guest image that was built with nfluid's monitor, in the folder of all guests beside the programs' folder.
pub fn find_guest_image(name: &str) -> Option<PathBuf> {
    let monitor = find_built("nfluid-vmm")?;
    let image = monitor.parent()?.parent()?.join(GUESTS).join(name);
    image.is_file().then_some(image)
}

#[cfg(test)]
mod tests {
    use super::{find, need};

    // promise: 13.2
    #[test]
    fn what_is_missing_is_named_once_with_its_package() {
        assert!(find("sh").is_some());
        assert!(need(&[("sh", "dash")]).is_ok());
        let programs = [
            ("no-such-a", "pack"),
            ("no-such-b", "pack"),
            ("/no/such/file", "other"),
            ("sh", "dash"),
        ];
        let error = need(&programs).expect_err("they are missing").to_string();
        assert!(error.ends_with("recommends other pack"), "{error}");
    }
}
