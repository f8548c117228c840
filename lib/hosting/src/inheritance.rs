//! The descriptors and names that the daemon hands to an instance by environment variables.

use anyhow::Context;
use nfluid_protocol::environment::{self, inherited, read_file};
use nfluid_ring::assignment::{ASSIGNMENT_ENV, Config};
use serde_json::Value;
use std::os::fd::OwnedFd;

/// Largest configuration in bytes.
const CONFIG_MAX: u64 = 64 << 20;

/// Returns the NF's name.
pub fn nf_name() -> anyhow::Result<String> {
    let name = environment::NF;
    std::env::var(name)
        .with_context(|| format!("{name} is not set: this program is started by nfluidd"))
}

/// Returns the NF's configuration; null if there is none.
pub fn config() -> anyhow::Result<Value> {
    inherited(environment::CONFIG)?.map_or(Ok(Value::Null), parse)
}

/// Reads the configuration of an assignment.
pub fn assigned_config(config: Config) -> anyhow::Result<Value> {
    match config {
        Config::Text(text) => serde_json::from_slice(&text).context("parsing the configuration"),
        Config::File(fd) => parse(fd),
    }
}

/// Reads the configuration in a memory file.
fn parse(fd: OwnedFd) -> anyhow::Result<Value> {
    let text = read_file(fd, CONFIG_MAX).context("reading the configuration")?;
    serde_json::from_slice(&text).context("parsing the configuration")
}

/// Returns the socket on which this process waits for its assignment. `None`: the NF is known.
pub fn assignment_socket() -> anyhow::Result<Option<OwnedFd>> {
    inherited(ASSIGNMENT_ENV)
}

/// Returns the control socket, if there is one.
pub fn control_socket() -> anyhow::Result<Option<OwnedFd>> {
    inherited(environment::CONTROL)
}

/// Returns the socket to the instance whose ports this one is to take over. `None`: no process has the ports.
pub fn predecessor() -> anyhow::Result<Option<OwnedFd>> {
    inherited(environment::PREDECESSOR)
}
