//! nfluid's driver for DPDK, built as its users build it.

use super::PACKAGES;
use anyhow::Context;
use nfluid_testbed::CannotRun;
use nfluid_testbed::command::output;
use nfluid_testbed::program::install;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the driver is.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lib/dpdk");
/// The library in it, which is built beside this program.
const LIBRARY: &str = "libnfluid.a";

/// Builds the driver beside this program.
///
/// # Errors
/// [`CannotRun`] when something that it is built of is missing.
pub fn build() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    let directory = own.parent().unwrap_or(Path::new("."));
    let library = directory.join(LIBRARY);
    if !library.exists() {
        let why = format!("{} is not there: cargo build --release", library.display());
        return Err(CannotRun(why).into());
    }
    let built = directory.join("dpdk");
    let mut make = Command::new("make");
    make.args(["-s", "-C", SOURCE]);
    make.arg(format!("BUILD={}", built.display()));
    make.arg(format!("NFLUID_LIBRARY={}", library.display()));
    if let Err(why) = output(&mut make) {
        let what = install(&format!("make {PACKAGES}"));
        return Err(CannotRun(format!(
            "building nfluid's driver for DPDK: {why:#}; {what}"
        ))
        .into());
    }
    Ok(built.join("librte_net_nfluid.so"))
}

/// Builds an example of DPDK's source, which Debian does not build, beside the driver.
///
/// # Errors
/// [`CannotRun`] when the source cannot be had, or the compiler's error text.
pub fn example(driver: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let directory = driver.with_file_name("examples");
    let program = directory.join(name).join(name);
    if program.exists() {
        return Ok(program);
    }
    let mut source = Command::new(Path::new(SOURCE).join("source"));
    source.arg(&directory).arg(format!("examples/{name}"));
    source.arg("examples/common");
    if let Err(why) = output(&mut source) {
        return Err(CannotRun(format!("DPDK's example {name}: {why:#}")).into());
    }
    // The folder's file names and the library's flags are lists of words.
    let compile = "cc -O3 -o \"$0\" \"$1\"/*.c -DALLOW_EXPERIMENTAL_API -I\"$2\" $(pkg-config --cflags --libs libdpdk)";
    let mut cc = Command::new("sh");
    cc.args(["-c", compile]).arg(&program);
    cc.arg(directory.join(name)).arg(directory.join("common"));
    output(&mut cc)?;
    Ok(program)
}

/// The EAL argument for a port of the instance that the process is; with `zero_copy`, packets lie in the port's ring.
pub fn device(index: usize, zero_copy: bool) -> String {
    let zero_copy = if zero_copy { ",zero-copy=yes" } else { "" };
    format!("net_nfluid{index},port=p{index}{zero_copy}")
}
