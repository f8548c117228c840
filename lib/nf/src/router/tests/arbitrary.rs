//! Whatever arrives: no panic, every frame counted once, every packet that leaves well formed.

use super::*;
use proptest::prelude::*;

pub(super) fn assert_all_counted(router: &Bench, frames: u64) {
    let sum = router.metric("packets_forwarded_total", None)
        + router.metric("packets_consumed_total", None)
        + router.metric("packets_waited_total", None)
        + router.metric("packets_dropped_total", None);
    assert_eq!(router.metric("packets_received_total", None), frames);
    assert_eq!(sum, frames, "every frame has one outcome");
}

/// Random bytes, or a frame that starts like one of the router's neighbours', then corrupted.
fn any_frame() -> impl Strategy<Value = Sent> {
    let noise = prop::collection::vec(any::<u8>(), 14..200);
    let to = prop::sample::select(vec![
        "10.0.1.9",
        "10.0.1.77",
        "192.0.2.7",
        "10.0.0.1",
        "10.0.1.255",
        "2001:db8:1::9",
        "2001:db8::1",
        "ff02::1",
    ]);
    let corrupted = (
        to,
        0u8..4,
        prop::collection::vec((0usize..120, any::<u8>()), 0..4),
        0usize..1900,
    )
        .prop_map(|(to, ttl, changes, length)| {
            let mut frame = written(&from_alice(to).ttl(ttl), &vec![7; length]);
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            // Random changes would all fail at the checksum.
            if frame[12..15] == [8, 0, 0x45] {
                Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum();
            }
            frame
        });
    let aimed = noise.clone().prop_map(|mut frame| {
        frame[..6].copy_from_slice(&P0.0);
        let kind = [[8, 0], [8, 6], [0x86, 0xdd], [0x81, 0]][usize::from(frame[13] % 4)];
        frame[12..14].copy_from_slice(&kind);
        frame
    });
    (0u8..3, prop_oneof![noise, aimed, corrupted])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_frames_are_survived_and_counted(
        frames in prop::collection::vec(any_frame(), 1..100),
        mtu in prop::sample::select(vec![1280u16, 1500, 2018]),
        gap in 0u64..3_000_000_000,
    ) {
        let mut two = ports(2);
        two[1].mtu = mtu;
        let mut router = Bench::on(&plain(), &two);
        for frame in &frames {
            for (port, frame) in router.send(frame.0, frame.1.clone()) {
                prop_assert!(port < 2);
                if link(&frame).2 == EtherType::IPV4 {
                    prop_assert!(ipv4(&frame).total_len() <= two[usize::from(port)].mtu);
                }
            }
            router.now.0 += gap;
            router.tick();
        }
        assert_all_counted(&router, frames.len() as u64);
    }

    #[test]
    fn a_forwarded_packet_differs_in_hop_count_and_checksum_only(
        ttl in 2u8..,
        tos in any::<u8>(),
        ident in any::<u16>(),
        source in any::<u32>(),
        destination in any::<u32>(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut router = Bench::new(&acquainted());
        let source = 0x0b00_0000 | source & 0x00ff_ffff;
        let destination = 0x1400_0000 | destination & 0x07ff_ffff;
        let (source, destination) = (Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(destination));
        let frame = Frame::ip(source.into(), destination.into(), IpProtocol(253));
        let frame = frame.macs(ALICE, P0).ttl(ttl).traffic_class(tos).ident(ident);
        let mut expected = written(&frame, &payload);
        let (_, sent) = router.send_one(0, expected.clone());
        expected[..6].copy_from_slice(&GATEWAY.0);
        expected[6..12].copy_from_slice(&P1.0);
        let mut packet = Ipv4Packet::new_unchecked(&mut expected[14..]);
        packet.set_ttl(ttl - 1);
        packet.fill_checksum();
        prop_assert_eq!(sent, expected);
    }

    // promise: 10.15
    #[test]
    fn fast_and_slow_path_agree(
        ttl in 0u8..4,
        to in prop::sample::select(vec!["192.0.2.7", "10.0.1.9", "203.0.113.1", "198.51.100.1", "10.0.0.1"]),
        from in prop::sample::select(vec!["10.0.0.9", "127.0.0.1", "10.0.1.1", "169.254.1.1", "192.0.2.1"]),
        length in 0usize..80,
        at in 0usize..60,
        change in prop::option::of(any::<u8>()),
    ) {
        let mut frame = written(&datagram(from, to).macs(ALICE, P0).ttl(ttl), &vec![1; length]);
        if let (Some(change), true) = (change, at < frame.len()) {
            frame[at] = change;
        }
        let mut both = Bench::new(&acquainted());
        let by_either = both.send(0, frame.clone());
        let mut slow = Bench::new(&acquainted());
        let mut slot = vec![0; 2048];
        slot[..frame.len()].copy_from_slice(&frame);
        let mut only = nfluid_ring::Frame::new(&mut slot, frame.len() as u16, 0);
        let mut made = Collected::default();
        slow.nf.handle(slow.now, &mut only, &mut made);
        let mut by_slow = Vec::new();
        if let nfluid_ring::Action::Send(port) = only.action() {
            by_slow.push((port, only.bytes().to_vec()));
        }
        by_slow.append(&mut made.plain());
        prop_assert_eq!(by_either, by_slow);
    }
}

#[test]
fn a_full_outbox_is_counted_and_nothing_else() {
    struct Full;
    impl nfluid_ring::Outbox for Full {
        fn commit(&mut self, _decided: &[nfluid_ring::Frame<'_>]) {}

        fn emit_offload(
            &mut self,
            _port: u8,
            _frame: &[u8],
            _offload: nfluid_ring::Offload,
        ) -> bool {
            false
        }
    }
    let mut router = Bench::new(&acquainted());
    let mut slot = vec![0; 2048];
    let frame = written(&from_alice("192.0.2.7").ttl(1), b"");
    slot[..frame.len()].copy_from_slice(&frame);
    let mut frame = nfluid_ring::Frame::new(&mut slot, frame.len() as u16, 0);
    router.nf.handle(router.now, &mut frame, &mut Full);
    assert_eq!(router.metric("packets_made_no_room_total", None), 1);
}
