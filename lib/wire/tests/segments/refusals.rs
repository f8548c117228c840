//! Metadata that is not about the headers.

use super::super_frame::SuperFrame;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::segment::{self, PartialChecksum, SegmentKind, Segmentation, Segments};
use nfluid_wire::{ParseError, TcpFlags};
use std::net::SocketAddr;

fn tcp() -> SuperFrame {
    SuperFrame::tcp("10.0.0.1:1", "10.0.0.2:2", TcpFlags::ACK, 300, 100)
}

fn refused(frame: &[u8], start: usize, cut: Segmentation) -> bool {
    Segments::cut(frame, start, cut).is_err()
}

/// Catches: headers that would be cut at the wrong place, or a checksum that is written over another field.
#[test]
fn metadata_of_other_headers_are_refused() {
    let (frame, (start, cut)) = (tcp().bytes(), tcp().metadata());
    assert!(!refused(&frame, start, cut), "the right one");
    for other in [start - 4, start + 4, 14, 0, usize::MAX] {
        assert!(refused(&frame, other, cut), "start {other}");
    }
    for header_len in [cut.header_len - 4, cut.header_len + 4, 0, frame.len() + 1] {
        assert!(refused(&frame, start, Segmentation { header_len, ..cut }));
    }
    for kind in [SegmentKind::TcpV6, SegmentKind::Udp] {
        assert!(refused(&frame, start, Segmentation { kind, ..cut }));
    }
    let none = Segmentation {
        payload_len: 0,
        ..cut
    };
    assert!(refused(&frame, start, none), "packets without payload");
}

/// Catches: a length field that is trusted, or that later fields are made of.
#[test]
fn lengths_that_are_not_the_frames_are_refused() {
    let (start, cut) = tcp().metadata();
    for change in [-1_i32, 1, -300] {
        let mut frame = tcp().bytes();
        let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
        packet.set_total_len((i32::from(packet.total_len()) + change) as u16);
        packet.fill_checksum();
        assert!(refused(&frame, start, cut), "{change}");
    }
    let mut longer = tcp().bytes();
    longer.push(0);
    assert!(refused(&longer, start, cut), "bytes behind the packet");
    let udp = SuperFrame {
        is_tcp: false,
        ..tcp()
    };
    let (start, cut) = udp.metadata();
    assert!(!refused(&udp.bytes(), start, cut));
    let mut shorter = udp.bytes();
    shorter[start + 5] -= 1;
    assert!(refused(&shorter, start, cut), "UDP length");
}

#[test]
fn a_fragment_is_no_super_frame() {
    let (start, cut) = tcp().metadata();
    for (more, offset) in [(true, 0), (false, 64)] {
        let mut frame = tcp().bytes();
        let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
        packet.set_fragmentation(false, more, offset);
        packet.fill_checksum();
        assert!(refused(&frame, start, cut));
    }
}

/// Catches: an attack: the checksum of a frame that has passed a firewall is written over an address or a port.
#[test]
fn a_checksum_elsewhere_is_not_the_packets_own() {
    let udp = SuperFrame {
        is_tcp: false,
        ..tcp()
    };
    let is_own = |frame: &SuperFrame, start, offset| {
        let checksum = PartialChecksum { start, offset };
        segment::check(&frame.bytes(), checksum, None).is_ok()
    };
    assert!(is_own(&tcp(), 34, 16) && is_own(&udp, 34, 6));
    assert!(!is_own(&tcp(), 34, 6) && !is_own(&udp, 34, 16));
    assert!(!is_own(&tcp(), 14, 16), "over the destination address");
    assert!(!is_own(&tcp(), 20, 16), "over the destination port");
    assert!(!is_own(&tcp(), 62, 16), "in the payload");
    let mut echo = tcp().bytes();
    echo[23] = 1;
    let checksum = PartialChecksum {
        start: 34,
        offset: 16,
    };
    let refused = segment::check(&echo, checksum, None);
    assert_eq!(refused, Err(ParseError::OffloadMismatch), "ICMP");
    let not_ip = segment::check(&[0; 60], checksum, None);
    assert_eq!(not_ip, Err(ParseError::OffloadMismatch));
}

#[test]
fn a_version_that_is_not_the_ethertypes_is_refused() {
    let v6: (SocketAddr, SocketAddr) = (
        "[fc00::1]:1".parse().expect("an address"),
        "[fc00::2]:2".parse().expect("an address"),
    );
    let frame = SuperFrame {
        src: v6.0,
        dst: v6.1,
        ..tcp()
    };
    let (start, cut) = frame.metadata();
    let mut bytes = frame.bytes();
    assert!(!refused(&bytes, start, cut));
    bytes[12..14].copy_from_slice(&[8, 0]);
    assert!(refused(&bytes, start, cut));
}
