//! A receiver that sleeps is woken when its deployment says: for so many frames, or so long after the
//! first of them.

mod switch_fixture;

use nfluid_ring::Offload;
use nfluid_ring::doorbell::Woken;
use nfluid_ring::port::{Port, WhenFull};
use nfluid_switch::{DropReason, LongSlots, PortSpec, SwitchError, Wake};
use nfluid_testbed::scratch::{Scratch, mac_of};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};
use switch_fixture::{Members, for_each_form, frame, received, send};

/// Longer than a few calls take, also in a guest without hardware support.
const LONG: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(20);
const FRAMES: u32 = 8;

fn waits_for(frames: u32, after: Duration) -> Wake {
    Wake { frames, after }
}

/// Members 0 and 1 of a switch, or of a link; member 1 waits for frames.
fn pair(scratch: &mut Scratch, linked: bool, after: Duration) -> Members {
    let mut members = Members::default();
    if linked {
        members.join_link(scratch);
    } else {
        members.join(scratch, 1, 2, 64);
    }
    let wake = waits_for(FRAMES, after);
    scratch.switch.set_wake(members.id(1), wake).expect("set");
    members
}

/// Does what takes less than [`LONG`], again if the machine stood still for so long meanwhile: nothing can be said
/// then.
fn within_long<T>(act: impl FnMut() -> T) -> T {
    within(LONG, act)
}

fn within<T>(time: Duration, mut act: impl FnMut() -> T) -> T {
    loop {
        let start = Instant::now();
        let done = act();
        if start.elapsed() < time {
            return done;
        }
    }
}

/// Does as a receiver does before it blocks.
fn fall_asleep(port: &Port, epoch: u32) {
    let words = &port.raw_ring().receiver;
    words.rx_seen.store(port.taken(), SeqCst);
    words.rx_sleep.store(epoch, SeqCst);
}

fn send_to_1(members: &mut Members, count: u32) {
    let one = frame(members.mac(1), members.mac(0), 60, 1);
    for _ in 0..count {
        send(&mut members.ports[0], &one);
    }
    let sent = members.ports[0].flush(WhenFull::Drop).expect("flush");
    assert_eq!(sent, count);
}

fn doorbells(scratch: &Scratch, members: &Members) -> u64 {
    scratch.switch.counters(members.id(1)).doorbells
}

// promise: 1.19
#[test]
fn a_sleeping_receiver_is_rung_for_as_many_frames_as_it_waits_for() {
    for_each_form("frames", |scratch| {
        let (mut members, early) = within_long(|| {
            let mut members = pair(scratch, false, LONG);
            fall_asleep(&members.ports[1], 7);
            send_to_1(&mut members, FRAMES - 1);
            let early = doorbells(scratch, &members);
            (members, early)
        });
        assert_eq!(early, 0);
        send_to_1(&mut members, 1);
        assert_eq!(doorbells(scratch, &members), 1);
        // The receiver is awake, and has read everything: the next sleep is another one.
        assert_eq!(received(&mut members.ports[1]).len(), FRAMES as usize);
        fall_asleep(&members.ports[1], 8);
        send_to_1(&mut members, FRAMES);
        assert_eq!(doorbells(scratch, &members), 2);
    });
}

// promise: 1.19
#[test]
fn a_sleeping_receiver_is_rung_for_fewer_frames_when_the_first_has_waited_long_enough() {
    for_each_form("after", |scratch| {
        for linked in [false, true] {
            let mut members = pair(scratch, linked, SHORT);
            for (epoch, rung) in [(3, 1), (4, 2)] {
                fall_asleep(&members.ports[1], epoch);
                let start = Instant::now();
                send_to_1(&mut members, 2);
                while doorbells(scratch, &members) < rung {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(start.elapsed() >= SHORT);
                assert_eq!(received(&mut members.ports[1]).len(), 2);
            }
        }
    });
}

/// An NF that an I/O thread serves passes frames on from the slots in which they came, and sleeps before they are sent.
// promise: 1.19
#[test]
fn frames_that_a_receiver_has_taken_and_still_holds_do_not_count() {
    const HELD: u32 = FRAMES / 2;
    for_each_form("held", |scratch| {
        let (mut members, own, early) = within_long(|| {
            let mut members = pair(scratch, false, LONG);
            let mut own = members.instances[1].attach().expect("attach");
            send_to_1(&mut members, HELD);
            for _ in 0..HELD {
                assert!(own.ports[0].take_slot().is_some());
            }
            // The receiver falls asleep, and stores the frames that it has seen.
            let slept = own.doorbell.wait(&mut own.ports, None, Duration::ZERO);
            assert_eq!(slept.expect("a wait"), Woken::Nothing);
            own.ports[0].raw_ring().receiver.rx_sleep.store(8, SeqCst);
            send_to_1(&mut members, FRAMES - 1);
            let early = doorbells(scratch, &members);
            (members, own, early)
        });
        assert_eq!(early, 0);
        send_to_1(&mut members, 1);
        assert_eq!(doorbells(scratch, &members), 1);
        drop(own);
    });
}

// promise: 1.19
#[test]
fn a_time_that_began_for_frames_which_were_taken_since_wakes_nobody() {
    for_each_form("stale", |scratch| {
        let mut members = pair(scratch, false, SHORT);
        let mut epoch = 0;
        let rung = within(SHORT, || {
            epoch += 2;
            fall_asleep(&members.ports[1], epoch);
            send_to_1(&mut members, 1);
            assert_eq!(received(&mut members.ports[1]).len(), 1);
            fall_asleep(&members.ports[1], epoch + 1);
            doorbells(scratch, &members)
        });
        std::thread::sleep(5 * SHORT);
        assert_eq!(doorbells(scratch, &members), rung, "nothing waits");
        // The next one has its whole time.
        let start = Instant::now();
        send_to_1(&mut members, 1);
        while doorbells(scratch, &members) == rung {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(start.elapsed() >= SHORT);
    });
}

// promise: 1.19
#[test]
fn a_ring_that_is_full_of_what_is_held_does_not_wait_for_more() {
    for_each_form("full", |scratch| {
        let (members, own) = within_long(|| {
            let mut members = pair(scratch, false, LONG);
            let mut own = members.instances[1].attach().expect("attach");
            let held = own.ports[0].entry().ring_slots - FRAMES / 2;
            send_to_1(&mut members, held);
            for _ in 0..held {
                assert!(own.ports[0].take_slot().is_some());
            }
            fall_asleep(&own.ports[0], 8);
            send_to_1(&mut members, FRAMES / 2);
            (members, own)
        });
        assert_eq!(doorbells(scratch, &members), 1);
        drop(own);
    });
}

/// Catches: a receiver that sleeps on although its slots for long frames have no room for the longest one, because that would
/// begin in the next block.
// promise: 1.19
#[test]
fn a_receiver_whose_slots_for_long_frames_may_be_short_does_not_wait_for_more() {
    for_each_form("long", |scratch| {
        let rung = within_long(|| rung_for_a_long_frame(scratch));
        assert_eq!(
            rung, 1,
            "up to slot 35 of 64: the longest frame would begin at 64"
        );
    });
}

/// How often a receiver that waits for more frames is rung for one that begins at slot 30 of 64.
fn rung_for_a_long_frame(scratch: &mut Scratch) -> u64 {
    let id = scratch.port_ids(2);
    let spec = |id, rx, tx| PortSpec {
        long: LongSlots { rx, tx },
        kernel_doorbell: true,
        ..PortSpec::new(id, "p0", mac_of(id), 64)
    };
    let specs = [spec(id, 0, 64), spec(id + 1, 64, 0)];
    let [mut a, mut b] = specs.map(|spec| scratch.instance_with(&[spec]).expect("instance"));
    scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
    let [mut from, mut to] = [&a, &b].map(|one| one.attach().expect("attach").ports.remove(0));
    let five_slots = frame(mac_of(id + 1), mac_of(id), 9014, 1);
    let mut send_long = || {
        let queued = from.send_long(|slots| {
            slots[..9014].copy_from_slice(&five_slots);
            (9014, Offload::NONE)
        });
        assert!(queued);
        from.flush(WhenFull::Drop).expect("sent");
    };
    for _ in 0..6 {
        send_long();
        assert_eq!(received(&mut to).len(), 1);
    }
    let wake = waits_for(FRAMES, LONG);
    scratch.switch.set_wake(b.id(0), wake).expect("set");
    fall_asleep(&to, 1);
    send_long();
    scratch.switch.counters(b.id(0)).doorbells
}

// promise: 1.19
#[test]
fn a_links_sender_learns_of_a_sleeping_peer_when_enough_frames_wait() {
    for_each_form("told", |scratch| {
        let asleep =
            |members: &Members| members.ports[0].raw_ring().switch.peer_asleep.load(Relaxed);
        let (mut members, early) = within_long(|| {
            let mut members = pair(scratch, true, LONG);
            fall_asleep(&members.ports[1], 5);
            send_to_1(&mut members, FRAMES - 1);
            let early = asleep(&members);
            (members, early)
        });
        assert_eq!(early, 0);
        send_to_1(&mut members, 1);
        assert_eq!(asleep(&members), 5);
    });
}

#[test]
fn a_receiver_that_waits_for_nothing_is_rung_at_once_again() {
    for_each_form("again", |scratch| {
        let mut members = pair(scratch, false, LONG);
        let id = members.id(1);
        scratch.switch.set_wake(id, Wake::AT_ONCE).expect("set");
        fall_asleep(&members.ports[1], 9);
        send_to_1(&mut members, 1);
        assert_eq!(doorbells(scratch, &members), 1);
        assert_eq!(scratch.switch.counters(id).dropped(DropReason::RingFull), 0);
    });
}

#[test]
fn what_a_receiver_cannot_wait_for_is_refused() {
    for_each_form("refused", |scratch| {
        let members = pair(scratch, false, LONG);
        for wake in [
            waits_for(33, SHORT),
            waits_for(2, Duration::ZERO),
            waits_for(2, Duration::from_secs(2)),
        ] {
            let refused = scratch.switch.set_wake(members.id(1), wake);
            assert!(matches!(refused, Err(SwitchError::Limit(_))), "{wake:?}");
        }
    });
}
