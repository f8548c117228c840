//! nfluid's driver for DPDK, built as its users build it, and examples of DPDK's source, which Debian does not build.

use crate::command::output;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the driver is.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../dpdk");

/// Builds the driver in `folder`, with the library `libnfluid.a` at `library`.
///
/// # Errors
/// The error text of what it is built by. Where headers of drivers cannot be had, it says so.
pub fn driver(folder: &Path, library: &Path) -> anyhow::Result<PathBuf> {
    let mut make = Command::new("make");
    make.args(["-s", "-C", SOURCE]);
    make.arg(format!("BUILD={}", folder.display()));
    make.arg(format!("NFLUID_LIBRARY={}", library.display()));
    output(&mut make)?;
    Ok(folder.join("librte_net_nfluid.so"))
}

/// Builds an example in `folder`.
///
/// # Errors
/// The source cannot be had, or the compiler's error text.
pub fn example(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let program = folder
        .join(name)
        .join("build")
        .join(format!("{name}-shared"));
    if program.exists() {
        return Ok(program);
    }
    let mut source = Command::new(Path::new(SOURCE).join("source"));
    source.arg(folder).arg(format!("examples/{name}"));
    output(source.arg("examples/common"))?;
    let mut make = Command::new("make");
    make.args(["-s", "shared", "-C"]).arg(folder.join(name));
    output(&mut make)?;
    Ok(program)
}
