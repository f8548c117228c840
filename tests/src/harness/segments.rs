//! Datagrams that a host sends many at a time.

use super::patience::PATIENCE;
use super::within;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Numbers of datagrams of a call, and bytes of each; the last one is 7 bytes shorter.
const CALLS: [(usize, usize); 4] = [(40, 1200), (50, 300), (3, 20), (1, 900)];

/// Sends datagrams from one network namespace to `to` in the other, many by one call. The other one must get each of them.
///
/// # Panics
/// If a datagram does not arrive, or arrives changed.
pub fn datagrams_arrive(from: &Path, other: &Path, to: SocketAddr) {
    let any = match to.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let server = within(other, || UdpSocket::bind(to)).expect("bind");
    let client = within(from, || UdpSocket::bind((any, 0))).expect("bind");
    client.connect(to).expect("connect");
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    for (count, size) in CALLS {
        let byte = |at: usize| (at * 7 + at / size) as u8;
        let sent: Vec<u8> = (0..count * size - 7).map(byte).collect();
        send(&client, &sent, size as i32);
        for want in sent.chunks(size) {
            let mut got = [0; 2048];
            let (len, _) = server.recv_from(&mut got).expect("a datagram");
            assert_eq!(got[..len], *want);
        }
    }
}

/// Sends one buffer as datagrams of `size` bytes by one system call (UDP_SEGMENT, udp(7)).
fn send(socket: &UdpSocket, buffer: &[u8], size: i32) {
    // SAFETY: the option's value is live and as long as is passed.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(set, 0, "UDP_SEGMENT");
    assert_eq!(socket.send(buffer).expect("send"), buffer.len());
}
