//! Frames that the daemon puts into rings.

use super::*;
use nfluid_ring::Offload;
use nfluid_ring::layout::LONG_MAX;

/// Catches: a daemon that takes over and leaves what its predecessor had reserved as it is.
// promise: 1.33
#[test]
fn what_a_daemon_has_reserved_and_never_published_holds_nobody_up_for_ever() {
    for_each_form("gaps", |scratch| {
        let mut members = Members::of_switch(scratch, 0, 2);
        let macs = [members.mac(0), members.mac(1)];
        let frames: Vec<Vec<u8>> = (0..4).map(|n| frame(macs[0], macs[1], 60, n)).collect();
        let fill = |members: &Members| {
            let instance = &members.instances[0];
            let filled = scratch
                .switch
                .fill_gaps(&instance.memory, &instance.handover.maps);
            filled.expect("its rings are there")
        };
        let instance = &members.instances[0];
        let inlet = Inlet::of((&instance.memory, &instance.handover.maps), 0).expect("mapped");
        let inlet = inlet.expect("of no group");
        assert_eq!(scratch.switch.deposit_at(&inlet, &[&frames[0]], 0), 1);
        // Here it is killed, and others send on.
        assert_eq!(scratch.switch.reserve(&inlet, 3, 0).1, 3);
        send(&mut members.ports[1], &frames[1]);
        members.ports[1].flush(WhenFull::Drop).expect("sent");
        assert_eq!(received(&mut members.ports[0]), frames[..1]);
        assert_eq!(received(&mut members.ports[0]), [[0u8; 0]; 0]);
        assert_eq!(fill(&members), 3);
        assert_eq!(received(&mut members.ports[0]), frames[1..2]);
        assert_eq!(fill(&members), 0, "what is published or read is no gap");
        // As good as new, for more frames than the ring holds.
        for number in 0..200 {
            let frame = &frames[number % 4];
            send(&mut members.ports[1], frame);
            members.ports[1].flush(WhenFull::Drop).expect("sent");
            assert_eq!(received(&mut members.ports[0]), std::slice::from_ref(frame));
        }
        let counters = scratch.switch.counters(members.id(0));
        assert_eq!(counters.dropped(DropReason::Reclaimed), 3);
        assert_eq!(counters.dropped_total(), 3);
    });
}

/// Catches: a hole that names the slot behind its slots, where all slots of the area are its own.
// promise: 1.33
#[test]
fn what_a_daemon_has_reserved_for_long_frames_is_given_back_also_all_of_it() {
    for_each_form("long gaps", |scratch| {
        let id = scratch.port_ids(2);
        let spec = |id, rx, tx| PortSpec {
            long: LongSlots { rx, tx },
            ..PortSpec::new(id, "p0", mac_of(id), 64)
        };
        let [mut a, mut b] = [spec(id, 64, 0), spec(id + 1, 0, 64)]
            .map(|spec| scratch.instance_with(&[spec]).expect("instance"));
        scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
        let [mut to, mut from] = [&a, &b].map(|one| one.attach().expect("attach").ports.remove(0));
        let inlet = Inlet::of((&a.memory, &a.handover.maps), 0).expect("mapped");
        let inlet = inlet.expect("of no group");
        for round in 0..4u8 {
            // Between short ones, two frames that have half of the area each. Here the daemon is killed.
            for len in [60, LONG_MAX, 60, LONG_MAX, 60] {
                match len {
                    60 => assert_eq!(scratch.switch.reserve(&inlet, 1, 0).1, 1),
                    _ => assert!(scratch.switch.reserve_long(&inlet, len, 0).is_some()),
                }
            }
            assert_eq!(scratch.switch.reserve_long(&inlet, LONG_MAX, 0), None);
            let filled = scratch.switch.fill_gaps(&a.memory, &a.handover.maps);
            assert_eq!(filled.expect("its ring is there"), 5);
            assert!(received(&mut to).is_empty());
            let sent = frame(BROADCAST, b.mac(0), LONG_MAX, round);
            let queued = from.send_long(|slots| {
                slots[..LONG_MAX].copy_from_slice(&sent);
                (LONG_MAX, Offload::NONE)
            });
            assert!(queued);
            from.flush(WhenFull::Drop).expect("sent");
            assert!(received(&mut to) == [sent], "round {round}");
        }
    });
}

#[test]
fn what_is_put_into_a_ring_leaves_room_for_those_who_send_there() {
    for_each_form("deposit", |scratch| {
        let mut members = Members::of_switch(scratch, 0, 2);
        let macs = [members.mac(0), members.mac(1)];
        let frames: Vec<Vec<u8>> = (0..80).map(|n| frame(macs[0], macs[1], 60, n)).collect();
        let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let instance = &members.instances[0];
        let inlet = Inlet::of((&instance.memory, &instance.handover.maps), 0).expect("mapped");
        let inlet = inlet.expect("of no group");
        assert_eq!((inlet.port(), inlet.slots()), (members.id(0), 64));
        let switch = &scratch.switch;
        assert_eq!(switch.deposit_at(&inlet, &slices, 32), 32);
        assert_eq!(switch.deposit_at(&inlet, &slices[32..], 32), 0, "spared");
        for _ in 0..32 {
            send(&mut members.ports[1], &frames[79]);
        }
        members.ports[1].flush(WhenFull::Drop).expect("sent");
        assert_eq!(switch.deposit_at(&inlet, &slices[32..], 0), 0, "full");
        let found = received(&mut members.ports[0]);
        assert_eq!(found[..32], frames[..32]);
        assert!(found.len() == 64 && found[32..].iter().all(|it| *it == frames[79]));
        let counters = switch.counters(members.id(0));
        assert_eq!(counters.dropped(DropReason::RingFull), 0);
        assert_eq!(counters.rx_frames, 64);
        let short = [slices[0], &[0; 13]];
        assert_eq!(switch.deposit_at(&inlet, &short, 0), 0, "one is no frame");
    });
}
