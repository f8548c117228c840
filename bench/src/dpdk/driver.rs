//! nfluid's driver for DPDK, built as its users build it.

use super::PACKAGES;
use anyhow::Context;
use nfluid_testbed::CannotRun;
use nfluid_testbed::dpdk;
use nfluid_testbed::program::install;
use std::path::{Path, PathBuf};

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
    let built = dpdk::driver(&directory.join("dpdk"), &library);
    built.map_err(|why| {
        let what = install(&format!("make {PACKAGES}"));
        CannotRun(format!(
            "building nfluid's driver for DPDK: {why:#}; {what}"
        ))
        .into()
    })
}

/// Builds an example of DPDK's source beside the driver.
///
/// # Errors
/// [`CannotRun`] when it cannot be had or built.
pub fn example(driver: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let built = dpdk::example(&driver.with_file_name("examples"), name);
    built.map_err(|why| CannotRun(format!("DPDK's example {name}: {why:#}")).into())
}

/// The EAL argument for a port of the instance that the process is; with `zero_copy`, packets lie in the port's ring.
pub fn device(index: usize, zero_copy: bool) -> String {
    let zero_copy = if zero_copy { ",zero-copy=yes" } else { "" };
    format!("net_nfluid{index},port=p{index}{zero_copy}")
}
