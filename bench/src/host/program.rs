//! Programs of the host.

use crate::CannotRun;
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Folders that a user's path may lack.
const SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A program, or the path of another file, and the Debian package that has it.
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
/// [`CannotRun`] names the packages that are missing.
pub fn need(programs: &[Need]) -> Result<(), CannotRun> {
    let missing = missing(programs);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(CannotRun(install(&missing.join(" "))))
    }
}

/// What to do about a package that is missing.
pub fn install(packages: &str) -> String {
    format!("it needs what is not installed: apt-get install --no-install-recommends {packages}")
}

/// The first program of that name; of a path, the file itself.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM.iter().map(PathBuf::from));
    folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// One of the project's programs, which are built into one folder.
///
/// # Errors
/// [`CannotRun`] when it has not been built.
pub fn beside_this_program(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    let program = own.with_file_name(name);
    if program.is_file() {
        return Ok(program);
    }
    let why = format!(
        "no {}; make it with 'cargo build --release -p {package}' or 'make build'",
        program.display()
    );
    Err(CannotRun(why).into())
}

/// Runs a command to its end; its standard output.
///
/// # Errors
/// When it cannot be started or fails; says what it said.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let line = shown(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("starting {line}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{line}: {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{find, need, output};
    use std::process::Command;

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

    #[test]
    fn a_failing_command_says_why() {
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"]));
        let error = error.expect_err("it fails").to_string();
        assert!(error.contains("why") && error.contains('3'), "{error}");
    }
}
