//! Fixture of the tests of libnfluid: programs in C, built as the guide says, and their processes.
#![allow(dead_code, reason = "each test program uses its own part")]

use nfluid_tests::harness::skip::{is_root, skip};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub fn project() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests is in the project").to_owned()
}

/// The folder with `libnfluid.so`: the one that `NFLUID_BIN_DIR` names, or the one of the running test, built if
/// missing.
pub fn library_folder() -> PathBuf {
    let named = std::env::var_os("NFLUID_BIN_DIR").map(PathBuf::from);
    let test = std::env::current_exe().expect("/proc is mounted");
    let beside = test.ancestors().nth(2).expect("target/debug/deps");
    let folders = [named.as_deref(), Some(beside)];
    let has_library = |folder: &&Path| folder.join("libnfluid.so").is_file();
    if let Some(folder) = folders.into_iter().flatten().find(has_library) {
        return folder.to_owned();
    }
    let target = beside.parent().expect("target");
    let built = Command::new("cargo")
        .args(["build", "-p", "nfluid-capi", "--target-dir"])
        .arg(target)
        .current_dir(project())
        .status();
    assert!(built.expect("cargo runs").success());
    target.join("debug")
}

/// Code blocks of one language in the guide.
pub fn blocks(guide: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    guide
        .split(&start)
        .skip(1)
        .map(|rest| rest.split("```").next().expect("a first part").to_owned())
        .collect()
}

pub fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A process is in one cgroup, and so in one private platform, at a time.
static PLATFORM: Mutex<()> = Mutex::new(());

/// A folder like the project's for the guide's commands, removed when dropped. Make the platform after it: it lets one
/// test at a time have one.
pub struct GuideCopy {
    pub folder: PathBuf,
    library: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl GuideCopy {
    /// Reports the reason and returns `None` if the test cannot run here.
    pub fn new(test: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        if Command::new("cc").arg("--version").output().is_err() {
            skip(test, "it needs a C compiler (cc)");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("nfl-{}-{test}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let copy = Self {
            folder,
            library: library_folder(),
            _turn: PLATFORM.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let examples = copy.folder.join("examples");
        std::os::unix::fs::symlink(project().join("examples"), examples).unwrap();
        Some(copy)
    }

    /// Runs a program or a script with header and library where `make install` would make them be found.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.folder)
            .env("C_INCLUDE_PATH", project().join("lib/ring/include"))
            .env("LIBRARY_PATH", &self.library)
            .env("LD_LIBRARY_PATH", &self.library);
        command
    }

    pub fn run(&self, script: &str) {
        let status = self.command("sh").args(["-e", "-c", script]).status();
        assert!(status.unwrap().success(), "{script}");
    }

    /// Compiles a program of the tests, `tests/tests/nf_in_c/NAME.c`, and returns the command that runs it.
    pub fn compiled(&self, name: &str) -> Command {
        let source = project().join(format!("tests/tests/nf_in_c/{name}.c"));
        let compile = "cc -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -o";
        self.run(&format!("{compile} {name} '{}' -lnfluid", source.display()));
        self.command(self.folder.join(name))
    }
}

impl Drop for GuideCopy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A running program, ended when dropped.
pub struct Running {
    pub child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    pub fn new(mut child: Child) -> Self {
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Running { child, output }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Waits until the program ends; returns its status and its last output.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }

    /// Asks the program to end; returns its status and its last output.
    pub fn stop(self) -> (ExitStatus, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
