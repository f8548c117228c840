//! Super-frames become the packets that Linux makes of them, and partial checksums complete ones.
//!
//! The reference writes each packet from its description by `build`, which knows nothing of super-frames.

mod refusals;
mod super_frame;

use nfluid_wire::ChecksumState;
use nfluid_wire::ParseError;
use nfluid_wire::segment::{self, PartialChecksum, SegmentKind, Segments};
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{PacketMeta, TcpFlags};
use proptest::prelude::*;
use super_frame::{SuperFrame, super_frame};

/// All packets, each written to a buffer of exactly the longest one's length.
fn packets(segments: &mut Segments<'_>) -> Vec<Vec<u8>> {
    let mut buffer = vec![0xee; segments.packet_len()];
    let mut packets = Vec::new();
    while let Some(len) = segments.write_next(&mut buffer) {
        packets.push(buffer[..len].to_vec());
    }
    assert_eq!(segments.remaining(), 0);
    packets
}

fn cut(frame: &SuperFrame) -> Vec<Vec<u8>> {
    let bytes = frame.bytes();
    let (start, cut) = frame.metadata();
    packets(&mut Segments::cut(&bytes, start, cut).expect("a super-frame"))
}

/// Panics unless all lengths and checksums of a packet are right.
fn assert_right(frame: &[u8]) {
    let meta = PacketMeta::parse(frame).expect("a packet");
    assert_eq!(meta.l3_end(), frame.len());
    let message = &frame[usize::from(meta.l4_offset)..];
    let pseudo = super_frame::pseudo_header(&meta, message.len());
    let state = ChecksumState::Complete;
    if meta.protocol.0 == 6 {
        let segment = TcpPacket::new_checked(message).expect("TCP");
        assert!(segment.verify_checksum(pseudo, state), "TCP checksum");
    } else {
        let datagram = UdpPacket::new_checked(message).expect("UDP");
        assert_eq!(usize::from(datagram.length()), message.len());
        assert!(datagram.verify_checksum(pseudo, state), "UDP checksum");
        assert_ne!(datagram.checksum(), 0, "there is a checksum");
    }
}

proptest! {
    /// Catches: any field of any packet that is not as if the packet had been sent by itself.
    // promise: 9.5
    #[test]
    fn the_packets_are_those_that_a_host_would_have_sent(frame in super_frame()) {
        let expected = frame.packets();
        let packets = cut(&frame);
        prop_assert_eq!(packets.len(), expected.len());
        for (packet, expected) in packets.iter().zip(&expected) {
            assert_right(packet);
            prop_assert_eq!(packet, expected);
        }
    }

    #[test]
    fn a_finished_checksum_is_the_complete_one(frame in super_frame()) {
        let mut bytes = frame.bytes();
        let (start, cut) = frame.metadata();
        let offset = if cut.kind == SegmentKind::Udp { 6 } else { 16 };
        let checksum = PartialChecksum { start, offset };
        let expected = frame.complete();
        let one = Segments::with_checksum(&bytes, checksum).map(|mut one| packets(&mut one));
        prop_assert_eq!(one, Ok(vec![expected.clone()]));
        prop_assert!(segment::finish(&mut bytes, checksum));
        prop_assert_eq!(bytes, expected);
    }

    /// Catches: a packet that is lost because the buffer was too short for it.
    #[test]
    fn a_short_buffer_loses_no_packet(frame in super_frame(), short in 0..200_usize) {
        let bytes = frame.bytes();
        let (start, how) = frame.metadata();
        let mut segments = Segments::cut(&bytes, start, how).expect("a super-frame");
        let mut one_by_one = Vec::new();
        let mut buffer = vec![0; segments.packet_len()];
        while segments.remaining() > 0 {
            let before = segments.remaining();
            let short = &mut buffer[..short.min(how.header_len - 1)];
            prop_assert_eq!(segments.write_next(short), None);
            prop_assert_eq!(segments.next_parts(short), None);
            prop_assert_eq!(segments.remaining(), before);
            let len = segments.write_next(&mut buffer).expect("one is left");
            one_by_one.push(buffer[..len].to_vec());
        }
        prop_assert_eq!(one_by_one, cut(&frame));
    }
}

// promise: 9.5
#[test]
fn flags_belong_to_the_packets_that_linux_gives_them_to() {
    let flags = TcpFlags::FIN | TcpFlags::PSH | TcpFlags::ACK | TcpFlags::CWR | TcpFlags::URG;
    let frame = SuperFrame::tcp("10.0.0.1:1", "10.0.0.2:2", flags, 3 * 100, 100);
    let flags: Vec<TcpFlags> = cut(&frame)
        .iter()
        .map(|packet| PacketMeta::parse(packet).expect("TCP").tcp_flags)
        .collect();
    let inner = TcpFlags::ACK | TcpFlags::URG;
    let first = inner | TcpFlags::CWR;
    let last = inner | TcpFlags::FIN | TcpFlags::PSH;
    assert_eq!(flags, [first, inner, last]);
}

/// Catches: flags of "others" that are cleared where the first packet is the last too.
#[test]
fn a_super_frame_of_one_packet_keeps_all_flags() {
    let flags = TcpFlags::FIN | TcpFlags::PSH | TcpFlags::ACK | TcpFlags::CWR;
    for payload in [100, 48, 1, 0] {
        let frame = SuperFrame::tcp("10.0.0.1:1", "10.0.0.2:2", flags, payload, 100);
        assert_eq!(cut(&frame), [frame.complete()]);
    }
}

#[test]
fn identifications_and_sequence_numbers_wrap() {
    let mut frame = SuperFrame::tcp("10.0.0.1:1", "10.0.0.2:2", TcpFlags::ACK, 250, 100);
    frame.ident = 0xffff;
    frame.seq = u32::MAX - 149;
    frame.dont_fragment = true;
    let packets = cut(&frame);
    assert_eq!(packets, frame.packets());
    let idents = packets.iter().map(|packet| (packet[18], packet[19]));
    assert!(idents.eq([(0xff, 0xff), (0, 0), (0, 1)]), "also with DF");
}

/// Catches: IPv4 options and IPv6 extension headers that are lost, or of which the length is forgotten.
#[test]
fn options_and_extension_headers_are_in_every_packet() {
    for frame in super_frame::with_more_headers() {
        let packets = cut(&frame);
        assert_eq!(packets.len(), 3);
        let spliced = 14 + if frame.src.is_ipv4() { 20 } else { 40 };
        for packet in &packets {
            assert_right(packet);
            assert!(packet[spliced..].starts_with(&frame.spliced));
        }
    }
}

/// Catches: a UDP checksum of 0, which would mean that there is none.
#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    let mut frame = SuperFrame::tcp("10.0.0.1:1", "10.0.0.2:2", TcpFlags::NONE, 4, 2);
    frame.is_tcp = false;
    // The last two bytes of each packet make the sum of everything 0xffff.
    let checksums = |frame: &SuperFrame| {
        let checksum = |packet: &Vec<u8>| u16::from_be_bytes([packet[40], packet[41]]);
        cut(frame).iter().map(checksum).collect::<Vec<u16>>()
    };
    frame.payload.fill(0);
    let missing = checksums(&frame)[0].to_be_bytes();
    frame.payload.copy_from_slice(&[missing, missing].concat());
    assert_eq!(checksums(&frame), [0xffff; 2]);
}

#[test]
fn a_plain_frame_is_one_packet_as_it_is() {
    let frame = [7; 60];
    assert_eq!(packets(&mut Segments::plain(&frame)), [frame]);
    assert_eq!(packets(&mut Segments::plain(&[])), [[0; 0]]);
}

#[test]
fn a_checksum_beyond_the_frame_is_refused() {
    let mut frame = [9; 50];
    let outside = [(49, 0), (42, 8), (50, 6), (usize::MAX, 6), (14, usize::MAX)];
    for (start, offset) in outside.into_iter().chain([(14, 5)]) {
        let checksum = PartialChecksum { start, offset };
        assert!(!segment::finish(&mut frame, checksum), "{checksum:?}");
        let refused = Segments::with_checksum(&frame, checksum).map(drop);
        assert_eq!(refused, Err(ParseError::OffloadMismatch), "{checksum:?}");
        assert_eq!(frame, [9; 50]);
    }
    let at_the_end = PartialChecksum {
        start: 42,
        offset: 6,
    };
    assert!(segment::finish(&mut frame, at_the_end));
}
