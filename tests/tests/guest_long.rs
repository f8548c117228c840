//! Long frames and super-frames between instances: whole, in order, at receivers that take them; what does not arrive is
//! counted under its reason, and nobody else is disturbed.

#[path = "guest_long/lies.rs"]
mod lies;
mod switch_fixture;

use lies::queue_hostile;
use nfluid_ring::layout::{DESC_OFFLOAD, FRAME_MAX, LONG_MAX, SLOT_SIZE, tx_desc_long};
use nfluid_ring::offload::{OFFLOAD_BYTES, PartialChecksum, SegmentKind, Segmentation};
use nfluid_ring::port::{Port, PortsOutbox, WhenFull};
use nfluid_ring::{Level, Offload, Outbox};
use nfluid_switch::signal::SIGNAL_FOR_MAX;
use nfluid_switch::{Destination, DropReason, LongSlots, PortSignal, PortSpec};
use nfluid_testbed::random::{Bytes, Random};
use nfluid_testbed::scratch::{Scratch, ScratchInstance, mac_of};
use switch_fixture::{BROADCAST, for_each_form, frame};

/// A frame and what is still to be done to it.
type Sent = (Vec<u8>, Offload);

const CUT: Segmentation = Segmentation {
    kind: SegmentKind::TcpV4,
    header_len: 54,
    payload_len: 1460,
    is_ecn: false,
};
const CHECKSUM: PartialChecksum = PartialChecksum {
    start: 34,
    offset: 6,
};

/// An instance with one port of 64 slots, these slots for long frames and this level.
fn instance(scratch: &mut Scratch, rx: u32, level: Level) -> ScratchInstance {
    let id = scratch.port_ids(1);
    let spec = PortSpec {
        long: LongSlots { rx, tx: 256 },
        level,
        ..PortSpec::new(id, "p0", mac_of(id), 64)
    };
    scratch.instance_with(&[spec]).expect("instance")
}

/// Two linked instances; the second has `rx` slots for long frames.
fn linked(scratch: &mut Scratch, rx: u32, level: Level) -> [(ScratchInstance, Port); 2] {
    let mut a = instance(scratch, 64, Level::Super);
    let mut b = instance(scratch, rx, level);
    scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
    let port = |one: &ScratchInstance| one.attach().expect("attach").ports.remove(0);
    let ports = (port(&a), port(&b));
    [(a, ports.0), (b, ports.1)]
}

fn content(len: usize, number: u64) -> Vec<u8> {
    let mut bytes = frame(BROADCAST, mac_of(1), len, 0);
    Bytes::of(number).fill(&mut bytes[14..]);
    bytes
}

fn queue(port: &mut Port, (bytes, offload): &Sent) -> bool {
    if bytes.len() <= FRAME_MAX && offload.is_none() {
        return port.send(|slot| {
            slot[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        });
    }
    port.send_long(|slots| {
        slots[..bytes.len()].copy_from_slice(bytes);
        (bytes.len(), *offload)
    })
}

fn send(port: &mut Port, sent: &Sent) {
    if !queue(port, sent) {
        port.flush(WhenFull::Drop).expect("flush");
        assert!(queue(port, sent), "no room for {} bytes", sent.0.len());
    }
}

fn received(port: &mut Port) -> Vec<Sent> {
    let mut frames = Vec::new();
    port.receive_offload(usize::MAX, |bytes, offload| {
        frames.push((bytes.to_vec(), offload));
    });
    frames
}

/// What a sender may say of a frame of this length.
fn offload_for(len: usize, choice: u32) -> Offload {
    match choice % 4 {
        0 if len > 1000 => Offload::segmented(34, CUT),
        1 if len >= 42 => Offload::partial_checksum(CHECKSUM),
        _ => Offload::NONE,
    }
}

// promise: 1.42
#[test]
fn frames_of_every_length_arrive_whole_in_order_and_with_what_is_still_to_be_done() {
    for_each_form("long", |scratch| {
        for area in [64, 128, 4096] {
            let [(a, mut from), (b, mut to)] = linked(scratch, area, Level::Super);
            let steps = (1..=32).map(|slots| slots * SLOT_SIZE);
            let edges =
                steps.flat_map(|end| [end - 49, end - 48, end - 17, end - 16, end - 15, end]);
            let lengths: Vec<usize> = edges
                .chain([14, 60, 1514, FRAME_MAX, FRAME_MAX + 1, 9014, LONG_MAX])
                .filter(|len| *len <= LONG_MAX)
                .collect();
            let mut random = Random(area.into());
            let mut all = [0u64; 4];
            for number in 0..600 {
                let len = random.pick(&lengths);
                let sent = (content(len, number), offload_for(len, random.below(4)));
                send(&mut from, &sent);
                // Several at once, as far as the area has room for all of them.
                let at_once = if area < 4096 { 1 } else { 1 + random.below(8) };
                let mut want = vec![sent];
                for _ in 1..at_once {
                    let len = random.pick(&lengths);
                    let next = (content(len, number), offload_for(len, random.below(4)));
                    send(&mut from, &next);
                    want.push(next);
                }
                from.flush(WhenFull::Drop).expect("flush");
                assert!(received(&mut to) == want, "area {area}, frame {number}");
                for (bytes, offload) in want {
                    let len = bytes.len();
                    all[0] += 1;
                    all[1] += len as u64;
                    all[2] += offload.segments(len) as u64 - 1;
                    all[3] += (offload.wire_len(len) - len) as u64;
                }
            }
            let (sent, got) = (
                scratch.switch.counters(a.id(0)),
                scratch.switch.counters(b.id(0)),
            );
            assert_eq!((sent.dropped_total(), got.dropped_total()), (0, 0));
            let sent = [
                sent.tx_frames,
                sent.tx_bytes,
                sent.tx_more_segments,
                sent.tx_more_bytes,
            ];
            let got = [
                got.rx_frames,
                got.rx_bytes,
                got.rx_more_segments,
                got.rx_more_bytes,
            ];
            assert_eq!((sent, got), (all, all));
        }
    });
}

// promise: 1.42
#[test]
fn a_network_function_makes_more_frames_at_once_than_its_slots_hold() {
    for_each_form("emit", |scratch| {
        let [(_a, from), (_b, mut to)] = linked(scratch, 4096, Level::Super);
        let mut ports = [from];
        let made: Vec<Sent> = (0..40)
            .map(|number| (content(200, number), Offload::partial_checksum(CHECKSUM)))
            .collect();
        for (number, (bytes, offload)) in made.iter().enumerate() {
            let emitted = PortsOutbox(&mut ports).emit_offload(0, bytes, *offload);
            assert!(emitted, "frame {number}");
        }
        ports[0].flush(WhenFull::Drop).expect("flush");
        assert!(received(&mut to) == made);
    });
}

// promise: 1.43
#[test]
fn a_receiver_gets_what_it_takes_and_the_rest_is_counted_there() {
    for_each_form("levels", |scratch| {
        let kinds: [Sent; 4] = [
            (content(60, 1), Offload::NONE),
            (content(60, 2), Offload::partial_checksum(CHECKSUM)),
            (content(9014, 3), Offload::NONE),
            (content(1600, 4), Offload::segmented(34, CUT)),
        ];
        let rows = [
            (0, Level::Plain, [true, false, false, false], (1, 2)),
            (64, Level::Plain, [true, false, true, false], (0, 2)),
            (0, Level::Checksums, [true, true, false, false], (1, 1)),
            (64, Level::Checksums, [true, true, true, false], (0, 1)),
            (64, Level::Super, [true; 4], (0, 0)),
        ];
        for (area, level, taken, (too_long, no_offload)) in rows {
            let [(a, mut from), (b, mut to)] = linked(scratch, area, level);
            for sent in &kinds {
                send(&mut from, sent);
            }
            assert_eq!(
                from.flush(WhenFull::Keep).expect("flush"),
                4,
                "none is kept for ever"
            );
            let want: Vec<&Sent> = kinds
                .iter()
                .zip(taken)
                .filter(|k| k.1)
                .map(|k| k.0)
                .collect();
            let got = received(&mut to);
            assert!(got.iter().eq(want), "{area} {level:?}");
            let counters = scratch.switch.counters(b.id(0));
            assert_eq!(counters.dropped(DropReason::TooLong), too_long);
            assert_eq!(counters.dropped(DropReason::NoOffload), no_offload);
            let sender = scratch.switch.counters(a.id(0));
            assert_eq!((sender.tx_frames, sender.dropped_total()), (4, 0));
        }
    });
}

// promise: 1.43
#[test]
fn members_of_a_trust_group_take_plain_frames_alone() {
    for_each_form("groups", |scratch| {
        let group = scratch.group(512).expect("a group");
        let mut member = scratch.member(&group, 1, 64, 64).expect("a member");
        let mut other = scratch.member(&group, 1, 64, 64).expect("a member");
        let mut outsider = instance(scratch, 64, Level::Super);
        scratch
            .lead((&mut outsider, 0), (&member, 0))
            .expect("link");
        scratch
            .link((&mut other, 0), (&mut member, 0))
            .expect("link");
        let [mut from, mut to, mut inside] =
            [&outsider, &member, &other].map(|one| one.attach().expect("attach").ports.remove(0));
        send(&mut from, &(content(9014, 1), Offload::NONE));
        send(
            &mut from,
            &(content(60, 2), Offload::partial_checksum(CHECKSUM)),
        );
        send(&mut from, &(content(60, 3), Offload::NONE));
        from.flush(WhenFull::Drop).expect("flush");
        assert!(received(&mut to) == [(content(60, 3), Offload::NONE)]);
        // What a member may write of a slot of its own.
        let own = group.slots_of(other.memory.pool_id)[0];
        let words = Offload::partial_checksum(CHECKSUM).words(60);
        queue_hostile(&mut inside, tx_desc_long(9014, own, 5), words);
        queue_hostile(&mut inside, tx_desc_long(60, own, 1) | DESC_OFFLOAD, words);
        inside.flush(WhenFull::Drop).expect("flush");
        assert!(received(&mut to).is_empty());
        let counters = scratch.switch.counters(member.id(0));
        assert_eq!(counters.dropped(DropReason::TooLong), 2);
        assert_eq!(counters.dropped(DropReason::NoOffload), 2);
        assert!(
            scratch.member(&group, 1, 64, 64).is_ok(),
            "and the group goes on"
        );
        let id = scratch.port_ids(1);
        let long = PortSpec {
            long: LongSlots { rx: 64, tx: 0 },
            ..PortSpec::new(id, "p0", mac_of(id), 64)
        };
        let pool = scratch.pool_id();
        let refused = nfluid_switch::InstanceMemory::allocate_in(&group, pool, &[long]);
        let why = refused.expect_err("refused").to_string();
        assert!(
            why.contains("a member of a trust group takes no long frames"),
            "{why}"
        );
    });
}

// promise: 1.42, 1.43
#[test]
fn a_switch_forwards_and_floods_them_to_those_who_take_them() {
    for_each_form("bridge", |scratch| {
        let kinds = [
            (64, Level::Super),
            (64, Level::Super),
            (0, Level::Plain),
            (64, Level::Plain),
        ];
        let mut members = Vec::new();
        for (area, level) in kinds {
            let one = instance(scratch, area, level);
            let (id, mac) = (one.id(0), one.mac(0));
            scratch
                .switch
                .connect(id, Destination::Switch(1))
                .expect("connect");
            scratch.switch.pin_address(1, 0, mac, id).expect("pin");
            members.push((one.attach().expect("attach").ports.remove(0), one));
        }
        let to = |dst: [u8; 6], len| {
            let mut bytes = content(len, 9);
            bytes[..6].copy_from_slice(&dst);
            bytes[6..12].copy_from_slice(&members[0].1.mac(0));
            bytes
        };
        let all = [
            (
                to(members[1].1.mac(0), 30_000),
                Offload::segmented(34, CUT),
                [0, 1, 0, 0],
            ),
            (to(BROADCAST, 9014), Offload::NONE, [0, 1, 0, 1]),
            (
                to(BROADCAST, 60),
                Offload::partial_checksum(CHECKSUM),
                [0, 1, 0, 0],
            ),
            (to([2, 9, 9, 9, 9, 9], 100), Offload::NONE, [0, 1, 1, 1]),
            (to(members[2].1.mac(0), 3000), Offload::NONE, [0, 0, 0, 0]),
        ];
        for (bytes, offload, reached) in all {
            let sent = (bytes, offload);
            send(&mut members[0].0, &sent);
            members[0].0.flush(WhenFull::Drop).expect("flush");
            for (number, (port, _)) in members.iter_mut().enumerate() {
                let got = received(port);
                assert_eq!(got.len(), reached[number], "at {number}");
                assert!(got.iter().all(|got| *got == sent), "at {number}");
            }
        }
        let counters = |at: usize| scratch.switch.counters(members[at].1.id(0));
        assert_eq!(counters(0).tx_frames, 1 + 3 + 3 + 3 + 1);
        assert_eq!(counters(0).dropped_total(), 0);
        assert_eq!(counters(2).dropped(DropReason::TooLong), 2);
        assert_eq!(counters(2).dropped(DropReason::NoOffload), 1);
        assert_eq!(counters(3).dropped(DropReason::NoOffload), 1);
        let wire = |at: usize| counters(at).rx_bytes + counters(at).rx_more_bytes;
        let sent = counters(0).tx_bytes + counters(0).tx_more_bytes;
        assert_eq!(
            sent,
            wire(1) + wire(2) + wire(3),
            "the books balance in bytes"
        );
    });
}

// promise: 1.42
#[test]
fn a_full_area_drops_or_keeps_and_goes_on_when_there_is_room() {
    for_each_form("area", |scratch| {
        let [(a, mut from), (b, mut to)] = linked(scratch, 128, Level::Super);
        let whole = (content(LONG_MAX, 1), Offload::NONE);
        let short = (content(60, 2), Offload::NONE);
        for _ in 0..6 {
            send(&mut from, &whole);
        }
        send(&mut from, &short);
        assert_eq!(
            from.flush(WhenFull::Keep).expect("flush"),
            4,
            "four fit into 128 slots"
        );
        assert_eq!(from.queued(), 3, "a short frame waits behind the long ones");
        assert_eq!(received(&mut to).len(), 4);
        assert_eq!(from.flush(WhenFull::Keep).expect("flush"), 3);
        assert_eq!(
            received(&mut to),
            [whole.clone(), whole.clone(), short.clone()]
        );
        for _ in 0..5 {
            send(&mut from, &whole);
        }
        send(&mut from, &short);
        from.flush(WhenFull::Drop).expect("flush");
        let got = received(&mut to);
        assert_eq!(got.len(), 5, "the short frame has room");
        let counters = scratch.switch.counters(b.id(0));
        assert_eq!(counters.dropped(DropReason::RingFull), 1);
        assert_eq!(scratch.switch.counters(a.id(0)).tx_frames, 13);
    });
}

// promise: 1.42
#[test]
fn slots_are_released_one_by_one_and_a_successor_goes_on() {
    for_each_form("release", |scratch| {
        let [(_a, mut from), (b, mut to)] = linked(scratch, 256, Level::Super);
        let mut random = Random(3);
        let mut number = 0;
        for _ in 0..300 {
            let mut held = Vec::new();
            for _ in 0..1 + random.below(4) {
                number += 1;
                let len = 14 + random.below(20_000) as usize;
                send(&mut from, &(content(len, number), Offload::NONE));
                held.push((len, number));
            }
            from.flush(WhenFull::Drop).expect("flush");
            let taken: Vec<_> = held
                .iter()
                .map(|_| to.take_slot().expect("a frame"))
                .collect();
            for ((len, number), taken) in held.iter().zip(&taken) {
                let want = content(*len, *number);
                assert_eq!(to.taken_frame(taken), Some(&want[..]));
            }
            // In pieces; what is left is a successor's.
            let some = random.below(taken.len() as u32 + 1) as usize;
            let released = taken.get(some).map_or(to.taken(), |next| next.position);
            to.release_to(released);
            assert!(
                taken[..some]
                    .iter()
                    .all(|taken| to.taken_frame(taken).is_none())
            );
            if random.one_in(3) {
                to = b.attach().expect("attach").ports.remove(0);
                let left = received(&mut to);
                let want = held[some..]
                    .iter()
                    .map(|(len, number)| content(*len, *number));
                assert!(
                    left.iter()
                        .map(|left| &left.0)
                        .eq(&want.collect::<Vec<_>>())
                );
            } else {
                to.release();
            }
        }
        assert_eq!(scratch.switch.counters(b.id(0)).dropped_total(), 0);
    });
}

// promise: 1.42
#[test]
fn a_dropped_long_frame_gives_its_slots_back() {
    for_each_form("holes", |scratch| {
        let [(_a, mut from), (b, mut to)] = linked(scratch, 64, Level::Super);
        let ipv6 = |number| {
            let mut bytes = content(40_000, number);
            bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
            bytes[14..16].copy_from_slice(&[0x60, 0x00]);
            (bytes, Offload::NONE)
        };
        // A signal on each frame: those of senders without ECN are dropped, in a room that was reserved.
        let always = PortSignal {
            probability: u32::MAX,
            is_refused: false,
        };
        let (mut number, mut dropped, mut arrived) = (0, 0, 0);
        while dropped < 200 {
            let switch = &scratch.switch;
            switch
                .set_signal(b.id(0), always, SIGNAL_FOR_MAX)
                .expect("a signal");
            send(&mut from, &ipv6(number));
            from.flush(WhenFull::Drop).expect("flush");
            number += 1;
            match received(&mut to).len() {
                0 => dropped += 1,
                // A second is soon over on a slow machine.
                _ if scratch.switch.signal(b.id(0)) != always => arrived += 1,
                _ => panic!("frame {number} arrives"),
            }
        }
        let counters = scratch.switch.counters(b.id(0));
        assert_eq!(counters.dropped(DropReason::Congestion), 200);
        assert_eq!(counters.rx_frames, arrived);
        assert_eq!(counters.dropped(DropReason::RingFull), 0, "no slot is lost");
    });
}

// promise: 1.45
#[test]
fn a_call_is_bounded_by_slots() {
    for_each_form("call", |scratch| {
        let [(a, mut from), (_b, mut to)] = linked(scratch, 4096, Level::Super);
        // 40 times the same slots: a sender may do that.
        let base = from.entry().tx_long_base;
        for _ in 0..40 {
            queue_hostile(
                &mut from,
                tx_desc_long(LONG_MAX as u16, base, 32),
                [0; OFFLOAD_BYTES],
            );
        }
        let calls = scratch.switch.counters(a.id(0)).tx_calls;
        assert_eq!(from.flush(WhenFull::Drop).expect("flush"), 40);
        assert_eq!(
            scratch.switch.counters(a.id(0)).tx_calls - calls,
            2,
            "32 frames and 8"
        );
        assert_eq!(received(&mut to).len(), 40);
    });
}
