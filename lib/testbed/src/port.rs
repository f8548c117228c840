//! TCP ports of loopback.

use anyhow::Context;
use std::net::{Ipv4Addr, TcpListener};

/// Returns ports that are free now.
///
/// # Errors
/// There are none.
pub fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let mut held = Vec::new();
    for _ in 0..N {
        held.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a free port")?);
    }
    let ports = held.iter().map(|socket| Ok(socket.local_addr()?.port()));
    let ports = ports.collect::<std::io::Result<Vec<_>>>()?;
    ports.try_into().ok().context("as many ports")
}
