//! Super-frames, partial checksums and jumbo frames: each is translated as the packets that it becomes on a wire.

use super::{Bench, check_sums, config, describe, frame};
use crate::super_frames::{
    Shape, any_frame, assert_same_as_packets, build, partial, shapes, super_frame,
};
use crate::testing::{Collected, SentOffload, on_wire, ports, run_offload};
use nfluid_ring::Offload;
use nfluid_ring::offload::{PartialChecksum, SegmentKind, Segmentation};
use nfluid_wire::build::Frame;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::{IpProtocol, MacAddr, PacketMeta, TcpFlags};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::string::String;
use std::vec::Vec;

const HOST: &str = "10.0.0.2:5000";
const PEER: &str = "192.0.2.9:80";
const OUTSIDE_OF_HOST: &str = "203.0.113.1:5000";
const OTHER_HOST: &str = "10.0.0.3:6000";
const OUTSIDE_OF_OTHER: &str = "203.0.113.1:6000";

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an end point")
}

impl Bench {
    fn send_offload(&mut self, frames: &[SentOffload]) -> Vec<SentOffload> {
        run_offload(&mut *self.nf, self.now, frames)
    }

    fn dropped(&self, reason: &str) -> f64 {
        self.metric("packets_dropped_total", Some(reason))
    }
}

/// A NAT with a TCP connection and UDP flows from [`HOST`] and [`OTHER_HOST`] to [`PEER`], in the VLANs of `shape`.
fn acquainted(shape: &Shape, extra: Value, mtus: [u16; 2]) -> Bench {
    let mut all = json!({"filtering": "endpoint-independent", "tcp_liberal": false});
    for (key, value) in extra.as_object().expect("a map") {
        all[key] = value.clone();
    }
    let mut nat = Bench::with_mtus(all, mtus);
    let tags: String = shape
        .tags
        .iter()
        .map(|tag| std::format!("vlan {} ", tag.vid))
        .collect();
    for line in [
        "inside TAGStcp 10.0.0.2:5000 > 192.0.2.9:80 syn 100/0",
        "outside TAGStcp 192.0.2.9:80 > 203.0.113.1:5000 syn ack 900/101",
        "inside TAGStcp 10.0.0.2:5000 > 192.0.2.9:80 ack 101/901",
        "inside TAGSudp 10.0.0.2:5000 > 192.0.2.9:80",
        "inside TAGSudp 10.0.0.3:6000 > 192.0.2.9:80",
    ] {
        nat.play(&line.replace("TAGS", &tags));
    }
    nat
}

/// The flags of a data segment, of which the sequence number is the connection's next one.
fn as_data(mut shape: Shape, seq: u32) -> Shape {
    let kept = TcpFlags::PSH | TcpFlags::CWR | TcpFlags::ECE | TcpFlags::FIN;
    shape.flags = shape.flags & kept | TcpFlags::ACK;
    shape.seq = seq;
    for tag in &mut shape.tags {
        // The lines of these tests have VLANs, not priorities.
        tag.vid = tag.vid.clamp(1, 4094);
    }
    shape
}

/// The frame of a shape between these ends; TCP acknowledges all that has come.
fn between(shape: &Shape, src: &str, dst: &str, ack: u32) -> (Vec<u8>, Offload) {
    let frame = shape.between(at(src), at(dst));
    shape.written(&frame.sequence(shape.seq, ack))
}

fn sessions(nat: &mut Bench) -> Value {
    nat.command("sessions", &["limit=100"])
}

proptest! {
    /// Catches: addresses, ports, checksums, identifications, windows, counters that differ from those of packets.
    // promise: 10.44
    #[test]
    fn a_super_frame_is_translated_as_its_packets(shape in shapes(), way in 0..3_u8) {
        let (seq, ack) = if way == 1 { (901, 101) } else { (101, 901) };
        let mut shape = as_data(shape, seq);
        let (from, src, dst) = match way {
            0 => (0, HOST, PEER),
            1 => (1, PEER, OUTSIDE_OF_HOST),
            // Hairpinning TCP would be a connection of its own.
            _ => (0, HOST, OUTSIDE_OF_OTHER),
        };
        shape.is_tcp &= way != 2;
        let [mut whole, mut cut] = [(); 2].map(|()| acquainted(&shape, json!({}), [1500; 2]));
        let (bytes, offload) = between(&shape, src, dst, ack);
        let now = whole.now;
        let mut frames = vec![(from, bytes, offload)];
        if shape.is_tcp {
            // The other end has got all of it, and answers.
            let (end, mut answer) = (seq + shape.payload.len() as u32, shape.clone());
            (answer.seq, answer.flags) = (ack, TcpFlags::ACK);
            let (src, dst) = if way == 1 { (HOST, PEER) } else { (PEER, OUTSIDE_OF_HOST) };
            let (bytes, offload) = between(&answer, src, dst, end);
            frames.push((from ^ 1, bytes, offload));
        }
        let packets = assert_same_as_packets(&mut *whole.nf, &mut *cut.nf, now, &frames);
        prop_assert_eq!(packets.len(), on_wire(&frames).len(), "all pass");
        for (_, packet) in &packets {
            check_sums(packet, &PacketMeta::parse(packet).expect("a packet"));
        }
        prop_assert_eq!(sessions(&mut whole), sessions(&mut cut));
    }

    /// Catches: a super-frame that is fragmented as a whole, or whose fragments have identifications of other packets.
    #[test]
    fn packets_that_are_too_large_are_cut_one_by_one(shape in shapes(), mtu in 68..1_500_u16, inward: bool) {
        let mut shape = as_data(shape, if inward { 901 } else { 101 });
        shape.dont_fragment = false;
        let [mut whole, mut cut] = [(); 2].map(|()| acquainted(&shape, json!({}), [mtu; 2]));
        let (from, bytes, offload) = if inward {
            let (bytes, offload) = between(&shape, PEER, OUTSIDE_OF_HOST, 101);
            (1, bytes, offload)
        } else {
            let (bytes, offload) = between(&shape, HOST, PEER, 901);
            (0, bytes, offload)
        };
        let now = whole.now;
        let packets = assert_same_as_packets(&mut *whole.nf, &mut *cut.nf, now, &[(from, bytes, offload)]);
        let l3 = 14 + 4 * shape.tags.len();
        for (_, packet) in &packets {
            prop_assert!(Ipv4Packet::new_unchecked(&packet[l3..]).total_len() <= mtu);
        }
    }

    /// Catches: an error that quotes a packet that never was on a wire, or the translated one; one error per packet.
    #[test]
    fn an_error_quotes_the_first_packet_as_it_arrived_once(
        shape in shapes(), mtu in 68..1_500_u16, is_refused: bool,
    ) {
        let mut shape = as_data(shape, 101);
        shape.dont_fragment = true;
        let dst = if is_refused { OUTSIDE_OF_OTHER } else { PEER };
        let extra = json!({"hairpin": false});
        let mtus = [1500, if is_refused { 1500 } else { mtu }];
        let [mut whole, mut first] = [(); 2].map(|()| acquainted(&shape, extra.clone(), mtus));
        let (bytes, offload) = between(&shape, HOST, dst, 901);
        let largest = offload.packet_len(bytes.len()) - 14 - 4 * shape.tags.len();
        prop_assume!(is_refused || largest > usize::from(mtu));
        let frames = [(0, bytes, offload)];
        let packets = on_wire(&frames);
        let by_frame = whole.send_offload(&frames);
        prop_assert_eq!(on_wire(&by_frame), first.send(0, &packets[0].1));
        prop_assert_eq!(by_frame.len(), 1);
        let reason = if is_refused { "hairpin_off" } else { "too_big" };
        prop_assert_eq!(whole.dropped(reason), packets.len() as f64);
    }

    /// Catches: panics, and metadata that the switch would refuse: the bench looks.
    // promise: 10.45
    #[test]
    fn any_metadata_are_survived(
        frames in prop::collection::vec(any_arrival(), 1..40), gap in 0u64..3_000_000_000, mtu in 68..9_000_u16,
    ) {
        let mut ports = ports(2);
        ports[1].mtu = mtu;
        let extra = json!({"filtering": "endpoint-independent", "tcp_pickup": true});
        let mut nf = build("nat", &config(extra), &ports);
        let mut now = crate::Nanos::from_secs(1000);
        for frame in frames {
            run_offload(&mut *nf, now, &[frame]);
            now.0 += gap;
            nf.tick(now, &mut Collected::default());
        }
    }
}

fn any_arrival() -> impl Strategy<Value = SentOffload> {
    let ends = prop::sample::select(vec![
        (0, HOST, PEER),
        (1, PEER, OUTSIDE_OF_HOST),
        (0, HOST, OUTSIDE_OF_OTHER),
        (0, OTHER_HOST, PEER),
        (0, "[fc00::1]:1", "[fc00::2]:2"),
    ]);
    ends.prop_flat_map(|(port, src, dst)| {
        let macs = (MacAddr([2, 9, 0, 0, 0, 1]), MacAddr([2, 9, 0, 0, 0, 2]));
        let frame = any_frame(Just((at(src), at(dst))), macs);
        frame.prop_map(move |(bytes, offload)| (port, bytes, offload))
    })
}

/// A super-frame of `count` UDP packets with `size` bytes of payload each.
fn datagrams(src: &str, dst: &str, count: usize, size: usize) -> (Vec<u8>, Offload) {
    super_frame(&Frame::udp(at(src), at(dst)), &vec![7; count * size], size)
}

/// Catches: two frames of which the packets have identifications in common.
#[test]
fn identifications_count_the_packets() {
    let mut nat = Bench::new(json!({}));
    let (bytes, offload) = datagrams(HOST, PEER, 40, 100);
    let sent = nat.send_offload(&[(0, bytes.clone(), offload), (0, bytes, offload)]);
    let idents: Vec<u16> = on_wire(&sent)
        .iter()
        .map(|(_, packet)| Ipv4Packet::new_unchecked(&packet[14..]).ident())
        .collect();
    let expected: Vec<u16> = (0..80).map(|more| idents[0].wrapping_add(more)).collect();
    assert_eq!(idents, expected);
}

/// Catches: a partial checksum that is updated as a complete one, in which ports count.
#[test]
fn a_partial_checksum_has_the_new_address_and_no_port() {
    let mut nat = Bench::new(json!({"ports": "7000-7000", "port_preservation": false}));
    for description in [
        Frame::udp(at(HOST), at(PEER)),
        Frame::tcp(at(HOST), at(PEER), TcpFlags::SYN),
    ] {
        let (bytes, offload) = partial(&description, b"payload");
        let sent = nat.send_offload(&[(0, bytes, offload)]);
        let (port, frame, offload) = &sent[0];
        assert_eq!(offload.checksum().map(|checksum| checksum.start), Some(34));
        let translated = on_wire(&[(*port, frame.clone(), *offload)]).remove(0).1;
        let line = describe(1, &translated);
        assert!(line.contains("203.0.113.1:7000 > 192.0.2.9:80"), "{line}");
    }
}

/// Catches: an attack: a checksum that is written over the source after the NAT has translated it.
#[test]
fn a_packet_is_translated_by_the_address_that_it_has_on_a_wire() {
    let mut nat = Bench::new(json!({}));
    // Over the upper half of the source.
    let over = Offload::partial_checksum(PartialChecksum {
        start: 20,
        offset: 6,
    });
    let (_, frame) = frame("inside udp 10.0.0.2:5000 > 192.0.2.9:80");
    let mut expected = Bench::new(json!({}));
    let mut finished = frame.clone();
    let sum = nfluid_wire::checksum::sum(&finished[20..]);
    finished[26..28].copy_from_slice(&(!sum).to_be_bytes());
    let by_finished = expected.send(0, &finished);
    let sent = nat.send_offload(&[(0, frame, over)]);
    assert_eq!(on_wire(&sent), by_finished);
    assert!(sent.iter().all(|(_, _, offload)| offload.is_none()));
    let listed = sessions(&mut nat);
    assert!(!std::format!("{listed}").contains("10.0.0.2"), "{listed}");
}

/// Catches: a super-frame whose metadata lead into the payload, in IPv4 or in what passes unread.
// promise: 10.45
#[test]
fn metadata_of_other_headers_are_dropped_and_counted() {
    let mut nat = Bench::new(json!({}));
    let cut = |kind, header_len| Segmentation {
        kind,
        header_len,
        payload_len: 100,
        is_ecn: false,
    };
    let (v4, _) = datagrams(HOST, PEER, 10, 100);
    let wrong = Offload::segmented(38, cut(SegmentKind::Udp, 46));
    assert_eq!(nat.send_offload(&[(0, v4, wrong)]), []);
    let (v6, right) = datagrams("[fc00::1]:1", "[fc00::2]:2", 10, 100);
    let wrong = Offload::segmented(58, cut(SegmentKind::Udp, 66));
    assert_eq!(nat.send_offload(&[(0, v6.clone(), wrong)]), []);
    assert_eq!(nat.dropped("malformed"), 20.0);
    let sent = nat.send_offload(&[(0, v6.clone(), right)]);
    assert_eq!(
        sent,
        [(1, v6, right)],
        "IPv6 passes unread, with its metadata"
    );
    assert_eq!(nat.metric("packets_untouched_total", None), 10.0);
}

/// Catches: IPv6 that is taken for IPv4 because its packets are large.
#[test]
fn large_packets_that_are_not_ipv4_pass_unread() {
    let mut nat = Bench::with_mtus(json!({}), [1500, 600]);
    let (bytes, offload) = datagrams("[fc00::1]:1", "[fc00::2]:2", 10, 1400);
    let sent = nat.send_offload(&[(0, bytes.clone(), offload)]);
    assert_eq!(sent, [(1, bytes, offload)]);
}

/// Catches: buffers of 2 KiB, and IPv6 that is taken for a large IPv4 packet.
#[test]
fn jumbo_frames_pass_and_are_cut_to_any_mtu() {
    let payload: Vec<u8> = (0..8000_u32).map(|at| (at * 7) as u8).collect();
    let jumbo = |dont_fragment, src, dst| {
        let mut frame = Frame::udp(at(src), at(dst));
        frame.dont_fragment = dont_fragment;
        let mut bytes = vec![0; frame.header_len() + payload.len()];
        frame.write(&mut bytes, &payload).expect("it fits");
        bytes
    };
    for mtu in [9000, 4000, 600] {
        let mut nat = Bench::with_mtus(json!({}), [9000, mtu]);
        let sent = nat.send(0, &jumbo(false, HOST, PEER));
        let step = usize::from(mtu - 20) & !7;
        let count = if mtu == 9000 {
            1
        } else {
            8008_usize.div_ceil(step)
        };
        assert_eq!(sent.len(), count);
        let data: usize = sent.iter().map(|(_, frame)| frame.len() - 34).sum();
        assert_eq!(data, 8008);
        let stiff = jumbo(true, HOST, PEER);
        let sent = nat.send(0, &stiff);
        let quoted = &sent[0].1[42..];
        assert!(mtu == 9000 || quoted == &stiff[14..14 + 548]);
        let v6 = jumbo(false, "[fc00::1]:1", "[fc00::2]:2");
        assert_eq!(nat.send(0, &v6), [(1, v6)]);
    }
}

/// Catches: memory that counts frames of any length alike.
#[test]
fn long_fragments_take_their_bytes_of_the_room() {
    let mut nat = Bench::with_mtus(json!({"fragments_waiting": 8}), [9000, 9000]);
    let (src, dst) = (at(HOST).ip(), at(PEER).ip());
    let later = |ident: u16, len: usize| {
        let info = FragmentInfo {
            offset: 8000,
            more: false,
            ident: ident.into(),
        };
        let frame = Frame::ip(src, dst, IpProtocol::UDP)
            .ident(ident)
            .fragment(info);
        let mut bytes = vec![0; frame.header_len() + len];
        frame.write(&mut bytes, &vec![7; len]).expect("it fits");
        bytes
    };
    // Of 3 slots each.
    for ident in 1..=3 {
        nat.send(0, &later(ident, 5000));
    }
    assert_eq!(nat.metric("fragments_waiting", None), 2.0);
    assert_eq!(nat.dropped("fragment_displaced"), 1.0);
    nat.send(0, &later(4, 100));
    nat.send(0, &later(5, 100));
    assert_eq!(nat.metric("fragments_waiting", None), 4.0);
    // It takes five slots: those of two.
    nat.send(0, &later(6, 8900));
    assert_eq!(nat.metric("fragments_waiting", None), 3.0);
    assert_eq!(nat.dropped("fragment_displaced"), 3.0);
    nat.wait(3);
    assert_eq!(nat.metric("fragments_waiting", None), 0.0);
    nat.send(0, &later(7, 8900));
    assert_eq!(
        nat.metric("fragments_waiting", None),
        1.0,
        "the room is free again"
    );
}
