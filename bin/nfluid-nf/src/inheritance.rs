//! What the daemon hands to an instance, by environment variables that name descriptors.

use anyhow::{Context, bail};
use nfluid_ring::assignment::{ASSIGNMENT_ENV, Config};
use serde_json::Value;
use std::io::Read;
use std::os::fd::{OwnedFd, RawFd};

/// Name of the built-in NF.
pub const NF_ENV: &str = "NFLUID_NF";
/// Descriptor of a memory file with the NF's configuration in JSON.
pub const CONFIG_ENV: &str = "NFLUID_CONFIG_FD";
/// Descriptor of the listening control socket.
pub const CONTROL_ENV: &str = "NFLUID_CONTROL_FD";
/// Descriptor of a socket to the predecessor that gives up its ports.
pub const PREDECESSOR_ENV: &str = "NFLUID_PREDECESSOR_FD";

/// Largest configuration in bytes.
const CONFIG_MAX: u64 = 64 << 20;

/// The NF's name.
pub fn nf_name() -> anyhow::Result<String> {
    std::env::var(NF_ENV)
        .with_context(|| format!("{NF_ENV} is not set: this program is started by nfluidd"))
}

/// The NF's configuration; null if there is none.
pub fn config() -> anyhow::Result<Value> {
    inherited(CONFIG_ENV)?.map_or(Ok(Value::Null), parse)
}

/// The configuration that a process is told.
pub fn told(config: Config) -> anyhow::Result<Value> {
    match config {
        Config::Text(text) => serde_json::from_slice(&text).context("parsing the configuration"),
        Config::File(fd) => parse(fd),
    }
}

/// The configuration in a memory file.
fn parse(fd: OwnedFd) -> anyhow::Result<Value> {
    let mut text = String::new();
    let read = std::fs::File::from(fd)
        .take(CONFIG_MAX + 1)
        .read_to_string(&mut text);
    let read = read.context("reading the configuration")?;
    if read as u64 > CONFIG_MAX {
        bail!("the configuration is longer than {CONFIG_MAX} bytes");
    }
    serde_json::from_str(&text).context("parsing the configuration")
}

/// The socket on which this process is told what to be; absent: it knows.
pub fn assignment_socket() -> anyhow::Result<Option<OwnedFd>> {
    inherited(ASSIGNMENT_ENV)
}

/// The control socket, if there is one.
pub fn control_socket() -> anyhow::Result<Option<OwnedFd>> {
    inherited(CONTROL_ENV)
}

/// The way to the instance whose ports this one is to take over; absent: nobody has them.
pub fn predecessor() -> anyhow::Result<Option<OwnedFd>> {
    inherited(PREDECESSOR_ENV)
}

/// The descriptor that an environment variable names.
fn inherited(variable: &str) -> anyhow::Result<Option<OwnedFd>> {
    let Ok(text) = std::env::var(variable) else {
        return Ok(None);
    };
    let number: RawFd = text
        .parse()
        .with_context(|| format!("{variable} is not a descriptor"))?;
    nfluid_ring::attach::inherited(number)
        .map(Some)
        .with_context(|| format!("{variable}={number}"))
}
