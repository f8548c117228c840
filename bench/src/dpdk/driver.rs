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

/// Builds the driver beside this program, for DPDK loads none from a directory below one that everybody may write to.
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

/// The EAL argument for a port of the instance that the process is.
pub fn device(index: usize) -> String {
    format!("net_nfluid{index},port=p{index}")
}
