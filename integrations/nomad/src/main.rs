//! The program that Nomad's agent starts.
#![forbid(unsafe_code)]

use anyhow::bail;
use clap::Parser;
use nfluid_nomad::serve::{COOKIE, serve};
use tracing_subscriber::EnvFilter;

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
    // The agent reads the log from here. A plugin outlives the agent that has started it: then nobody reads, and to say so would panic.
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false)
        .init();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(serve())
}
