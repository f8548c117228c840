//! The I/O models: the switch has the same result under each caller, and no party sleeps over frames.

mod switch_fixture;

use nfluid_io::{Idle, IoThread, Placement};
use nfluid_ring::Batch;
use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::{AGEING, Woken};
use nfluid_ring::engine::Engine;
use nfluid_ring::port::{Port, WhenFull};
use nfluid_switch::{Destination, PortCounters};
use nfluid_testbed::io_process::duties;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use switch_fixture::{BROADCAST, Members, for_each_form, frame, received, send};

const SLEEPS: Idle = Idle::Sleep { looks: 0 };

fn io_thread(scratch: &Scratch, idle: Idle) -> IoThread {
    let serve = scratch.switch.serve().expect("it was loaded here");
    IoThread::start("io", serve, idle, Placement::Anywhere).expect("a thread")
}

fn serve(thread: &IoThread, instance: &ScratchInstance) {
    for duty in duties(instance).expect("descriptors") {
        thread.add(duty).expect("the thread lives");
    }
}

fn take_back(thread: &IoThread, instance: &ScratchInstance) {
    for part in &instance.memory.ports {
        let duty = thread.remove(part.spec.id).expect("the thread lives");
        assert!(duty.is_some(), "it was served");
    }
}

/// Until the I/O thread has consumed all, without a sleep.
fn drain(attached: &mut Attached) {
    while attached.ports.iter().any(|port| port.queued() > 0) {
        attached.ports.iter_mut().for_each(|port| {
            port.collect();
        });
        std::thread::yield_now();
    }
}

fn numbered(to: [u8; 6], from: [u8; 6], number: u64) -> Vec<u8> {
    let mut bytes = frame(to, from, 60 + (number % 200) as usize, number as u8);
    bytes[14..22].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number_of(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[14..22].try_into().expect("eight bytes"))
}

/// Sends frames that a switch forwards, floods and refuses for each reason; the counters of all ports.
fn odd_frames(scratch: &mut Scratch, served: bool) -> Vec<PortCounters> {
    let switch = u32::from(served);
    let a = scratch.instance(1, 256, 256).expect("instance");
    let members = Members::of_switch(scratch, switch, 3);
    scratch
        .switch
        .connect(a.id(0), Destination::Switch(switch))
        .expect("connect");
    scratch
        .switch
        .pin_address(switch, 0, a.mac(0), a.id(0))
        .expect("pin");
    let (own, to) = (a.mac(0), members.mac(0));
    let thread = io_thread(scratch, SLEEPS);
    if served {
        serve(&thread, &a);
    }
    let mut from = a.attach().expect("attach");
    let port = &mut from.ports[0];
    for len in [14, 60, 61, 256, 257, 1514, 2032] {
        send(port, &frame(to, own, len, 1));
    }
    send(port, &frame(BROADCAST, own, 60, 2));
    send(port, &frame([2, 9, 9, 9, 9, 9], own, 60, 3));
    send(port, &frame(to, members.mac(1), 60, 4));
    send(port, &frame(own, own, 60, 5));
    send(port, &frame([1, 0x80, 0xc2, 0, 0, 0], own, 60, 6));
    port.queue_raw(13, 0);
    port.queue_raw(2033, 0);
    port.queue_raw(60, u32::MAX);
    // More than the receiver has room for.
    for _ in 0..100 {
        send(port, &frame(to, own, 60, 7));
    }
    port.flush(WhenFull::Drop).expect("the port is up");
    drain(&mut from);
    if served {
        take_back(&thread, &a);
    }
    let ids = [a.id(0), members.id(0), members.id(1), members.id(2)];
    let mut counters: Vec<_> = ids.map(|id| scratch.switch.counters(id)).into();
    // Only the caller, and the number of calls, differ.
    counters
        .iter_mut()
        .for_each(|counters| counters.tx_calls = 0);
    counters
}

// promise: 1.21
#[test]
fn an_io_thread_forwards_floods_drops_and_counts_as_the_sender_itself_does() {
    for_each_form("io-odd", |scratch| {
        let inline = odd_frames(scratch, false);
        let served = odd_frames(scratch, true);
        assert_eq!(inline, served);
        assert!(inline[0].tx_frames > 100, "{inline:?}");
    });
}

// promise: 1.22
#[test]
fn a_full_link_keeps_what_the_sender_asks_to_keep() {
    for_each_form("io-keep", |scratch| {
        let mut a = scratch.instance(1, 128, 128).expect("instance");
        let mut b = scratch.instance(1, 64, 64).expect("instance");
        scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
        let thread = io_thread(scratch, SLEEPS);
        serve(&thread, &a);
        let (mut from, mut to) = (a.attach().expect("attach"), b.attach().expect("attach"));
        let mut sent = 0;
        let mut got = 0;
        while got < 1000 {
            let port = &mut from.ports[0];
            while sent < 1000 && port.send(|slot| write(slot, &numbered([2; 6], [4; 6], sent))) {
                sent += 1;
            }
            port.flush(WhenFull::Keep).expect("the port is up");
            for frame in received(&mut to.ports[0]) {
                assert_eq!(frame, numbered([2; 6], [4; 6], got));
                got += 1;
            }
        }
        assert_eq!(scratch.switch.counters(b.id(0)).dropped_total(), 0);
    });
}

fn write(slot: &mut [u8], frame: &[u8]) -> usize {
    slot[..frame.len()].copy_from_slice(frame);
    frame.len()
}

/// An NF that swaps nothing: port to port, by the engine that hosts NFs.
fn pass(engine: &mut Engine, ports: &mut [Port]) -> usize {
    let mut taken = 0;
    for input in 0..ports.len() as u8 {
        taken += engine.run_once(ports, input, &mut |batch: &mut Batch<'_, '_>| {
            batch
                .frames()
                .iter_mut()
                .for_each(|frame| frame.send(1 - input));
        });
    }
    taken
}

/// How the traffic and what changes the I/O model know of each other.
#[derive(Default)]
struct Course {
    begins: AtomicBool,
    ends: AtomicBool,
}

impl Course {
    fn is_over(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

/// Sends `count` numbered frames through an NF as soon as `change` lets it begin, which changes the NF's
/// I/O model until it is over; all arrive, in order, whole.
fn through_an_nf(
    scratch: &mut Scratch,
    count: u64,
    change: impl Fn(&Scratch, &ScratchInstance, &Course) + Sync,
) {
    let mut a = scratch.instance(1, 256, 256).expect("instance");
    let mut nf = scratch.instance(2, 64, 64).expect("instance");
    let mut b = scratch.instance(1, 256, 64).expect("instance");
    scratch.link((&mut a, 0), (&mut nf, 0)).expect("link");
    scratch.link((&mut nf, 1), (&mut b, 0)).expect("link");
    let mut ends = [a.attach().expect("attach"), b.attach().expect("attach")];
    let mut middle = nf.attach().expect("attach");
    let course = Course::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut engine = Engine::new();
            while !course.is_over() {
                if pass(&mut engine, &mut middle.ports) == 0 {
                    let timeout = Duration::from_millis(20);
                    middle
                        .doorbell
                        .wait(&mut middle.ports, None, timeout)
                        .expect("wait");
                }
            }
        });
        scope.spawn(|| change(scratch, &nf, &course));
        while !course.begins.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let [from, to] = &mut ends;
        let (mut sent, mut got) = (0u64, 0u64);
        while got < count {
            let port = &mut from.ports[0];
            // At most what the NF's ring to the receiver holds: its sends drop where that is full.
            while sent < count && sent - got < 64 {
                let bytes = numbered([2; 6], [4; 6], sent);
                if !port.send(|slot| write(slot, &bytes)) {
                    break;
                }
                sent += 1;
            }
            port.flush(WhenFull::Keep).expect("the port is up");
            for frame in received(&mut to.ports[0]) {
                assert_eq!(number_of(&frame), got, "in order, none lost");
                assert_eq!(frame, numbered([2; 6], [4; 6], got), "whole");
                got += 1;
            }
            std::thread::yield_now();
        }
        course.ends.store(true, Ordering::Relaxed);
    });
    for (instance, port) in [(&a, 0), (&nf, 0), (&nf, 1), (&b, 0)] {
        let counters = scratch.switch.counters(instance.id(port));
        assert_eq!(counters.dropped_total(), 0, "{counters:?}");
    }
}

// promise: 1.21
#[test]
fn an_nf_that_an_io_thread_serves_loses_nothing_and_reuses_no_slot_too_early() {
    for_each_form("io-nf", |scratch| {
        for idle in [SLEEPS, Idle::Sleep { looks: 100 }, Idle::Poll] {
            through_an_nf(scratch, 10_000, |scratch, nf, course| {
                let thread = io_thread(scratch, idle);
                serve(&thread, nf);
                course.begins.store(true, Ordering::Relaxed);
                while !course.is_over() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let stats = thread.stats().expect("the thread lives");
                assert!(stats.frames > 0, "{stats:?}");
            });
        }
    });
}

// promise: 1.21
#[test]
fn the_io_model_changes_under_traffic_without_a_loss() {
    for_each_form("io-change", |scratch| {
        through_an_nf(scratch, 20_000, |scratch, nf, course| {
            let threads = [SLEEPS, Idle::Sleep { looks: 50 }].map(|idle| io_thread(scratch, idle));
            course.begins.store(true, Ordering::Relaxed);
            for thread in threads.iter().cycle() {
                if course.is_over() {
                    break;
                }
                serve(thread, nf);
                std::thread::sleep(Duration::from_millis(1));
                take_back(thread, nf);
            }
        });
    });
}

// promise: 1.21
#[test]
fn a_thread_that_ends_gives_its_ports_back() {
    for_each_form("io-end", |scratch| {
        let mut a = scratch.instance(1, 64, 64).expect("instance");
        let mut b = scratch.instance(1, 64, 64).expect("instance");
        scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
        let (mut from, mut to) = (a.attach().expect("attach"), b.attach().expect("attach"));
        let thread = io_thread(scratch, SLEEPS);
        serve(&thread, &a);
        assert!(from.ports[0].is_served());
        drop(thread);
        assert!(!from.ports[0].is_served());
        send(&mut from.ports[0], &frame([2; 6], [4; 6], 60, 1));
        assert_eq!(from.ports[0].flush(WhenFull::Drop).expect("up"), 1);
        assert_eq!(received(&mut to.ports[0]).len(), 1);
    });
}

/// Traffic that goes round: all three threads sleep whenever they have nothing to do.
// promise: 1.22
#[test]
fn nobody_sleeps_over_frames() {
    const COUNT: u64 = 40_000;
    for_each_form("io-sleep", |scratch| {
        let mut nf = scratch.instance(2, 128, 64).expect("instance");
        let mut traffic = scratch.instance(2, 128, 128).expect("instance");
        scratch.link((&mut traffic, 0), (&mut nf, 0)).expect("link");
        scratch.link((&mut nf, 1), (&mut traffic, 1)).expect("link");
        let mut ends = traffic.attach().expect("attach");
        let mut middle = nf.attach().expect("attach");
        let thread = io_thread(scratch, SLEEPS);
        serve(&thread, &nf);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut engine = Engine::new();
                while !stop.load(Ordering::Relaxed) {
                    if pass(&mut engine, &mut middle.ports) == 0 {
                        let wait = middle.doorbell.wait(&mut middle.ports, None, AGEING);
                        wait.expect("wait");
                    }
                }
            });
            let (mut sent, mut got) = (0u64, 0u64);
            while got < COUNT {
                let port = &mut ends.ports[0];
                while sent < COUNT && sent - got < 128 {
                    let bytes = numbered([2; 6], [4; 6], sent);
                    if !port.send(|slot| write(slot, &bytes)) {
                        break;
                    }
                    sent += 1;
                }
                port.flush(WhenFull::Keep).expect("the port is up");
                let kept = port.queued() > 0;
                let back = ends.ports[1].receive(64, |_| ());
                got += back as u64;
                if kept {
                    // No doorbell is rung when a full link has room again.
                    std::thread::yield_now();
                } else if back == 0 {
                    let wait = ends.doorbell.wait(&mut ends.ports, None, AGEING);
                    wait.expect("wait");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        for doorbell in [&ends.doorbell, &middle.doorbell] {
            assert_eq!(doorbell.stats().unrung, 0, "{:?}", doorbell.stats());
        }
    });
}

/// Fills the doorbell of the instance at the other end of `port`'s link, as a hostile peer does.
fn fill_the_doorbell(port: &Port) {
    let doorbell = port.entry().peer_doorbell_fd;
    for bytes in [4096, 1] {
        let rings = vec![1_u8; bytes];
        // SAFETY: the port owns the descriptor and lives; the buffer lives during the call.
        while unsafe { libc::write(doorbell, rings.as_ptr().cast(), bytes) } > 0 {}
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    }
}

fn wait_until_set(word: &AtomicU32) {
    while word.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
}

/// The filled doorbell has been heard once, for nothing.
fn hear_the_full_doorbell(own: &mut Attached) {
    let woken = own.doorbell.wait(&mut own.ports, None, AGEING);
    assert_eq!(woken.expect("wait"), Woken::Nothing);
    assert_eq!(own.doorbell.stats().spurious, 1);
}

/// Asserts that sleeps were ended by rings. Without rings, each sleep that finds a frame was ended by its timeout. A
/// sleep that is rung for may be ended so, where the ringer loses its CPU for that long between the frame and the
/// ring.
fn assert_rung(own: &Attached) {
    let stats = own.doorbell.stats();
    assert!(stats.unrung * 4 <= stats.wakes, "{stats:?}");
}

// promise: 1.23
#[test]
fn a_peer_that_fills_the_doorbell_of_a_receiver_does_not_silence_other_peers() {
    const COUNT: u64 = 20;
    for_each_form("io-silent", |scratch| {
        for served in [false, true] {
            let mut to = scratch.instance(2, 64, 64).expect("instance");
            let mut hostile = scratch.instance(1, 64, 64).expect("instance");
            let mut good = scratch.instance(1, 64, 64).expect("instance");
            scratch.link((&mut hostile, 0), (&mut to, 0)).expect("link");
            scratch.link((&mut good, 0), (&mut to, 1)).expect("link");
            let thread = io_thread(scratch, SLEEPS);
            if served {
                serve(&thread, &good);
            }
            let watched = to.attach().expect("attach");
            let mut own = to.attach().expect("attach");
            let mut from = good.attach().expect("attach");
            fill_the_doorbell(&hostile.attach().expect("attach").ports[0]);
            hear_the_full_doorbell(&mut own);
            std::thread::scope(|scope| {
                let receiver = scope.spawn(|| {
                    for number in 0..COUNT {
                        while !own.ports[1].is_ready() {
                            let woken = own.doorbell.wait(&mut own.ports, None, AGEING);
                            woken.expect("wait");
                        }
                        let frames = received(&mut own.ports[1]);
                        assert_eq!(frames, [numbered([2; 6], [4; 6], number)]);
                    }
                });
                for number in 0..COUNT {
                    // Each is sent while the receiver sleeps.
                    wait_until_set(&watched.ports[1].raw_ring().receiver.rx_sleep);
                    send(&mut from.ports[0], &numbered([2; 6], [4; 6], number));
                    from.ports[0].flush(WhenFull::Drop).expect("up");
                    let is_last = number + 1 == COUNT;
                    while !is_last
                        && watched.ports[1]
                            .raw_ring()
                            .receiver
                            .rx_released
                            .load(Ordering::Acquire)
                            <= number
                    {
                        std::thread::yield_now();
                    }
                }
                receiver.join().expect("receiver");
            });
            assert_rung(&own);
            let doorbells = scratch.switch.counters(to.id(1)).doorbells;
            assert!(
                doorbells > 0,
                "the switch rings where the pipe takes no more"
            );
        }
    });
}

// promise: 1.23
#[test]
fn a_peer_that_fills_the_doorbell_of_a_sender_does_not_keep_it_waiting_for_room() {
    for_each_form("io-room", |scratch| {
        let mut a = scratch.instance(1, 64, 64).expect("instance");
        let mut b = scratch.instance(1, 64, 64).expect("instance");
        scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
        let thread = io_thread(scratch, SLEEPS);
        serve(&thread, &a);
        let watched = a.attach().expect("attach");
        let (mut from, mut to) = (a.attach().expect("attach"), b.attach().expect("attach"));
        fill_the_doorbell(&to.ports[0]);
        hear_the_full_doorbell(&mut from);
        for _round in 0..20 {
            // The second half finds the peer's ring full, and stays.
            for first in [0, 64] {
                for number in first..first + 64 {
                    send(&mut from.ports[0], &numbered([2; 6], [4; 6], number));
                }
                from.ports[0].flush(WhenFull::Keep).expect("up");
                if first == 0 {
                    drain(&mut from);
                }
            }
            std::thread::scope(|scope| {
                let sender = scope.spawn(|| {
                    loop {
                        let woken = from.doorbell.wait(&mut from.ports, None, AGEING);
                        match woken.expect("wait") {
                            Woken::Consumed => break,
                            // The ring for a wait that ended before it slept, or the time is over.
                            Woken::Nothing => {}
                            woken => panic!("{woken:?}"),
                        }
                    }
                    drain(&mut from);
                });
                wait_until_set(&watched.ports[0].raw_ring().sender.tx_sleep);
                assert_eq!(received(&mut to.ports[0]).len(), 64);
                sender.join().expect("sender");
            });
            assert_eq!(received(&mut to.ports[0]).len(), 64);
        }
        assert_rung(&from);
        let doorbells = scratch.switch.counters(a.id(0)).doorbells;
        assert!(
            doorbells > 0,
            "the switch rings where the pipe takes no more"
        );
    });
}
