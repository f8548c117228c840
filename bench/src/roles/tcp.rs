//! TCP connections that carry zeros at full rate: plain ones, and ones of several subflows (RFC 8684).

use super::work::print_ready;
use anyhow::Context;
use rustix::net::sockopt::{set_socket_reuseaddr, set_tcp_congestion};
use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, listen, socket};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;

/// Bytes per call.
const CHUNK: usize = 1 << 16;
const BACKLOG: i32 = 16;

/// Makes a socket for connections of several subflows, if both ends agree; otherwise connections are plain.
///
/// # Errors
/// The kernel has no MPTCP, or it is disabled here.
pub fn multipath_socket() -> std::io::Result<OwnedFd> {
    let protocol = Some(ipproto::MPTCP);
    Ok(socket(AddressFamily::INET, SocketType::STREAM, protocol)?)
}

/// Accepts connections of both kinds at a port and reads from them, until it is killed.
pub fn sink(port: u16) -> anyhow::Result<()> {
    let socket = multipath_socket().context("a socket of several subflows")?;
    set_socket_reuseaddr(&socket, true)?;
    let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    bind(&socket, &address).with_context(|| format!("binding to port {port}"))?;
    listen(&socket, BACKLOG).context("listening")?;
    print_ready()?;
    for stream in TcpListener::from(socket).incoming() {
        let mut stream = stream.context("accepting a connection")?;
        thread::spawn(move || {
            let mut chunk = [0; CHUNK];
            while stream.read(&mut chunk).is_ok_and(|read| read > 0) {}
        });
    }
    Ok(())
}

/// Sends zeros to an address by a congestion control, until it is killed or the connection ends.
pub fn source(to: SocketAddrV4, multipath: bool, control: &str) -> anyhow::Result<()> {
    let socket = if multipath {
        multipath_socket().context("a socket of several subflows")?
    } else {
        socket(AddressFamily::INET, SocketType::STREAM, None)?
    };
    set_tcp_congestion(&socket, control)
        .with_context(|| format!("congestion control {control}"))?;
    connect(&socket, &to).with_context(|| format!("connecting to {to}"))?;
    print_ready()?;
    let mut stream = TcpStream::from(socket);
    let chunk = [0; CHUNK];
    while stream.write_all(&chunk).is_ok() {}
    Ok(())
}
