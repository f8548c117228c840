//! Compiles C programs into a scratch directory: peers are built on the machine on which they run, against its
//! installed libraries.

use nfluid_testbed::CannotRun;
use nfluid_testbed::command::output;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::program::{find, install};
use std::path::PathBuf;
use std::process::Command;

/// Compiles a program in C against a library that pkg-config knows.
///
/// # Errors
/// [`CannotRun`] when the library is not installed; otherwise the compiler's error text.
pub fn program(
    directory: &ScratchDirectory,
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
    let file = directory.write(&format!("{name}.c"), source)?;
    let program = directory.path(name);
    let mut cc = Command::new(compiler);
    cc.args(["-O3", "-o"]).arg(&program).arg(&file);
    output(cc.args(flags.split_whitespace()))?;
    Ok(program)
}

/// Compiles an eBPF program with the clang that compiles the switch.
///
/// # Errors
/// [`CannotRun`] without clang; otherwise its error text.
pub fn bpf(directory: &ScratchDirectory, name: &str, source: &str) -> anyhow::Result<PathBuf> {
    let clang = std::env::var_os("NFLUID_CLANG")
        .map(PathBuf::from)
        .or_else(|| find("clang"))
        .ok_or_else(|| CannotRun(install("clang libbpf-dev")))?;
    let file = directory.write(&format!("{name}.bpf.c"), source)?;
    let object = directory.path(&format!("{name}.bpf.o"));
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(clang);
    command.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c"]);
    output(command.arg(headers).arg(&file).arg("-o").arg(&object))?;
    Ok(object)
}
