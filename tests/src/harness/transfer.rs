//! A TCP stream between the two hosts of a platform, whose bytes are compared.

use super::patience::PATIENCE;
use super::platform::Platform;
use super::two_hosts::SERVER;
use super::within;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;

/// Sends `bytes` bytes of TCP from the client to the server and back; every byte is compared.
///
/// # Panics
/// If a connection fails, or a byte has changed.
pub fn stream(platform: &Platform, bytes: usize) {
    let to = format!("{SERVER}:7000").parse().expect("an address");
    stream_to(platform, to, bytes);
}

/// The same, to this address of the server.
///
/// # Panics
/// As [`stream`].
pub fn stream_to(platform: &Platform, to: SocketAddr, bytes: usize) {
    let hosts = ["client", "server"].map(|host| platform.host_netns(host));
    stream_between([&hosts[0], &hosts[1]], to, bytes);
}

/// The same, from one namespace to this address in another.
///
/// # Panics
/// As [`stream`].
pub fn stream_between([from, there]: [&Path; 2], to: SocketAddr, bytes: usize) {
    const BLOCK: usize = 1 << 16;
    let listener = within(there, || TcpListener::bind(to)).expect("bind");
    let connect = || TcpStream::connect_timeout(&to, PATIENCE);
    let mut client = within(from, connect).expect("connect");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let (mut server, _) = listener.accept().expect("accept");
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let block = |at: usize| -> Vec<u8> {
        (0..BLOCK)
            .map(|i| (i * 31 + at * 7 + (i >> 8)) as u8)
            .collect()
    };
    let echo = thread::spawn(move || {
        let mut got = vec![0; BLOCK];
        for at in 0..bytes / BLOCK {
            server.read_exact(&mut got).expect("the server reads");
            assert!(got == block(at), "block {at} has changed on its way");
            server.write_all(&got).expect("the server writes");
        }
    });
    let mut got = vec![0; BLOCK];
    for at in 0..bytes / BLOCK {
        client.write_all(&block(at)).expect("the client writes");
        client.read_exact(&mut got).expect("the client reads");
        assert!(got == block(at), "block {at} has changed on its way back");
    }
    echo.join().expect("the server has compared all");
}
