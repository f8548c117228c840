//! Super-frames, partial checksums and jumbo frames: each is treated as the packets that it becomes on a wire.

use super::large::{narrow, offsets, reassembled};
use super::*;
use crate::stateful;
use crate::super_frames::{Shape, any_frame, assert_same_as_packets, partial, shapes, super_frame};
use crate::testing::{SentOffload, on_wire, run_offload};
use nfluid_ring::offload::{PartialChecksum, SegmentKind, Segmentation};
use nfluid_ring::{Level, Offload};
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::{ChecksumState, TcpFlags, VlanTag};
use proptest::prelude::*;

/// Alice's frame of this shape to bob (`bob`) or to the rest of the world, by way of the router.
fn from_alice_to(shape: &Shape, bob: bool, is_ipv4: bool, ttl: u8) -> (Vec<u8>, Offload) {
    let (from, to) = match (is_ipv4, bob) {
        (true, true) => ("10.0.0.9", "10.0.1.9"),
        (true, false) => ("10.0.0.9", "192.0.2.7"),
        (false, true) => ("2001:db8::9", "2001:db8:1::9"),
        (false, false) => ("2001:db8::9", "2001:db8:5::7"),
    };
    let frame = shape.between((ip(from), 4000).into(), (ip(to), 5000).into());
    shape.written(&frame.macs(ALICE, P0).ttl(ttl))
}

impl Bench {
    fn send_offload(&mut self, port: u8, frame: (Vec<u8>, Offload)) -> Vec<SentOffload> {
        run_offload(&mut self.nf, self.now, &[(port, frame.0, frame.1)])
    }
}

/// Alice's super-frame of `count` packets with `size` bytes of payload each.
fn of_packets(frame: Frame<'_>, count: usize, size: usize) -> (Vec<u8>, Offload) {
    let payload: Vec<u8> = (0..count * size).map(|at| (at * 7) as u8).collect();
    super_frame(&frame.macs(ALICE, P0), &payload, size)
}

fn tcp_to(to: &str) -> Frame<'static> {
    let from = if ip(to).is_ipv4() {
        "10.0.0.9"
    } else {
        "2001:db8::9"
    };
    Frame::tcp(
        (ip(from), 4000).into(),
        (ip(to), 5000).into(),
        TcpFlags::ACK,
    )
}

proptest! {
    /// Catches: hop counts, checksums, identifications, counters: anything that differs from packets sent one by one.
    // promise: 10.44
    #[test]
    fn a_super_frame_is_forwarded_as_its_packets(
        mut shape in shapes(), bob: bool, is_ipv4: bool, ttl in 2u8.., has_priority: bool,
    ) {
        shape.tags = match has_priority {
            true => vec![VlanTag { pcp: 5, ..VlanTag::new(0) }],
            false => Vec::new(),
        };
        let [mut whole, mut cut] = [(); 2].map(|()| Bench::new(&acquainted()));
        let (bytes, offload) = from_alice_to(&shape, bob, is_ipv4, ttl);
        let now = whole.now;
        let plain = written(&from_alice("192.0.2.7").ident(1), &[1; 8]);
        let frames = [(0, bytes, offload), (0, plain, Offload::NONE)];
        let packets = assert_same_as_packets(&mut whole.nf, &mut cut.nf, now, &frames);
        prop_assert_eq!(packets.len(), on_wire(&frames).len());
    }

    /// Catches: a super-frame that is fragmented as a whole, and fragments without the checksum of their packet.
    #[test]
    fn packets_that_are_too_large_are_cut_one_by_one(
        mut shape in shapes(), mtu in 68..1_600_u16, bob: bool,
    ) {
        (shape.tags, shape.dont_fragment) = (Vec::new(), false);
        let [mut whole, mut cut] = [(); 2].map(|()| narrow(mtu));
        let (bytes, offload) = from_alice_to(&shape, bob, true, 64);
        let now = whole.now;
        let frames = [(0, bytes, offload)];
        let packets = assert_same_as_packets(&mut whole.nf, &mut cut.nf, now, &frames);
        for (_, packet) in &packets {
            prop_assert!(ipv4(packet).total_len() <= mtu);
        }
    }

    /// Catches: an error that quotes a packet which never was on a wire, or one for each packet.
    // promise: 10.46
    #[test]
    fn an_error_quotes_the_first_packet_once(
        mut shape in shapes(), is_ipv4: bool, is_expired: bool, mtu in 1280..1500_u16,
    ) {
        (shape.tags, shape.dont_fragment) = (Vec::new(), true);
        let ttl = if is_expired { 1 } else { 64 };
        let [mut whole, mut first] = [(); 2].map(|()| narrow(mtu));
        let (bytes, offload) = from_alice_to(&shape, false, is_ipv4, ttl);
        let largest = offload.packet_len(bytes.len()) - 14;
        prop_assume!(is_expired || largest > usize::from(mtu));
        let frames = [(0, bytes, offload)];
        let packets = on_wire(&frames);
        let sent = whole.send_offload(0, (frames[0].1.clone(), offload));
        let by_first = first.send(0, packets[0].1.clone());
        prop_assert_eq!(on_wire(&sent), by_first);
        let reason = if is_expired { "ttl_exceeded" } else { "too_big" };
        prop_assert_eq!(whole.dropped(reason), packets.len() as u64);
    }

    /// Catches: panics, metadata that the switch would refuse (the bench looks), packets that are too large, and
    /// packets that are counted twice or not at all.
    // promise: 10.45
    #[test]
    fn any_metadata_are_survived_and_counted(
        frames in prop::collection::vec(any_arrival(), 1..40),
        mtu in prop::sample::select(vec![1280u16, 1500, 9000]),
        gap in 0u64..3_000_000_000,
    ) {
        let mut two = ports(2);
        two[1].mtu = mtu;
        let mut router = Bench::on(&plain(), &two);
        let mut arrived = 0;
        for (port, bytes, offload) in frames {
            arrived += offload.segments(bytes.len()) as u64;
            for (port, bytes, offload) in router.send_offload(port, (bytes, offload)) {
                let mtu = usize::from(two[usize::from(port)].mtu);
                if link(&bytes).2 == EtherType::IPV4 && offload.level() != Level::Plain {
                    prop_assert!(offload.packet_len(bytes.len()) - 14 <= mtu);
                }
            }
            router.now.0 += gap;
            let mut sent = Collected::default();
            router.nf.tick(router.now, &mut sent);
        }
        super::arbitrary::assert_all_counted(&router, arrived);
    }
}

fn any_arrival() -> impl Strategy<Value = SentOffload> {
    let to = prop::sample::select(vec![
        "10.0.1.9",
        "10.0.1.77",
        "192.0.2.7",
        "10.0.0.1",
        "10.0.1.255",
        "2001:db8:1::9",
        "2001:db8:5::7",
        "2001:db8::1",
    ]);
    let ends = to.prop_map(|to| {
        let from = if ip(to).is_ipv4() {
            "10.0.0.9"
        } else {
            "2001:db8::9"
        };
        ((ip(from), 4000).into(), (ip(to), 5000).into())
    });
    let frame = any_frame(ends, (ALICE, P0));
    (0u8..3, frame).prop_map(|(port, (bytes, offload))| (port, bytes, offload))
}

/// Catches: a super-frame that takes the slow path, or is cut, though its packets fit.
#[test]
fn a_super_frame_of_packets_with_exactly_the_mtu_passes_whole() {
    let mut router = narrow(1300);
    for (to, headers) in [("192.0.2.7", 40), ("2001:db8:5::7", 60)] {
        let size = 1300 - headers;
        let fits = of_packets(tcp_to(to).dont_fragment(), 44, size);
        let sent = router.send_offload(0, fits.clone());
        assert_eq!((sent.len(), sent[0].2), (1, fits.1));
        let too_large = of_packets(tcp_to(to).dont_fragment(), 44, size + 1);
        let sent = router.send_offload(0, too_large);
        assert_eq!((sent.len(), sent[0].0, sent[0].2), (1, 0, Offload::NONE));
        let error = icmp(&sent[0].1);
        assert!(matches!((error.kind, error.code), (3, 4) | (2, 0)));
    }
    assert_eq!(router.dropped("too_big"), 88);
}

/// Catches: a quoted length, checksum or identification of the whole frame.
// promise: 10.46
#[test]
fn fragmentation_needed_quotes_the_packet_as_it_would_have_been() {
    let mut router = narrow(1300);
    let frame = of_packets(tcp_to("192.0.2.7").dont_fragment().ident(77), 3, 1400);
    let sent = router.send_offload(0, frame);
    let error = icmp(&sent[0].1);
    assert_eq!(error.rest, [0, 0, 0x05, 0x14]);
    let quoted = Ipv4Packet::new_unchecked(&error.quoted[..]);
    assert_eq!((quoted.total_len(), quoted.ident()), (1440, 77));
    assert!(quoted.verify_checksum());
    assert_eq!(error.quoted.len(), 548);
    // The checksum covers payload that is not quoted.
    let mut whole = vec![0; 1440];
    whole[..548].copy_from_slice(&error.quoted);
    for (at, byte) in whole.iter_mut().enumerate().skip(548) {
        *byte = ((at - 40) * 7) as u8;
    }
    let packet = Ipv4Packet::new_checked(&whole[..]).expect("a packet");
    let segment = TcpPacket::new_checked(packet.payload()).expect("TCP");
    assert!(segment.verify_checksum(packet.pseudo_header(), ChecksumState::Complete));
}

/// Catches: padding that is quoted as if it were of the packet.
// promise: 10.46
#[test]
fn an_error_quotes_no_padding() {
    let mut router = Bench::new(&acquainted());
    for (to, end) in [("192.0.2.7", 46), ("2001:db8:5::7", 66)] {
        let mut frame = written(&from_alice(to).ttl(1), &[7; 4]);
        assert_eq!(frame.len(), end);
        frame.resize(end.max(60) + 9, 0xee);
        let error = icmp(&router.send_one(0, frame.clone()).1);
        assert_eq!(error.quoted, frame[14..end]);
    }
}

/// Catches: metadata that waiting loses, memory that counts frames of any length alike, and packets counted as one.
#[test]
fn a_super_frame_waits_whole_and_takes_its_bytes_of_the_room() {
    let mut config = plain();
    config["neighbour_table"] = json!({"waiting": 40, "waiting_per_neighbour": 2});
    let mut router = Bench::new(&config);
    let to_bob = |ident| of_packets(tcp_to("10.0.1.9").ident(ident), 44, 1448);
    let asked = router.send_offload(0, to_bob(1));
    assert_eq!(link(&asked[0].1).2, EtherType::ARP);
    assert_eq!(router.metric("packets_waiting", None), 44);
    // 32 of the 40 slots are taken.
    router.send_offload(0, to_bob(2));
    assert_eq!(router.dropped("waiting_full"), 44);
    let small = written(&from_alice("10.0.1.9").ident(3), &[0; 8]);
    router.send(0, small.clone());
    // The super-frame gives way to one that does not fit beside it.
    router.send_offload(0, to_bob(4));
    assert_eq!(router.metric("waiting_lost_total", None), 44);
    assert_eq!(router.metric("packets_waiting", None), 45);
    assert_eq!(router.metric("packets_waited_total", None), 89);
    let arp = vec![(1, arp_reply(BOB, [10, 0, 1, 9]), Offload::NONE)];
    let sent = run_offload(&mut router.nf, router.now, &arp);
    let idents: Vec<u16> = sent.iter().map(|sent| ipv4(&sent.1).ident()).collect();
    assert_eq!(idents, [3, 4]);
    assert_eq!([sent[0].2, sent[1].2], [Offload::NONE, to_bob(4).1]);
    assert_eq!(router.metric("packets_made_total", Some("released")), 45);
    assert_eq!(router.metric("packets_waiting", None), 0);
}

/// A router that knows alice, and nobody on p1.
fn without_bob(more: Value) -> Bench {
    let mut config = acquainted();
    let known = config["neighbours"].as_array_mut().expect("a list");
    known.retain(|neighbour| neighbour["port"] == "p0");
    config["neighbour_table"] = more;
    Bench::new(&config)
}

/// Catches: a neighbour that goes and leaves the room of its frames taken.
#[test]
fn room_is_free_again_when_a_neighbour_does_not_answer() {
    let mut router = without_bob(json!({"waiting": 32}));
    for _ in 0..3 {
        router.send_offload(0, of_packets(tcp_to("10.0.1.9").ident(9), 44, 1448));
        assert_eq!(router.metric("packets_waiting", None), 44);
        router.wait(5_000);
        assert_eq!(router.metric("packets_waiting", None), 0);
    }
    assert_eq!(router.dropped("waiting_full"), 0);
}

#[test]
fn who_cannot_be_reached_is_told_about_the_first_packet() {
    let mut router = without_bob(json!({}));
    let frame = of_packets(tcp_to("10.0.1.9").ident(9), 44, 1448);
    let first = on_wire(&[(0, frame.0.clone(), frame.1)]).remove(0).1;
    router.send_offload(0, frame);
    let sent = router.wait(5_000);
    let error = sent.iter().find(|sent| sent.0 == 0).expect("an error");
    let error = icmp(&error.1);
    assert_eq!((error.kind, error.code), (3, 1));
    // The hop was taken off before the packet waited.
    let mut expected = first;
    Ipv4Packet::new_unchecked(&mut expected[14..]).decrement_ttl();
    assert_eq!(error.quoted, expected[14..14 + 548]);
    assert_eq!(router.metric("waiting_lost_total", None), 44);
}

/// Catches: an image that loses the metadata of a frame that waits.
#[test]
fn a_waiting_super_frame_goes_to_the_next_instance() {
    let mut router = Bench::new(&plain());
    let frame = of_packets(tcp_to("10.0.1.9"), 20, 1000);
    router.send_offload(0, frame.clone());
    let image = stateful::export("router", &mut router.nf, router.now).expect("exported");
    let mut next = Bench::new(&plain());
    stateful::import("router", &mut next.nf, next.now, &image).expect("imported");
    let arp = vec![(1, arp_reply(BOB, [10, 0, 1, 9]), Offload::NONE)];
    let sent = run_offload(&mut next.nf, next.now, &arp);
    assert_eq!((sent[0].1.len(), sent[0].2), (frame.0.len(), frame.1));
}

/// Catches: a partial checksum that is taken for corruption, and a reset of the first packet only.
#[test]
fn packets_to_the_router_itself_are_answered() {
    let mut router = Bench::new(&acquainted());
    for to in ["10.0.0.1", "2001:db8::1"] {
        let fin = Frame {
            transport: match tcp_to(to).sequence(1000, 0).transport {
                build::Transport::Tcp {
                    src_port,
                    dst_port,
                    seq,
                    ack,
                    window,
                    options,
                    ..
                } => build::Transport::Tcp {
                    src_port,
                    dst_port,
                    seq,
                    ack,
                    flags: TcpFlags::PSH,
                    window,
                    options,
                },
                other => other,
            },
            ..tcp_to(to)
        };
        let sent = router.send_offload(0, of_packets(fin, 10, 500));
        assert_eq!((sent.len(), sent[0].2), (1, Offload::NONE));
        let l4 = if ip(to).is_ipv4() { 34 } else { 54 };
        let reset = TcpPacket::new_checked(&sent[0].1[l4..]).expect("TCP");
        assert_eq!(reset.flags(), TcpFlags::RST | TcpFlags::ACK);
        assert_eq!(reset.ack(), 1000 + 5000);
        let datagram = partial(&from_alice(to), &[7; 50]);
        let packet = on_wire(&[(0, datagram.0.clone(), datagram.1)]).remove(0).1;
        let sent = router.send_offload(0, datagram);
        let error = icmp(&sent[0].1);
        assert!(matches!((error.kind, error.code), (3, 3) | (1, 4)));
        assert_eq!(error.quoted, packet[14..], "with a complete checksum");
    }
    assert_eq!(router.dropped("local_unused"), 22);
    assert_eq!(router.dropped("local_malformed"), 0);
}

/// Catches: an attack: a checksum that is written over the destination after the route was chosen.
#[test]
fn a_packet_is_routed_by_the_address_that_it_has_on_a_wire() {
    let mut router = Bench::new(&acquainted());
    // The checksum of everything from the IP header on, written over the upper half of the destination.
    let over = Offload::partial_checksum(PartialChecksum {
        start: 14,
        offset: 16,
    });
    let mut frame = written(&from_alice("10.0.1.9"), &[0; 40]);
    // The header checksum is that of a packet to 203.0.1.9, and the last bytes make the other one 203.0.
    let mut aimed = frame.clone();
    let mut packet = Ipv4Packet::new_unchecked(&mut aimed[14..]);
    packet.set_dst([203, 0, 1, 9].into());
    packet.fill_checksum();
    frame[24..26].copy_from_slice(&aimed[24..26]);
    let others = nfluid_wire::checksum::sum(&frame[14..]);
    let wanted = !u16::from_be_bytes([203, 0]);
    let filler = nfluid_wire::checksum::combine(&[wanted, !others]);
    frame[80..82].copy_from_slice(&filler.to_be_bytes());
    let sent = router.send_offload(0, (frame, over));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].2, Offload::NONE);
    assert_eq!(ipv4(&sent[0].1).dst(), Ipv4Addr::new(203, 0, 1, 9));
    assert_eq!(link(&sent[0].1).0, GATEWAY, "not to bob");
}

// promise: 10.45
#[test]
fn metadata_of_other_headers_are_dropped_and_counted() {
    let mut router = Bench::new(&acquainted());
    let (bytes, _) = of_packets(tcp_to("10.0.1.9"), 10, 500);
    let cut = Segmentation {
        kind: SegmentKind::TcpV4,
        header_len: 58,
        payload_len: 500,
        is_ecn: false,
    };
    let sent = router.send_offload(0, (bytes, Offload::segmented(34, cut)));
    assert_eq!(sent, []);
    assert_eq!(router.dropped("bad_offload"), 10);
    assert_eq!(router.metric("packets_received_total", None), 10);
}

/// Catches: buffers of 2 KiB.
#[test]
fn jumbo_frames_are_forwarded_and_cut_to_any_mtu() {
    for mtu in [9000, 4000, 1500] {
        let mut two = ports(2);
        two[0].mtu = 9000;
        two[1].mtu = mtu;
        let mut router = Bench::on(&acquainted(), &two);
        let payload: Vec<u8> = (0..8972u32).map(|at| (at * 7) as u8).collect();
        let mut whole = vec![0; 9014];
        let len = from_alice("192.0.2.7").write(&mut whole, &payload);
        assert_eq!(len, Ok(9014));
        let sent = router.send(0, whole.clone());
        if mtu == 9000 {
            assert_eq!((sent.len(), sent[0].1.len()), (1, 9014));
            continue;
        }
        let step = (mtu - 20) & !7;
        let expected: Vec<u16> = (0..8980).step_by(step.into()).collect();
        assert_eq!(offsets(&sent), expected);
        assert_eq!(reassembled(&sent), &whole[34..]);
        let sent = router.send(0, {
            let mut whole = vec![0; 9034];
            let frame = from_alice("2001:db8:5::7");
            let len = frame.write(&mut whole, &payload).expect("it fits");
            whole.truncate(len);
            whole
        });
        let error = icmp(&sent[0].1);
        assert_eq!((error.kind, error.rest), (2, u32::from(mtu).to_be_bytes()));
    }
}
