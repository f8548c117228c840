//! A switch keeps its tables: what it learns it forgets in time, counts and bounds; VLANs, switches and links do not
//! mix; what is not forwarded is counted under its reason. Both loop forms behave alike.

#[path = "guest_switch/deposits.rs"]
mod deposits;
mod switch_fixture;

use nfluid_ring::layout::{FRAME_MAX, SLOT_SIZE, tx_desc_long};
use nfluid_ring::port::WhenFull;
use nfluid_switch::fdb::FdbEntry;
use nfluid_switch::{Destination, DropReason, Inlet, LongSlots, PortSpec};
use nfluid_testbed::scratch::{Scratch, mac_of};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};
use switch_fixture::{BROADCAST, Members, for_each_form, frame, received, send, tagged};

/// Tag protocols: customer and service tags.
const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;
/// Ageing time that no test outlasts, in seconds.
const LONG: u32 = 1_000_000;

/// Half of the steps after which a kernel gives up (`BPF_COMPLEXITY_LIMIT_INSNS`): another kernel takes other ways.
const STEPS_MAX: u32 = 500_000;

// promise: 1.34
#[test]
fn the_kernel_verifies_the_switch_in_half_of_the_steps_that_it_allows() {
    for_each_form("steps", |scratch| {
        let steps = scratch.switch.verified_steps();
        println!("{steps} steps");
        assert!((1..=STEPS_MAX).contains(&steps), "{steps} steps");
        scratch
            .switch
            .serve()
            .expect("I/O threads' program loads too");
    });
}

/// An address that no port has.
fn stranger(number: u8) -> [u8; 6] {
    [2, 0x77, 0, 0, 0, number]
}

/// Lets a member teach the switch addresses.
fn learns(scratch: &Scratch, port: u32, ageing_s: u32, addresses: u32) {
    scratch.switch.set_learning(port, true);
    scratch.switch.set_fdb_limits(port, ageing_s, addresses);
}

fn entries(scratch: &Scratch) -> Vec<FdbEntry> {
    scratch.switch.fdb_entries().expect("the table")
}

fn learned_on(scratch: &Scratch, port: u32) -> Vec<[u8; 6]> {
    let mut learned = entries(scratch);
    learned.retain(|entry| entry.port == port && !entry.pinned);
    learned.iter().map(|entry| entry.mac).collect()
}

fn has_aged(scratch: &Scratch, mac: [u8; 6]) -> bool {
    let entries = entries(scratch);
    let entry = entries.iter().find(|entry| entry.mac == mac);
    entry.expect("nobody has swept it away").aged
}

// promise: 1.12
#[test]
fn learned_addresses_age_and_those_in_use_do_not() {
    for_each_form("ageing", |scratch| {
        let mut members = Members::of_switch(scratch, 0, 3);
        let learner = members.id(0);
        learns(scratch, learner, 1, 2);
        let (used, silent, late) = (stranger(1), stranger(2), stranger(3));
        let macs: Vec<_> = (0..3).map(|member| members.mac(member)).collect();
        let says = |source| frame(macs[2], source, 60, 1);
        let to = |destination| frame(destination, macs[1], 60, 2);
        assert_eq!(members.switched(0, &says(used)), [2]);
        // The address has not aged if it has not aged afterwards.
        let found = loop {
            assert_eq!(members.switched(0, &says(silent)), [2]);
            let reached = members.switched(1, &to(silent));
            if !has_aged(scratch, silent) {
                break reached;
            }
        };
        assert_eq!(found, [0]);
        loop {
            let silent_has_aged = has_aged(scratch, silent);
            let turn = Instant::now();
            assert_eq!(members.switched(0, &says(used)), [2]);
            let reached = members.switched(1, &to(used));
            // The machine was too slow for a result: again.
            let in_use = turn.elapsed() < Duration::from_secs(1);
            if in_use {
                assert_eq!(reached, [0], "what is in use is known");
            }
            if in_use && silent_has_aged {
                break;
            }
            sleep(Duration::from_millis(50));
        }
        assert_eq!(members.switched(1, &to(silent)), [0, 2], "flooded again");

        // An address that has aged takes its room until it is swept away.
        assert_eq!(members.switched(0, &says(late)), [2]);
        assert_eq!(scratch.switch.counters(learner).fdb_refused, 1);
        assert!(scratch.switch.fdb_sweep().expect("swept") >= 1);
        assert!(!learned_on(scratch, learner).contains(&silent));
        assert_eq!(members.switched(0, &says(late)), [2]);
        let learned = learned_on(scratch, learner);
        assert!(learned.contains(&late), "{learned:?}");
        let counters = scratch.switch.counters(learner);
        assert_eq!(counters.fdb_used as usize, learned.len());
        assert_eq!(counters.fdb_refused, 1);
        for (member, mac) in macs.iter().enumerate().skip(1) {
            let pinned = frame(*mac, macs[0], 60, 3);
            assert_eq!(members.switched(0, &pinned), [member], "pins do not age");
        }
    });
}

// promise: 1.13
#[test]
fn what_a_port_may_not_teach_is_flooded_and_counted_and_others_go_on() {
    for_each_form("limit", |scratch| {
        let mut members = Members::of_switch(scratch, 0, 3);
        learns(scratch, members.id(0), LONG, 3);
        learns(scratch, members.id(1), LONG, 3);
        let macs: Vec<_> = (0..3).map(|member| members.mac(member)).collect();
        let says = |source| frame(macs[2], source, 60, 1);
        let to = |destination| frame(destination, macs[2], 60, 2);
        for number in 1..=5 {
            assert_eq!(members.switched(0, &says(stranger(number))), [2]);
        }
        for number in 1..=3 {
            assert_eq!(members.switched(2, &to(stranger(number))), [0]);
        }
        for number in 4..=5 {
            assert_eq!(members.switched(2, &to(stranger(number))), [0, 1]);
        }
        let counters = scratch.switch.counters(members.id(0));
        assert_eq!((counters.fdb_used, counters.fdb_refused), (3, 2));
        assert_eq!(counters.dropped_total(), 0);

        assert_eq!(members.switched(1, &says(stranger(4))), [2]);
        assert_eq!(members.switched(2, &to(stranger(4))), [1]);
        let counters = scratch.switch.counters(members.id(1));
        assert_eq!((counters.fdb_used, counters.fdb_refused), (1, 0));
    });
}

// promise: 1.13
#[test]
fn an_address_that_moves_counts_where_it_is() {
    for_each_form("moving", |scratch| {
        let mut members = Members::of_switch(scratch, 0, 3);
        let (a, b) = (members.id(0), members.id(1));
        learns(scratch, a, LONG, 2);
        learns(scratch, b, LONG, 2);
        let macs: Vec<_> = (0..3).map(|member| members.mac(member)).collect();
        let says = |source| frame(macs[2], source, 60, 1);
        let to = |destination| frame(destination, macs[2], 60, 2);
        for turn in 0..10 {
            let at = turn % 2;
            assert_eq!(members.switched(at, &says(stranger(1))), [2]);
            assert_eq!(members.switched(2, &to(stranger(1))), [at]);
        }
        let used = |port| scratch.switch.counters(port).fdb_used;
        assert_eq!((used(a), used(b)), (0, 1));
        for number in 2..=3 {
            assert_eq!(members.switched(0, &says(stranger(number))), [2]);
            assert_eq!(members.switched(2, &to(stranger(number))), [0]);
        }
        assert_eq!((used(a), used(b)), (2, 1));

        // Beyond its limit a port gets no address of others either.
        assert_eq!(members.switched(0, &says(stranger(1))), [2]);
        assert_eq!(members.switched(2, &to(stranger(1))), [1]);
        assert_eq!(scratch.switch.counters(a).fdb_refused, 1);
        assert_eq!((used(a), used(b)), (2, 1));
    });
}

// promise: 1.13
#[test]
fn a_full_table_keeps_what_it_has_and_floods_the_rest() {
    for_each_form("full-fdb", |scratch| {
        let mut members = Members::of_switch(scratch, 0, 3);
        learns(scratch, members.id(0), LONG, 4096);
        let macs: Vec<_> = (0..3).map(|member| members.mac(member)).collect();
        let known = frame(macs[2], stranger(1), 60, 1);
        assert_eq!(members.switched(0, &known), [2]);
        let fill = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            let address = [2, 0x66, a, b, c, d];
            scratch
                .switch
                .pin_address(9, 0, address, members.instances[1].id(0))
        };
        let refused = (0..100_000).find_map(|number| fill(number).err());
        let refused = refused.expect("the table has an end").to_string();
        assert!(refused.contains("full"), "{refused}");

        let unknown = frame(macs[2], stranger(2), 60, 2);
        assert_eq!(members.switched(0, &unknown), [2]);
        assert_eq!(members.switched(0, &known), [2]);
        let to = |destination| frame(destination, macs[1], 60, 3);
        assert_eq!(members.switched(1, &to(stranger(1))), [0]);
        assert_eq!(members.switched(1, &to(stranger(2))), [0, 2]);
        let counters = scratch.switch.counters(members.id(0));
        assert_eq!((counters.fdb_used, counters.fdb_refused), (1, 1));
    });
}

// promise: 1.14
#[test]
fn tagged_frames_pass_a_switch_unchanged() {
    for_each_form("tagged", |scratch| {
        let mut members = Members::of_switch(scratch, 5, 3);
        let (to, from) = (members.mac(1), members.mac(0));
        for protocol in [CUSTOMER, SERVICE] {
            // Priority 5 in no VLAN; priorities, drop eligibility and VLAN in one.
            for control in [0, 0xa000, 1, 0x1064, 0xffff] {
                for len in [14, 56, 239, 252, 253, 1514, 2028] {
                    let all = tagged(&frame(BROADCAST, from, len, len as u8), protocol, control);
                    assert_eq!(members.switched(0, &all), [1, 2]);
                    let one = tagged(&frame(to, from, len, len as u8), protocol, control);
                    let in_no_vlan = control & 0xfff == 0;
                    let reached = members.switched(0, &one);
                    assert!(
                        reached == [1] || !in_no_vlan && reached == [1, 2],
                        "{protocol:x} {control:x} {len}: {reached:?}"
                    );
                }
                // A host that has answered in a VLAN is known there.
                let answer = tagged(&frame(from, to, 60, 1), protocol, control);
                members.switched(1, &answer);
                let known = tagged(&frame(to, from, 60, 2), protocol, control);
                assert_eq!(members.switched(0, &known), [1]);
            }
            let inner = tagged(&frame(BROADCAST, from, 60, 3), CUSTOMER, 7);
            let twice = tagged(&inner, protocol, 8);
            assert_eq!(members.switched(0, &twice), [1, 2]);
        }
        let counters = scratch.switch.counters(members.id(0));
        assert_eq!(counters.dropped_total(), 0);
        for len in 14..18 {
            let mut cut = tagged(&frame(to, from, 14, 4), CUSTOMER, 0);
            cut.truncate(len);
            assert_eq!(members.switched(0, &cut), [0usize; 0]);
        }
        let counters = scratch.switch.counters(members.id(0));
        assert_eq!(counters.dropped(DropReason::BadLength), 4);
    });
}

// promise: 1.14
#[test]
fn an_address_in_two_vlans_is_two_addresses() {
    for_each_form("vlans", |scratch| {
        let mut members = Members::of_switch(scratch, 0, 4);
        for member in 0..3 {
            learns(scratch, members.id(member), LONG, 16);
        }
        let (shared, asking) = (stranger(1), members.mac(3));
        let says = |vlan| tagged(&frame(asking, shared, 60, 1), CUSTOMER, vlan);
        let to = |protocol, vlan| tagged(&frame(shared, asking, 60, 2), protocol, vlan);
        members.switched(0, &says(10));
        members.switched(1, &says(20));
        members.switched(2, &frame(asking, shared, 60, 3));
        let expect = |table: &[(u16, &[usize])], members: &mut Members| {
            for (vlan, reached) in table {
                for protocol in [CUSTOMER, SERVICE] {
                    let frame = to(protocol, *vlan);
                    assert_eq!(members.switched(3, &frame), *reached, "VLAN {vlan}");
                }
            }
        };
        let everybody = [0, 1, 2];
        let table: [(u16, &[usize]); 5] = [
            (10, &[0]),
            (20, &[1]),
            (0, &[2]),
            // Priority and drop eligibility are no part of a VLAN.
            (0xf00a, &[0]),
            (30, &everybody),
        ];
        expect(&table, &mut members);
        let untagged = frame(shared, asking, 60, 4);
        assert_eq!(members.switched(3, &untagged), [2]);

        // The address moves in one VLAN, and stays where it is in the other.
        members.switched(2, &says(10));
        expect(&[(10, &[2]), (20, &[1]), (0, &[2])], &mut members);
        let vlans = entries(scratch).into_iter().filter(|e| e.mac == shared);
        let mut vlans: Vec<u16> = vlans.map(|entry| entry.vlan).collect();
        vlans.sort_unstable();
        assert_eq!(vlans, [0, 10, 20]);
    });
}

// promise: 1.15
#[test]
fn what_a_call_floods_beyond_its_copies_is_dropped_and_counted() {
    /// Copies that the flooded frames of one call may make.
    const COPIES: usize = 4096;
    /// Frames of one call.
    const FRAMES: usize = 256;
    const RECEIVERS: usize = 17;
    for_each_form("flood-limit", |scratch| {
        let mut members = Members::default();
        // The sender, a member that hears all frames, and others, whose rings are soon full.
        members.join(scratch, 0, 1, FRAMES as u32);
        members.join(scratch, 0, 1, 2 * FRAMES as u32);
        members.join(scratch, 0, RECEIVERS - 1, 64);
        let (sender, listener) = (members.mac(0), members.mac(1));
        let all = frame(BROADCAST, sender, 60, 1);
        let one = frame(listener, sender, 60, 2);
        for _ in 1..FRAMES {
            send(&mut members.ports[0], &all);
        }
        send(&mut members.ports[0], &one);
        let sent = members.ports[0].flush(WhenFull::Drop).expect("up");
        assert_eq!(sent as usize, FRAMES);

        let whole = COPIES / RECEIVERS;
        let dropped = FRAMES - 1 - whole;
        let counters = scratch.switch.counters(members.id(0));
        assert_eq!(counters.tx_calls, 1);
        assert_eq!(
            counters.dropped(DropReason::FloodLimit),
            dropped as u64,
            "what got no copy, or not all of them"
        );
        assert_eq!(counters.dropped_total(), dropped as u64);
        assert_eq!(counters.tx_frames as usize, COPIES + dropped + 1);
        let heard = received(&mut members.ports[1]);
        assert_eq!(heard.len(), whole + 1 + 1, "copies, the last one in part");
        assert_eq!(heard.last(), Some(&one), "what is not flooded goes on");
        let arrived: u64 = (1..=RECEIVERS)
            .map(|member| scratch.switch.counters(members.id(member)))
            .map(|counters| counters.rx_frames + counters.dropped(DropReason::RingFull))
            .sum();
        assert_eq!(arrived as usize, COPIES + 1);

        for port in &mut members.ports {
            received(port);
        }
        let everybody: Vec<usize> = (1..=RECEIVERS).collect();
        assert_eq!(members.switched(0, &all), everybody, "the next call's");
    });
}

// promise: 1.16
#[test]
fn reserved_addresses_and_no_others_are_dropped_and_counted() {
    for_each_form("reserved", |scratch| {
        let mut members = Members::of_switch(scratch, 0, 3);
        let sender = members.mac(0);
        let mut dropped = 0;
        for last in 0..=0x0f {
            let plain = frame([1, 0x80, 0xc2, 0, 0, last], sender, 60, 1);
            for reserved in [tagged(&plain, CUSTOMER, 10), plain] {
                assert_eq!(members.switched(0, &reserved), [0usize; 0], "{last:x}");
                dropped += 1;
            }
        }
        for other in [
            [1, 0x80, 0xc2, 0, 0, 0x10],
            [1, 0x80, 0xc2, 0, 1, 0],
            [1, 0x80, 0xc3, 0, 0, 0],
            [3, 0x80, 0xc2, 0, 0, 0],
            [0, 0x80, 0xc2, 0, 0, 0],
        ] {
            let passes = frame(other, sender, 60, 2);
            assert_eq!(members.switched(0, &passes), [1, 2], "{other:x?}");
        }
        let counters = scratch.switch.counters(members.id(0));
        assert_eq!(counters.dropped(DropReason::ReservedMac), dropped);
        assert_eq!(counters.dropped_total(), dropped);
    });
}

// promise: 1.16
#[test]
fn what_is_behind_the_port_it_came_from_is_dropped_and_counted() {
    for_each_form("same-port", |scratch| {
        let mut members = Members::of_switch(scratch, 0, 3);
        learns(scratch, members.id(0), LONG, 16);
        let to = members.mac(2);
        let tag = |frame: Vec<u8>| tagged(&frame, CUSTOMER, 10);
        members.switched(0, &frame(to, stranger(1), 60, 1));
        members.switched(0, &tag(frame(to, stranger(2), 60, 1)));
        let between = |dst, src| frame(dst, src, 60, 2);
        let local = [
            between(stranger(1), stranger(3)),
            tag(between(stranger(2), stranger(3))),
            between(members.mac(0), stranger(3)),
        ];
        for frame in &local {
            assert_eq!(members.switched(0, frame), [0usize; 0]);
        }
        // In another VLAN the address is unknown.
        let elsewhere = tag(between(stranger(1), stranger(3)));
        assert_eq!(members.switched(0, &elsewhere), [1, 2]);
        let counters = scratch.switch.counters(members.id(0));
        assert_eq!(counters.dropped(DropReason::SamePort), 3);
        assert_eq!(counters.dropped_total(), 3);
    });
}

// promise: 1.17
#[test]
fn two_switches_and_a_link_do_not_mix() {
    for_each_form("apart", |scratch| {
        let mut members = Members::default();
        members.join(scratch, 1, 3, 64);
        members.join(scratch, 2, 3, 64);
        members.join_link(scratch);
        let same = stranger(1);
        for (learner, listener) in [(0, 1), (5, 4)] {
            learns(scratch, members.id(learner), LONG, 16);
            let says = frame(members.mac(listener), same, 60, 1);
            assert_eq!(members.switched(learner, &says), [listener]);
        }
        let macs: Vec<_> = (0..8).map(|member| members.mac(member)).collect();
        // Every frame stays on its own side, whatever its sender and its destination.
        let sides: [(usize, &[usize]); 4] = [(1, &[0, 2]), (4, &[3, 5]), (6, &[7]), (7, &[6])];
        for (from, others) in sides {
            let switched = from < 6;
            let own = frame(BROADCAST, macs[from], 60, 2);
            assert_eq!(members.switched(from, &own), others);
            for (member, mac) in macs.iter().enumerate() {
                if member == from {
                    continue;
                }
                let known = switched && others.contains(&member);
                let reached = members.switched(from, &frame(*mac, macs[from], 60, 3));
                let expected = if known { &[member][..] } else { others };
                assert_eq!(reached, expected, "from {from} to {member}'s address");
            }
        }
        let to_same = |from: usize| frame(same, macs[from], 60, 4);
        assert_eq!(members.switched(1, &to_same(1)), [0]);
        assert_eq!(members.switched(4, &to_same(4)), [5]);
        assert_eq!(members.switched(6, &to_same(6)), [7]);
        for member in 0..8 {
            let counters = scratch.switch.counters(members.id(member));
            assert_eq!(counters.dropped_total(), 0, "member {member}");
        }
    });
}

// promise: 1.17
#[test]
fn a_port_that_changes_its_switch_takes_no_address_along() {
    for_each_form("leaving", |scratch| {
        let mut members = Members::default();
        members.join(scratch, 1, 3, 64);
        members.join(scratch, 2, 2, 64);
        let learner = members.id(0);
        learns(scratch, learner, LONG, 16);
        let says = frame(members.mac(1), stranger(1), 60, 1);
        assert_eq!(members.switched(0, &says), [1]);
        scratch
            .switch
            .connect(learner, Destination::Switch(2))
            .expect("connect");
        assert_eq!(learned_on(scratch, learner), [[0u8; 6]; 0]);
        assert_eq!(scratch.switch.counters(learner).fdb_used, 0);
        let to = |from: usize, members: &Members| frame(stranger(1), members.mac(from), 60, 2);
        let ask = to(1, &members);
        assert_eq!(members.switched(1, &ask), [2], "flooded, and not to it");
        let ask = to(3, &members);
        assert_eq!(members.switched(3, &ask), [0, 4], "flooded, also to it");
    });
}

// promise: 1.18
#[test]
fn a_frame_that_changes_under_way_is_dropped_and_counted() {
    for_each_form("changing", |scratch| {
        let instance = scratch.instance(2, 64, 64).expect("instance");
        let (from, to) = (instance.mac(0), instance.mac(1));
        for port in 0..2 {
            let (id, mac) = (instance.id(port), instance.mac(port));
            let switch = &scratch.switch;
            switch.connect(id, Destination::Switch(0)).expect("connect");
            switch.pin_address(0, 0, mac, id).expect("pin");
        }
        let mut ports = instance.attach().expect("attach").ports;
        let (sender, receiver) = ports.split_at_mut(1);
        let (sender, receiver) = (&mut sender[0], &mut receiver[0]);
        // A round through the ring: each of its slots holds a frame to the receiver.
        let plain = frame(to, from, 60, 1);
        for _ in 0..64 {
            send(sender, &plain);
        }
        assert_eq!(sender.flush(WhenFull::Drop).expect("up"), 64);
        assert_eq!(received(receiver).len(), 64);
        // The second frame lies where the first is delivered, which puts a tag into it: it is cut within that now.
        let first = tagged(&plain, CUSTOMER, 0);
        send(sender, &first);
        sender.queue_raw(14, receiver.entry().rx_base);
        send(sender, &plain);
        assert_eq!(sender.flush(WhenFull::Drop).expect("up"), 3);
        assert_eq!(received(receiver), [first, plain]);
        let counters = scratch.switch.counters(instance.id(0));
        assert_eq!(counters.dropped(DropReason::Changed), 1);
        assert_eq!(counters.dropped_total(), 1);
        assert_eq!(counters.tx_frames, 64 + 3);
    });
}

/// Catches: a flooded frame whose copies are not all checked. The first copy is laid over the frame, so that the frame begins
/// with the bytes of its second slot: with another destination, or another source.
// promise: 1.18
#[test]
fn a_frame_that_changes_between_its_copies_is_dropped_and_counted() {
    for_each_form("copies", |scratch| {
        let rows = [
            (DropReason::Changed, [2, 0, 0, 0, 0, 1], None),
            (DropReason::ForeignMac, BROADCAST, Some([2, 0, 0, 0, 0, 9])),
        ];
        for (reason, dst, src) in rows {
            let id = scratch.port_ids(3);
            let spec = |id, name| PortSpec {
                long: LongSlots { rx: 64, tx: 0 },
                ..PortSpec::new(id, name, mac_of(id), 64)
            };
            let own = scratch.instance_with(&[spec(id, "p0"), spec(id + 1, "p1")]);
            let (own, other) = (own.expect("instance"), spec(id + 2, "p0"));
            let other = scratch.instance_with(&[other]).expect("instance");
            for id in id..id + 3 {
                let (switch, to) = (&scratch.switch, Destination::Switch(7));
                switch.connect(id, to).expect("connect");
            }
            let mut ports = own.attach().expect("attach").ports;
            let mut other = other.attach().expect("attach").ports.remove(0);
            let first = ports[1].entry().rx_long_base + 1;
            let whole = [
                frame(BROADCAST, mac_of(id), SLOT_SIZE, 1),
                frame(dst, src.unwrap_or(mac_of(id)), 1000, 2),
            ]
            .concat();
            let (start, len) = ports[0].pool().as_raw_parts();
            let at = first as usize * SLOT_SIZE;
            assert!(at + whole.len() <= len);
            // SAFETY: the bytes lie in the pool, of which no frame is held.
            unsafe {
                start
                    .add(at)
                    .copy_from_nonoverlapping(whole.as_ptr(), whole.len())
            };
            ports[0].queue_raw(60, 0);
            let desc = tx_desc_long(whole.len() as u16, first, 2);
            ports[0].raw_ring().tx[0].store(desc, Relaxed);
            assert_eq!(ports[0].flush(WhenFull::Drop).expect("up"), 1);
            assert!(received(&mut ports[1]) == [whole], "the first copy");
            assert!(received(&mut other).is_empty(), "{reason}");
            let counters = scratch.switch.counters(id);
            assert_eq!(counters.dropped(reason), 1, "{reason}");
            assert_eq!((counters.dropped_total(), counters.tx_frames), (1, 2));
            for id in id..id + 3 {
                let gone = scratch.switch.connect(id, Destination::None);
                gone.expect("disconnect");
            }
        }
    });
}

// promise: 7.5
#[test]
fn what_a_capture_says_of_a_frame_is_nowhere_where_its_receiver_could_change_it() {
    for_each_form("captures", |scratch| {
        const OWN: u64 = 0x0000_0400_0007_0007;
        let mut members = Members::of_switch(scratch, 0, 2);
        let (from, to) = (members.id(0), members.id(1));
        let sent = frame(members.mac(1), members.mac(0), 60, 1);
        let (pool, bytes) = members.ports[1].pool().as_raw_parts();
        // Behind the longest frame there is room in each slot, which the receiver has for itself.
        let behind = (FRAME_MAX..bytes).step_by(SLOT_SIZE);
        let own: Vec<*mut u64> = behind.map(|at| pool.wrapping_add(at).cast()).collect();
        for word in &own {
            // SAFETY: within the pool, which is mapped until the members are dropped, and aligned.
            unsafe { word.write_volatile(OWN) };
        }
        let reader = scratch.switch.capture_reader().expect("a reader");
        scratch.switch.set_capture(to, true);
        for _ in 0..3 {
            send(&mut members.ports[0], &sent);
        }
        members.ports[0].flush(WhenFull::Drop).expect("sent");
        assert_eq!(received(&mut members.ports[1]).len(), 3);
        let mut seen = Vec::new();
        let read = reader.run(Duration::from_millis(50), |captured| {
            seen.extend(captured.map(|it| (it.from, it.to, it.frame.to_vec())));
            captured.is_some()
        });
        read.expect("captured frames");
        assert_eq!(seen, vec![(from, to, sent); 3]);
        // SAFETY: as above.
        let is_untouched = |word: &*mut u64| unsafe { word.read_volatile() } == OWN;
        assert!(own.iter().all(is_untouched));
    });
}

/// Catches: a learning port that takes over an address which is pinned to another one.
#[test]
fn a_learning_port_takes_no_address_that_is_pinned() {
    for_each_form("pinned", |scratch| {
        let mut members = Members::of_switch(scratch, 3, 3);
        let [learner, owner, other] = [0, 1, 2].map(|member| members.mac(member));
        scratch.switch.set_learning(members.id(0), true);
        assert_eq!(members.switched(0, &frame(other, learner, 60, 1)), [2]);
        assert_eq!(
            members.switched(0, &frame(other, owner, 60, 2)),
            [0usize; 0]
        );
        let counters = scratch.switch.counters(members.id(0));
        assert_eq!(counters.dropped(DropReason::ForeignMac), 1);
        assert_eq!(members.switched(2, &frame(owner, other, 60, 3)), [1]);
    });
}
