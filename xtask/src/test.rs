//! `make test`: every test of the repository, counted.
//!
//! A failing step does not keep the next from running: one run tells everything. The last line that is printed is
//! `N passed, N failed, N skipped`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::deps;
use crate::guest;
use crate::install;
use crate::instance::{self, Profile};
use crate::leftovers::Leftovers;
use crate::session::{Interrupted, Outcome, Session};
use crate::tally::{Output, Tally};

/// Captures of real traffic, beside the project; tests that need them skip without.
const CAPTURES: &str = "../shared/data/pcap";
/// Crates that must also build where there is no operating system.
const NO_STD: [&str; 3] = ["nfluid-wire", "nfluid-ring", "nfluid-nf"];

/// What to run.
#[derive(Args)]
pub struct Options {
    /// Only these steps (repeatable, or separated by commas)
    #[arg(long = "step", value_enum, value_delimiter = ',')]
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Unit, property and documentation tests of all crates; they need no root
    Unit,
    /// tests/tests: they make network namespaces and cgroups, as root
    Root,
    /// The guest_* and security_* tests inside Debian's stock kernels
    Guest,
    /// Crates without an operating system build for x86_64-unknown-none and wasm
    Targets,
    /// The ring's protocol under loom's exhaustive scheduler
    Loom,
    /// The C port library's tests, and whether what is installed is whole
    C,
}

struct Run<'a> {
    session: &'a Session,
    leftovers: Leftovers,
    /// PATH with the folder of Python programs in front.
    path: std::ffi::OsString,
    tally: Tally,
}

/// Runs the tests.
///
/// # Errors
/// Something needed cannot be installed, a test failed, or an interrupt.
pub fn run(session: &Session, options: &Options) -> Result<()> {
    let all = options.steps.is_empty();
    let wanted = Step::value_variants().iter().copied();
    let steps = wanted.filter(|step| all || options.steps.contains(step));
    deps::install(session, deps::FOR_TEST)?;
    let path = path_with(deps::install_python(session)?)?;
    let mut run = Run {
        session,
        leftovers: Leftovers::watch()?,
        path,
        tally: Tally::default(),
    };
    if !session.root.join(CAPTURES).is_dir() {
        println!("{CAPTURES} is absent: tests that need captures are skipped");
    }
    let result = run.steps(steps);
    let Run {
        leftovers, tally, ..
    } = run;
    drop(leftovers);
    let conclusion = tally.conclude();
    result?;
    Ok(conclusion?)
}

fn path_with(first: PathBuf) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(first).chain(std::env::split_paths(&path)))
        .context("the project's folder must not have a colon in its name")
}

impl Run<'_> {
    fn steps(&mut self, steps: impl Iterator<Item = Step>) -> Result<()> {
        for step in steps {
            let begun = Instant::now();
            match step {
                Step::Unit => self.unit()?,
                Step::Root => self.root()?,
                Step::Guest => guest::run_all(self.session, &mut self.tally)?,
                Step::Targets => self.targets()?,
                Step::Loom => self.loom()?,
                Step::C => {
                    self.c()?;
                    self.installed()?;
                }
            }
            if let Some(step) = step.to_possible_value() {
                println!("{}: {} s", step.get_name(), begun.elapsed().as_secs());
            }
        }
        Ok(())
    }

    fn unit(&mut self) -> Result<()> {
        let mut cargo = self
            .session
            .cargo(["test", "--workspace", "--exclude=nfluid-tests"]);
        self.counted("unit", cargo.arg("--no-fail-fast"))
    }

    /// One thread: the tests share the machine's cgroup hierarchy and count its CPU time.
    fn root(&mut self) -> Result<()> {
        if !deps::is_root() {
            self.tally
                .skipped("root: tests/tests need root, for network namespaces and cgroups");
            return Ok(());
        }
        let building = "root: building the platform";
        if !self.succeeds(building, instance::build_others)? || !self.builds_instance(building)? {
            return Ok(());
        }
        let mut cargo = self
            .session
            .cargo(["test", "-p", "nfluid-tests", "--no-fail-fast"]);
        self.counted("root", cargo.args(["--", "--test-threads=1"]))
    }

    fn targets(&mut self) -> Result<()> {
        for package in NO_STD {
            for target in deps::TARGETS {
                let what = format!("{package} builds for {target}");
                let built = self.succeeds(&what, |session| {
                    // As rlib, whatever else the crate is: a shared library needs an operating system.
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

    /// Release mode: loom tries every schedule. Its own target folder: the flag would rebuild the whole workspace.
    fn loom(&mut self) -> Result<()> {
        let models = files(&self.session.root.join("lib/ring/tests"), "rs");
        for model in models.iter().filter_map(|path| path.file_stem()?.to_str()) {
            if !model.starts_with("loom") {
                continue;
            }
            let mut cargo =
                self.session
                    .cargo(["test", "--release", "-p", "nfluid-ring", "--test", model]);
            cargo.env("RUSTFLAGS", "--cfg loom");
            cargo.env("CARGO_TARGET_DIR", self.session.target.join("loom"));
            self.counted("loom", &mut cargo)?;
        }
        Ok(())
    }

    /// Each C file in lib/ring/tests is one test: it is compiled against the header and the shared library, and passes
    /// when it ends with 0.
    fn c(&mut self) -> Result<()> {
        let tests = files(&self.session.root.join("lib/ring/tests"), "c");
        if tests.is_empty() {
            return Ok(());
        }
        if !self.succeeds("C: building libnfluid", |s| {
            s.cargo(["build", "-p", "nfluid-capi"])
        })? {
            return Ok(());
        }
        let libraries = self.session.target.join("debug");
        for test in tests {
            let program = self
                .leftovers
                .temp_dir()
                .join(test.file_stem().unwrap_or_default());
            let what = format!("C: {}", test.display());
            let compiled = self.succeeds(&what, |session| {
                let mut cc = session.command("cc");
                cc.args([
                    "-std=c11",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-g",
                    "-I",
                    "lib/ring/include",
                ]);
                cc.arg("-o")
                    .arg(&program)
                    .arg(&test)
                    .arg("-L")
                    .arg(&libraries);
                cc.args(["-lnfluid", "-lpthread"]);
                cc
            })?;
            if !compiled {
                continue;
            }
            let ran = self.succeeds(&what, |session| {
                let mut test = session.command(&program);
                test.env("LD_LIBRARY_PATH", &libraries);
                test
            })?;
            if ran {
                self.tally.passed();
            }
        }
        Ok(())
    }

    /// What `make install` puts below a DESTDIR is whole: a C test is built with what pkg-config says, linked either way,
    /// and runs. `make uninstall` leaves no file.
    fn installed(&mut self) -> Result<()> {
        let building = "install: building";
        if !self.succeeds(building, |s| {
            let programs = ["nfluid", "nfluidd", "nfluid-tls-host", "nfluid-capi"];
            let mut cargo = s.cargo(["build"]);
            cargo.args(programs.map(|program| format!("--package={program}")));
            cargo
        })? || !self.builds_instance(building)?
        {
            return Ok(());
        }
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
        // Of the two, the linker takes the static one when it is told so, and the rest as ever.
        let link = flags.replace("-lnfluid", "-l:libnfluid.a");
        let flags = if is_static { link } else { flags };
        self.session.run(cc.args(flags.split_whitespace()))?;
        let mut program = self.session.command(&program);
        if !is_static {
            program.env("LD_LIBRARY_PATH", &library);
        }
        self.session.run(&mut program)
    }

    /// Runs test programs through cargo and counts what they print.
    fn counted(&mut self, step: &str, cargo: &mut Command) -> Result<()> {
        println!("\n== {step}");
        cargo
            .env("TMPDIR", self.leftovers.temp_dir())
            .env("PATH", &self.path);
        cargo.env("NFLUID_BIN_DIR", self.session.target.join("debug"));
        let mut output = Output::default();
        let outcome = self.session.stream(cargo, None, |line| {
            output.line(line);
            println!("{line}");
        })?;
        if let Outcome::Exited(status) = outcome {
            output.end(status);
        }
        self.tally.add(step, output);
        Ok(())
    }

    /// Builds what runs in instances; a failure is counted.
    fn builds_instance(&mut self, what: &str) -> Result<bool> {
        let built = instance::build(self.session, Profile::Debug);
        self.is_ok(what, built.map(drop))
    }

    /// Runs a command that must succeed; a failure is counted.
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

    /// Whether it went well; a failure is counted.
    fn is_ok(&mut self, what: &str, result: Result<()>) -> Result<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.is::<Interrupted>() => Err(error),
            Err(error) => {
                eprintln!("xtask: {what}: {error:#}");
                self.tally.failed(what);
                Ok(false)
            }
        }
    }
}

/// A file anywhere below a folder.
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

/// Files of a folder with this extension, sorted; none where there is no folder.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == extension));
    files.sort();
    files
}
