//! A terminator without a sandbox and without a daemon: the baseline that instances are compared with.

use crate::connector;
use crate::server::{Parts, Server};
use anyhow::Context;
use nfluid_tls::config::Config;
use nfluid_tls::identity::read_certificates;
use nfluid_tls::key::Key;
use nfluid_tls::listening;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;

/// Opens all files and sockets itself. `file` has the configuration as JSON.
///
/// # Errors
/// Names the file or socket that is missing.
pub fn server(address: SocketAddr, file: &Path) -> anyhow::Result<Server> {
    let text = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let config = serde_json::from_slice(&text).context("parsing the configuration")?;
    let config =
        Config::parse(&config).map_err(|error| anyhow::anyhow!("{error} ({})", error.key))?;
    let open = |path: &Path| File::open(path).with_context(|| path.display().to_string());
    let certificates =
        read_certificates(open(&config.certificate)?).context("reading certificates")?;
    let key = Key::read(open(&config.key)?).with_context(|| config.key.display().to_string())?;
    let connector = config.backend().map(|backend| {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        let most = config.connections(u64::MAX) as usize;
        thread::Builder::new().spawn(move || connector::run(theirs, backend, most))?;
        anyhow::Ok(ours)
    });
    Server::new(Parts {
        config: &config,
        certificates: &certificates,
        key,
        listeners: vec![listening::open(address)?],
        connector: connector.transpose().context("starting the connector")?,
        control: None,
        memory_bytes: u64::MAX,
    })
}
