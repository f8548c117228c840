//! Tests that are a build, a copy or a C program: crates without an operating system, the port library, `make install`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::Run;
use super::job::{Job, Work};
use crate::deps;
use crate::install;
use crate::session::{Interrupted, Session};

/// Crates that must also build without an operating system.
pub(super) const NO_STD: [&str; 4] = ["nfluid-wire", "nfluid-ring", "nfluid-nf", "nfluid-dataflow"];

impl Run<'_> {
    pub(super) fn targets(&mut self) -> Result<()> {
        for package in NO_STD {
            for target in deps::NO_STD_TARGETS {
                let what = format!("{package} builds for {target}");
                let built = self.succeeds(&what, |session| {
                    // Only as rlib: a shared library needs an operating system.
                    let mut cargo = session.cargo(["rustc", "--lib", "--no-default-features"]);
                    cargo.args(["--crate-type=rlib", "-p", package, "--target", target]);
                    cargo
                })?;
                if built {
                    self.tally.passed();
                }
            }
        }
        Ok(())
    }

    /// Returns a job for each C file in lib/ring/tests: the file is compiled against the header and the shared library,
    /// and passes if it exits with 0.
    pub(super) fn c(&mut self) -> Result<Vec<Job>> {
        let libraries = self.session.target.join("debug");
        let mut jobs = Vec::new();
        for test in files(&self.session.root.join("lib/ring/tests"), "c") {
            let stem = test.file_stem().unwrap_or_default();
            let program = self.leftovers.temp_dir().join(stem);
            let name = format!("libnfluid: {}", stem.display());
            let compiled = self.succeeds(&name, |session| {
                let mut cc = session.command("cc");
                cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g"]);
                cc.args(["-I", "lib/ring/include", "-o"]);
                cc.arg(&program).arg(&test).arg("-L").arg(&libraries);
                cc.args(["-lnfluid", "-lpthread"]);
                cc
            })?;
            if compiled {
                jobs.push(Job {
                    name,
                    step: "C",
                    seconds: 1.0,
                    work: Work::Plain(program, libraries.clone()),
                });
            }
        }
        Ok(jobs)
    }

    /// Checks that an installation below a DESTDIR is complete: a C test is built with pkg-config's flags, linked
    /// statically and dynamically, and runs. `make uninstall` leaves no file.
    // promise: 11.2
    pub(super) fn installed(&mut self) -> Result<()> {
        let folder = self.leftovers.temp_dir().join("installed");
        let options = install::Options::below(&folder);
        let built = self.session.target.join("debug");
        let result = install::install_built(self.session, &options, &built);
        self.counts("install: every file has its place", result)?;
        for linking in ["shared", "static"] {
            let what = format!("install: a C program with the {linking} library");
            let result = self.uses_library(&folder, linking == "static");
            self.counts(&what, result)?;
        }
        let result = install::uninstall(self.session, &options).and_then(|()| {
            let left = find_file(&folder);
            left.map_or(Ok(()), |left| bail!("{} is left", left.display()))
        });
        self.counts("install: uninstalling leaves nothing", result)
    }

    fn uses_library(&self, folder: &Path, is_static: bool) -> Result<()> {
        let library = folder.join("usr/local/lib");
        let mut query = self.session.command("pkg-config");
        query.args(["--cflags", "--libs", "libnfluid"]);
        query.args(is_static.then_some("--static"));
        query.env("PKG_CONFIG_PATH", library.join("pkgconfig"));
        let flags = self
            .session
            .output(query.env("PKG_CONFIG_SYSROOT_DIR", folder))?;
        let program = folder.with_file_name("uses-libnfluid");
        let mut cc = self.session.command("cc");
        cc.args(["-std=c11", "-o"]).arg(&program);
        cc.arg("lib/ring/tests/header.c");
        // This option makes the linker take the static library; the other options stay.
        let link = flags.replace("-lnfluid", "-l:libnfluid.a");
        let flags = if is_static { link } else { flags };
        self.session.run(cc.args(flags.split_whitespace()))?;
        let mut program = self.session.command(&program);
        if !is_static {
            program.env("LD_LIBRARY_PATH", &library);
        }
        self.session.run(&mut program)
    }

    /// Runs a command that must succeed; counts a failure.
    fn succeeds(&mut self, what: &str, command: impl FnOnce(&Session) -> Command) -> Result<bool> {
        let result = self.session.run(&mut command(self.session));
        self.is_ok(what, result)
    }

    /// Counts a check as one test.
    fn counts(&mut self, what: &str, result: Result<()>) -> Result<()> {
        if self.is_ok(what, result)? {
            self.tally.passed();
        }
        Ok(())
    }

    /// Returns true if there was no error. An error is counted as a failed test.
    fn is_ok(&mut self, what: &str, result: Result<()>) -> Result<bool> {
        Ok(self.result(what, result)?.is_some())
    }

    /// Returns the value. An error is counted as a failed test, and gives `None`.
    pub(super) fn result<T>(&mut self, what: &str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(made) => Ok(Some(made)),
            Err(error) if error.is::<Interrupted>() => Err(error),
            Err(error) => {
                eprintln!("xtask: {what}: {error:#}");
                self.tally.failed(what);
                Ok(None)
            }
        }
    }
}

/// Returns any file in or below a folder.
fn find_file(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.find_map(|path| {
        if path.is_dir() {
            find_file(&path)
        } else {
            Some(path)
        }
    })
}

/// Returns the files of a folder with this extension, sorted; none if the folder does not exist.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == extension));
    files.sort();
    files
}
