//! Super-frames and partial checksums: each is judged as the packets that it becomes on a wire.

use super::*;
use crate::super_frames::{Shape, any_frame, assert_same_as_packets, ends, shapes, super_frame};
use crate::testing::{SentOffload, on_wire, run_offload};
use nfluid_ring::Offload;
use nfluid_ring::offload::{PartialChecksum, SegmentKind, Segmentation};
use nfluid_wire::icmpv4::Icmpv4Packet;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::{MacAddr, checksum};
use proptest::prelude::*;

/// Each kind of rule that lets packets pass, with a counter for all.
const STATEFUL: &str = "count ip from any to any
     check-state
     allow tcp from any to any out setup keep-state
     allow udp from any to any out keep-state
     allow udp from any to any 1-32767 in";

/// More rules than are evaluated one by one, and no states.
fn long_list() -> String {
    let mut rules = String::from("allow tcp from any to any 1-20000\n");
    for port in 0..100 {
        rules += &format!("deny udp from any to any {}\n", 100 * port + 1);
    }
    rules + "count ip from any to any\nallow udp from any to any 20000-65535"
}

impl Bench {
    fn sent_offload(&mut self, port: u8, frame: (Vec<u8>, Offload)) -> Vec<SentOffload> {
        run_offload(&mut *self.nf, self.now, &[(port, frame.0, frame.1)])
    }
}

/// Flags of a data segment.
fn as_data(mut shape: Shape, seq: u32) -> Shape {
    let kept = TcpFlags::PSH | TcpFlags::CWR | TcpFlags::ECE | TcpFlags::FIN;
    shape.flags = shape.flags & kept | ACK;
    shape.seq = seq;
    shape
}

/// The frames of a TCP opening, or a UDP request, from inside.
fn opening(shape: &Shape, (here, there): (SocketAddr, SocketAddr)) -> Vec<Sent> {
    if !shape.is_tcp {
        let frame = Frame::udp(here, there).vlans(&shape.tags);
        return vec![(INSIDE, bytes(frame, b"ask"))];
    }
    let segment = |from, to, flags, seq, ack| {
        let frame = Frame::tcp(from, to, flags).sequence(seq, ack);
        bytes(frame.vlans(&shape.tags), b"")
    };
    vec![
        (INSIDE, segment(here, there, SYN, 100, 0)),
        (OUTSIDE, segment(there, here, SYN_ACK, 900, 101)),
        (INSIDE, segment(here, there, ACK, 101, 901)),
    ]
}

proptest! {
    /// Catches: windows that end with the first packet, and counters that count one packet or its bytes alone.
    // promise: 10.44
    #[test]
    fn a_super_frame_of_a_flow_is_judged_as_its_packets(
        shape in shapes(), (here, there) in ends(), is_answer: bool, is_known: bool,
    ) {
        prop_assume!(here != there);
        let shape = as_data(shape, if is_answer { 901 } else { 101 });
        let [mut whole, mut cut] = [(); 2].map(|()| Bench::with_rules(STATEFUL));
        if is_known {
            for fw in [&mut whole, &mut cut] {
                run(&mut *fw.nf, fw.now, &opening(&shape, (here, there)));
            }
        }
        let (port, src, dst, ack) = match is_answer {
            true => (OUTSIDE, there, here, 101),
            false => (INSIDE, here, there, 901),
        };
        let frame = shape.between(src, dst).sequence(shape.seq, ack);
        let (data, offload) = shape.written(&frame);
        let end = shape.seq.wrapping_add(shape.payload.len() as u32);
        let answer = Frame::tcp(dst, src, ACK).sequence(ack, end).vlans(&shape.tags);
        let frames = [(port, data, offload), (port ^ 1, bytes(answer, b""), Offload::NONE)];
        let now = whole.now;
        let packets = assert_same_as_packets(&mut *whole.nf, &mut *cut.nf, now, &frames);
        prop_assert!(!is_known || packets.len() >= on_wire(&frames[..1]).len());
        prop_assert_eq!(whole.command("rules", &[]), cut.command("rules", &[]));
        prop_assert_eq!(whole.command("states", &[]), cut.command("states", &[]));
    }

    // promise: 10.44
    #[test]
    fn a_super_frame_is_judged_by_a_long_list_as_its_packets(
        shape in shapes(), (src, dst) in ends(), port in 0..2_u8,
    ) {
        let [mut whole, mut cut] = [(); 2].map(|()| Bench::with_rules(&long_list()));
        let shape = as_data(shape, 1);
        let (bytes, offload) = shape.written(&shape.between(src, dst));
        let frames = [(port, bytes, offload)];
        assert_same_as_packets(&mut *whole.nf, &mut *cut.nf, whole.now, &frames);
        prop_assert_eq!(whole.command("rules", &[]), cut.command("rules", &[]));
    }

    /// Catches: an answer that quotes a packet which never was on a wire, or one for each packet.
    #[test]
    fn a_rejected_super_frame_is_answered_as_its_first_packet(shape in shapes(), (src, dst) in ends()) {
        prop_assume!(!matches!(src.ip(), IpAddr::V6(ip) if ip.is_unspecified()));
        let shape = as_data(shape, 1);
        let frame = shape.between(src, dst);
        let frames = [(OUTSIDE, shape.written(&frame))].map(|(port, (bytes, offload))| (port, bytes, offload));
        let packets = on_wire(&frames);
        let [mut whole, mut first] = [(); 2].map(|()| Bench::with_rules("unreach host ip from any to any"));
        let sent = run_offload(&mut *whole.nf, whole.now, &frames);
        prop_assert_eq!(on_wire(&sent), first.sent(OUTSIDE, &packets[0].1));
        prop_assert_eq!(sent.len(), 1);
        prop_assert_eq!(whole.dropped("rejected"), packets.len() as u64);
    }

    /// Catches: panics, metadata that the switch would refuse (the bench looks), packets that are not counted once.
    // promise: 10.45
    #[test]
    fn any_metadata_are_survived_and_counted(
        frames in prop::collection::vec(
            (0..2_u8, any_frame(ends(), (MacAddr([2; 6]), MacAddr([4; 6])))), 1..40),
        is_long: bool,
    ) {
        let mut fw = match is_long {
            true => Bench::with_rules(&long_list()),
            false => Bench::with_rules(STATEFUL),
        };
        let mut arrived = 0;
        for (port, frame) in frames {
            arrived += frame.1.segments(frame.0.len()) as u64;
            fw.sent_offload(port, frame);
        }
        let (mut counted, mut malformed) = (0.0, 0.0);
        fw.nf.metrics(&mut |metric| {
            if ["packets_forwarded_total", "packets_dropped_total"].contains(&metric.name.as_ref()) {
                counted += metric.value;
            }
            if metric.name == "packets_malformed_total" {
                malformed += metric.value;
            }
        });
        prop_assert_eq!(counted, arrived as f64);
        prop_assert_eq!(malformed, fw.dropped("malformed") as f64);
    }
}

/// Catches: a partial checksum that counts as corruption, or that a firewall, which changes nothing, completes.
#[test]
fn metadata_pass_unchanged() {
    for rules in [STATEFUL, &long_list()] {
        let mut fw = Bench::with_rules(rules);
        for size in [None, Some(100)] {
            let frame = Frame::udp(socket("10.0.0.1:5"), socket("10.0.0.2:30000"));
            let frame = match size {
                None => crate::super_frames::partial(&frame, &[7; 300]),
                Some(size) => super_frame(&frame, &[7; 300], size),
            };
            let sent = fw.sent_offload(INSIDE, frame.clone());
            assert_eq!(sent, [(OUTSIDE, frame.0, frame.1)]);
        }
    }
}

/// Catches: an attack: a checksum that is written over the destination port after the rules were asked.
#[test]
fn rules_see_the_port_that_a_packet_has_on_a_wire() {
    let open = "deny tcp from any to any 22\nallow tcp from any to any";
    let long: String = (0..100)
        .map(|port| format!("deny udp from any to any {port}\n"))
        .collect();
    for rules in [open, &(long + open)] {
        let mut fw = Bench::with_rules(rules);
        let over = Offload::partial_checksum(PartialChecksum {
            start: 30,
            offset: 6,
        });
        let mut frame = bytes(
            Frame::tcp(socket("10.0.0.1:1000"), socket("10.0.0.2:80"), ACK),
            &[0; 10],
        );
        assert!(fw.passes(OUTSIDE, &frame), "port 80");
        // The payload makes the sum of everything from the destination address on what the attacker wants: port 22.
        let sum = checksum::sum(&frame[30..]);
        let filler = checksum::combine(&[!22, !sum]);
        frame[62..64].copy_from_slice(&filler.to_be_bytes());
        assert_eq!(fw.sent_offload(OUTSIDE, (frame, over)), []);
        assert_eq!(fw.dropped("rule"), 1);
    }
}

// promise: 10.45
#[test]
fn metadata_of_other_headers_are_dropped_and_counted() {
    for rules in [
        "allow ip from any to any",
        &(long_list() + "\nallow ip from any to any"),
    ] {
        let mut fw = Bench::with_rules(rules);
        let frame = Frame::udp(socket("10.0.0.1:5"), socket("10.0.0.2:7"));
        let (bytes, _) = super_frame(&frame, &[7; 1000], 100);
        // The packets would have 100 bytes of the first one's payload as their ports.
        let cut = Segmentation {
            kind: SegmentKind::Udp,
            header_len: 142,
            payload_len: 100,
            is_ecn: false,
        };
        assert_eq!(
            fw.sent_offload(INSIDE, (bytes, Offload::segmented(134, cut))),
            []
        );
        assert_eq!(fw.dropped("malformed"), 9);
        let reason = "offload metadata that is not about the TCP or UDP header";
        assert_eq!(fw.metric("packets_malformed_total", reason), 9);
    }
}

/// Catches: a reset that acknowledges the first packet only, so that the sender sends the others again.
#[test]
fn a_reset_acknowledges_all_packets_of_a_super_frame() {
    let mut fw = Bench::with_rules("reset tcp from any to any");
    let attempt = Frame::tcp(
        socket("10.0.0.1:1000"),
        socket("10.0.0.2:23"),
        TcpFlags::PSH,
    );
    let frame = super_frame(&attempt.sequence(7000, 0), &[7; 1000], 100);
    let sent = fw.sent_offload(OUTSIDE, frame);
    let ip = Ipv4Packet::new_checked(&sent[0].1[14..]).unwrap();
    let reset = TcpPacket::new_checked(ip.payload()).unwrap();
    assert_eq!((sent.len(), reset.ack()), (1, 8000));
    assert_eq!(fw.dropped("rejected"), 10);
}

#[test]
fn an_icmp_answer_quotes_the_first_packet_with_its_own_length() {
    let mut fw = Bench::with_rules("unreach port ip from any to any");
    let datagram = Frame::udp(socket("10.0.0.1:1000"), socket("10.0.0.2:53")).ident(7);
    let sent = fw.sent_offload(OUTSIDE, super_frame(&datagram, &[7; 1000], 100));
    let ip = Ipv4Packet::new_checked(&sent[0].1[14..]).unwrap();
    let icmp = Icmpv4Packet::new_checked(ip.payload()).unwrap();
    let expected = bytes(datagram, &[7; 100]);
    assert_eq!(icmp.payload(), &expected[14..]);
}
