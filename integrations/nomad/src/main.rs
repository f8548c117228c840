//! The program that Nomad's agent starts.
#![forbid(unsafe_code)]

use anyhow::bail;
use clap::Parser;
use nfluid_engine::program::run;
use nfluid_nomad::serve::{COOKIE, serve};

/// A task driver for Nomad: its tasks are instances of nfluid.
///
/// Nomad's agent starts this program. Put the program into the agent's plugin_dir, and write into the agent's configuration:
///
///     plugin "nfluid-nomad" { config { socket = "/run/nfluid/nfluidd.sock" } }
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {}

fn main() -> anyhow::Result<()> {
    let Arguments {} = Arguments::parse();
    let (name, value) = COOKIE;
    if std::env::var(name).as_deref() != Ok(value) {
        bail!(
            "this program is a plugin: Nomad's agent starts it from its plugin_dir; 'nfluid-nomad --help' says more"
        );
    }
    run(serve())
}
