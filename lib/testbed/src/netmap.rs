//! netmap's own programs, built from its source, which is not part of this project.

use crate::CannotRun;
use crate::command::output;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that names netmap's source.
const SOURCE: &str = "NETMAP_SOURCE";

/// netmap's source.
#[derive(Debug)]
pub struct Source(PathBuf);

impl Source {
    /// Finds it.
    ///
    /// # Errors
    /// [`CannotRun`] if the variable names no such source.
    pub fn find() -> Result<Self, CannotRun> {
        let why =
            "set NETMAP_SOURCE to netmap's source: git clone https://github.com/luigirizzo/netmap";
        let named = std::env::var_os(SOURCE).map(PathBuf::from);
        let source = named.filter(|folder| folder.join("apps/pkt-gen").is_dir());
        source.map(Self).ok_or_else(|| CannotRun(why.to_owned()))
    }

    /// Builds one of its programs, as it is, at `to`.
    ///
    /// # Errors
    /// The compiler's error text.
    pub fn build(&self, name: &str, to: &Path) -> anyhow::Result<()> {
        let mut cc = Command::new("cc");
        cc.args(["-O3", "-w", "-DNO_PCAP", "-o"]).arg(to);
        for folder in ["sys", "libnetmap", "apps/include"] {
            cc.arg("-I").arg(self.0.join(folder));
        }
        for folder in [Path::new("apps").join(name), PathBuf::from("libnetmap")] {
            cc.args(sources(&self.0.join(folder))?);
        }
        output(cc.args(["-lpthread", "-lm"])).map(drop)
    }
}

fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let reading = || format!("reading {}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        files.extend(
            path.extension()
                .is_some_and(|end| end == "c")
                .then_some(path),
        );
    }
    Ok(files)
}
