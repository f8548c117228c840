//! A folder of this run's own, and programs in C that are compiled into it: peers are built on the
//! machine that they run on, against what is installed there.

use super::program::{find, install, output};
use crate::CannotRun;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The folder; removed when dropped.
#[derive(Debug)]
pub struct Workshop(TempDir);

impl Workshop {
    /// Makes it.
    ///
    /// # Errors
    /// When the folder for temporary files cannot be written.
    pub fn new() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("nfluid-bench-").tempdir();
        folder.map(Workshop).context("making a temporary folder")
    }

    /// Makes it in memory, as `/run` is, where the host has such a file system for everybody.
    ///
    /// # Errors
    /// As [`Workshop::new`].
    pub fn in_memory() -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        if !memory.is_dir() {
            return Workshop::new();
        }
        let folder = tempfile::Builder::new()
            .prefix("nfluid-bench-")
            .tempdir_in(memory);
        folder.map(Workshop).context("making a folder in memory")
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a program in C against a library that pkg-config knows.
    ///
    /// # Errors
    /// [`CannotRun`] when the library is not installed; else what the compiler says.
    pub fn program(
        &self,
        name: &str,
        source: &str,
        library: &str,
        packages: &str,
    ) -> anyhow::Result<PathBuf> {
        let mut ask = Command::new("pkg-config");
        let flags = output(ask.args(["--cflags", "--libs", library]));
        let (Ok(flags), Some(compiler)) = (flags, find("cc")) else {
            return Err(CannotRun(install(packages)).into());
        };
        let file = self.write(&format!("{name}.c"), source)?;
        let program = self.path(name);
        let mut cc = Command::new(compiler);
        cc.args(["-O3", "-o"]).arg(&program).arg(&file);
        output(cc.args(flags.split_whitespace()))?;
        Ok(program)
    }

    /// Compiles an eBPF program with the clang that compiles the switch.
    ///
    /// # Errors
    /// [`CannotRun`] without clang; else what it says.
    pub fn bpf(&self, name: &str, source: &str) -> anyhow::Result<PathBuf> {
        let clang = std::env::var_os("NFLUID_CLANG")
            .map(PathBuf::from)
            .or_else(|| find("clang"))
            .ok_or_else(|| CannotRun(install("clang libbpf-dev")))?;
        let file = self.write(&format!("{name}.bpf.c"), source)?;
        let object = self.path(&format!("{name}.bpf.o"));
        let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        let mut command = Command::new(clang);
        command.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c"]);
        output(command.arg(headers).arg(&file).arg("-o").arg(&object))?;
        Ok(object)
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let file = self.path(name);
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        Ok(file)
    }
}

impl AsRef<Path> for Workshop {
    fn as_ref(&self) -> &Path {
        self.0.path()
    }
}
