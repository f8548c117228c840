//! Style: formatting of Rust and C, clippy, documentation, dependency policy; the tests of the promises.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::cycles;
use crate::deps;
use crate::promises;
use crate::session::{Interrupted, Session};

/// Folders with C sources.
const C_FOLDERS: [&str; 7] = [
    "bench", "bpf", "lib/dpdk", "lib/dpi", "lib/ring", "examples", "tests",
];

/// Formats all sources, or only checks them.
///
/// # Errors
/// A formatter is missing or fails; with `check`, a file is not formatted.
pub fn format(session: &Session, check: bool) -> Result<()> {
    install(session)?;
    format_rust(session, check)?;
    format_c(session, check)
}

/// Runs all checks that need no test run: formatting, clippy, cargo-deny where it is installed. All checks run, also
/// after a failure.
///
/// # Errors
/// A check fails.
pub fn lint(session: &Session) -> Result<()> {
    install(session)?;
    let mut failed = Vec::new();
    let checks: [(&str, Check); 6] = [
        ("promises", |session| promises::check(&session.root)),
        ("cycles of modules", cycles::check),
        ("rustfmt", |session| format_rust(session, true)),
        ("clang-format", |session| format_c(session, true)),
        ("clippy", clippy),
        ("cargo-deny", dependencies),
    ];
    for (name, check) in checks {
        match check(session) {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(_) => failed.push(name),
            Ok(()) => {}
        }
    }
    if !failed.is_empty() {
        bail!(
            "{} complained; `make fmt` formats all sources",
            failed.join(", ")
        );
    }
    Ok(())
}

type Check = fn(&Session) -> Result<()>;

fn install(session: &Session) -> Result<()> {
    deps::install(session, deps::FOR_LINT)?;
    deps::install_components(session)
}

fn format_rust(session: &Session, check: bool) -> Result<()> {
    let mut cargo = session.cargo(["fmt", "--all"]);
    if check {
        cargo.arg("--check");
    }
    session.run(&mut cargo)
}

fn format_c(session: &Session, check: bool) -> Result<()> {
    let sources = c_sources(session);
    if sources.is_empty() {
        return Ok(());
    }
    let mut c = session.command("clang-format");
    c.args(if check {
        &["--dry-run", "--Werror"][..]
    } else {
        &["-i"]
    });
    session.run(c.arg("--style=file").args(sources))
}

fn clippy(session: &Session) -> Result<()> {
    let mut cargo = session.cargo(["clippy", "--workspace", "--all-targets"]);
    session.run(cargo.args(["--", "-D", "warnings"]))
}

fn dependencies(session: &Session) -> Result<()> {
    if deps::find_program("cargo-deny").is_none() {
        println!("cargo-deny is not installed: the dependency policy (deny.toml) was not checked");
        return Ok(());
    }
    session.run(&mut session.cargo(["deny", "--offline", "check", "bans", "licenses", "sources"]))
}

/// Documentation of the workspace's own crates; a broken link is an error.
///
/// # Errors
/// rustdoc warns or fails.
pub fn doc(session: &Session) -> Result<()> {
    deps::install(session, deps::FOR_BUILD)?;
    let mut cargo = session.cargo(["doc", "--workspace", "--no-deps"]);
    session.run(cargo.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Returns the paths of C sources, relative to the project's folder.
fn c_sources(session: &Session) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    for folder in C_FOLDERS {
        collect(&session.root.join(folder), &mut sources);
    }
    sources.sort();
    let relative = |path: PathBuf| {
        path.strip_prefix(&session.root)
            .map_or(path.clone(), PathBuf::from)
    };
    sources.into_iter().map(relative).collect()
}

fn collect(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder {
            collect(&path, sources);
        } else if path.extension().is_some_and(|end| end == "c" || end == "h") {
            sources.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_files_are_found_in_subfolders_and_others_are_not() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        for file in ["a/x.c", "a/b/y.h", "a/z.rs", "a/README"] {
            std::fs::write(root.path().join(file), "").unwrap();
        }
        let mut found = Vec::new();
        collect(root.path(), &mut found);
        found.sort();
        assert_eq!(
            found,
            ["a/b/y.h", "a/x.c"].map(|file| root.path().join(file))
        );
    }
}
