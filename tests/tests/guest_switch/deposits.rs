//! Frames that the daemon puts into rings.

use super::*;

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
