//! The descriptors and names that the daemon hands to a terminator by environment variables.

use crate::server::{Parts, Server};
use anyhow::Context;
use nfluid_protocol::environment::{
    CERTIFICATES, CONFIG, CONNECTOR, CONNECTOR_END, CONTROL, KEY, LISTENERS, MEMORY, descriptor,
    inherited, needed, read_file,
};
use nfluid_tls::config::Config;
use nfluid_tls::key::{FILE_BYTES_MAX, Key};
use std::fs::File;
use std::os::fd::OwnedFd;

/// Longest configuration in bytes.
const CONFIG_MAX: u64 = 64 << 10;

/// Returns true if this process was started as an instance.
pub fn is_there() -> bool {
    std::env::var_os(CONFIG).is_some()
}

/// Creates the terminator from inherited descriptors and files.
///
/// # Errors
/// An inherited object is missing or invalid.
pub fn server() -> anyhow::Result<Server> {
    let text = read_file(needed(CONFIG)?, CONFIG_MAX).context("reading the configuration")?;
    let config = serde_json::from_slice(&text).context("parsing the configuration")?;
    let config =
        Config::parse(&config).map_err(|error| anyhow::anyhow!("{error} ({})", error.key))?;
    let certificates =
        read_file(needed(CERTIFICATES)?, FILE_BYTES_MAX).context("reading certificates")?;
    let key = Key::take(&mut File::from(needed(KEY)?)).context("taking the key")?;
    let listeners = std::env::var(LISTENERS).context("there is nothing to listen on")?;
    let listeners = listeners.split(',').map(descriptor);
    let memory = std::env::var(MEMORY)
        .ok()
        .and_then(|text| text.parse().ok());
    Server::new(Parts {
        config: &config,
        certificates: &certificates,
        key,
        listeners: listeners.collect::<Result<_, _>>()?,
        connector: inherited(CONNECTOR)?,
        control: inherited(CONTROL)?,
        memory_bytes: memory.unwrap_or(u64::MAX),
    })
}

/// Returns a connector's socket to its terminator.
///
/// # Errors
/// The process has inherited no such socket.
pub fn connector_end() -> anyhow::Result<OwnedFd> {
    descriptor(&CONNECTOR_END.to_string())
}
