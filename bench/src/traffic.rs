//! The frames that experiments send.

use nfluid_wire::build::Frame;
use nfluid_wire::ether::MacAddr;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;

/// Bytes in which the frames of two flows differ: from the header checksum to the UDP checksum.
pub const VARYING: Range<usize> = 24..42;
/// Position of a time stamp: in the payload.
pub const STAMP: Range<usize> = 42..50;
/// Position of a number by which the receiver distinguishes frames: after the time stamp.
pub const VARIANT: Range<usize> = 50..54;
/// Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;

/// Source and destination of a flow.
pub type Flow = (SocketAddrV4, SocketAddrV4);

/// Returns a UDP frame of exactly `len` bytes (64 or more): flow number `flow` of 10.0/16 -> 10.1/16.
pub fn udp_frame(len: usize, flow: u32) -> Vec<u8> {
    let frame = flow_frame(len, &numbered(flow), [2, 0, 0, 0, 1, 2]);
    debug_assert!(frame.is_ok());
    frame.unwrap_or_else(|_| vec![0; len])
}

/// Returns flow number `flow` of 10.0/16 -> 10.1/16, port 53.
pub fn numbered(flow: u32) -> Flow {
    let [_, _, high, low] = flow.to_be_bytes();
    let port = 1024 + (flow % 40000) as u16;
    (
        SocketAddrV4::new(Ipv4Addr::new(10, 0, high, low), port),
        SocketAddrV4::new(Ipv4Addr::new(10, 1, high, low), 53),
    )
}

fn flow_frame(len: usize, flow: &Flow, to: [u8; 6]) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0u8; len];
    let payload = vec![0x5a; len.saturating_sub(HEADERS)];
    Frame::udp(flow.0.into(), flow.1.into())
        .macs(MacAddr([2, 0, 0, 0, 1, 1]), MacAddr(to))
        .write(&mut bytes, &payload)?;
    Ok(bytes)
}

/// The frames of many flows: one complete frame, and the differences of the others.
pub struct Headers {
    template: Vec<u8>,
    varying: Vec<[u8; VARYING.end - VARYING.start]>,
    next: usize,
}

impl Headers {
    /// Makes UDP frames of `len` bytes (64 or more) to the hardware address `to`.
    ///
    /// # Errors
    /// Without a flow, or when the length is not that of a frame.
    pub fn new(flows: &[Flow], to: [u8; 6], len: usize) -> anyhow::Result<Self> {
        let first = flows.first();
        let first = first.ok_or_else(|| anyhow::anyhow!("traffic without a flow"))?;
        let varying = flows.iter().map(|flow| {
            let frame = flow_frame(len, flow, to)?;
            Ok(frame[VARYING].try_into()?)
        });
        Ok(Headers {
            template: flow_frame(len, first, to)?,
            varying: varying.collect::<anyhow::Result<_>>()?,
            next: 0,
        })
    }

    /// Returns a complete frame.
    pub fn template(&self) -> &[u8] {
        &self.template
    }

    /// Returns the bytes at [`VARYING`] of the next flow, cyclically.
    pub fn next(&mut self) -> &[u8] {
        let index = self.next;
        self.next = if index + 1 == self.varying.len() {
            0
        } else {
            index + 1
        };
        &self.varying[index]
    }
}

#[cfg(test)]
mod tests {
    use super::{Headers, VARYING, flow_frame, numbered};

    #[test]
    fn a_template_with_a_flows_bytes_is_the_flows_frame() {
        let flows: Vec<_> = (0..300).map(numbered).collect();
        let to = [2, 0, 0, 0, 0, 9];
        let mut headers = Headers::new(&flows, to, 64).expect("flows");
        let mut frame = headers.template().to_vec();
        for flow in flows.iter().chain(&flows) {
            frame[VARYING].copy_from_slice(headers.next());
            assert_eq!(frame, flow_frame(64, flow, to).expect("a frame"));
        }
    }
}
