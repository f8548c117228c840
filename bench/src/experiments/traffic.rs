//! The frames that experiments send.

use nfluid_wire::build::Frame;
use nfluid_wire::ether::MacAddr;
use std::net::Ipv4Addr;

/// A UDP frame of exactly `len` bytes (64 or more): flow number `flow` of 10.0/16 -> 10.1/16.
pub fn udp_frame(len: usize, flow: u32) -> Vec<u8> {
    const HEADERS: usize = 14 + 20 + 8;
    let [_, _, high, low] = flow.to_be_bytes();
    let mut bytes = vec![0u8; len];
    let payload = vec![0x5a; len.saturating_sub(HEADERS)];
    let written = Frame::udp(
        std::net::SocketAddrV4::new(
            Ipv4Addr::new(10, 0, high, low),
            1024 + (flow % 40000) as u16,
        )
        .into(),
        std::net::SocketAddrV4::new(Ipv4Addr::new(10, 1, high, low), 53).into(),
    )
    .macs(MacAddr([2, 0, 0, 0, 1, 1]), MacAddr([2, 0, 0, 0, 1, 2]))
    .write(&mut bytes, &payload);
    debug_assert!(written.is_ok());
    bytes
}
