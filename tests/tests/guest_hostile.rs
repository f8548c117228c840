//! A hostile NF harms itself: nothing outside its own reach changes, no other instance loses a frame, and the books
//! balance whatever the NF does.

use nfluid_ring::attach::Attached;
use nfluid_ring::layout::{DESC_OFFLOAD, SLOT_SIZE};
use nfluid_ring::port::{Port, WhenFull};
use nfluid_switch::instance::Doorbells;
use nfluid_switch::{Destination, PortCounters};
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use nfluid_tests::harness::skip;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set for this program when it is started again as a sender: destination and own address.
const ROLE: &str = "NFLUID_TEST_SENDER";

fn frame(dst: [u8; 6], src: [u8; 6], len: usize) -> Vec<u8> {
    let mut bytes = vec![0x42; len];
    bytes[..6].copy_from_slice(&dst);
    bytes[6..12].copy_from_slice(&src);
    bytes[12..14].copy_from_slice(&[0x08, 0x00]);
    bytes
}

fn send(port: &mut Port, frame: &[u8]) -> bool {
    port.send(|slot| {
        slot[..frame.len()].copy_from_slice(frame);
        frame.len()
    })
}

/// A pseudo-random sequence that is the same in every run (Steele and others, SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// On a switch, pinned.
fn joined(scratch: &mut Scratch, switch: u32) -> ScratchInstance {
    let instance = scratch.instance(1, 64, 64).expect("instance");
    let id = instance.id(0);
    scratch
        .switch
        .connect(id, Destination::Switch(switch))
        .expect("connect");
    scratch
        .switch
        .pin_address(switch, 0, instance.mac(0), id)
        .expect("pin");
    instance
}

/// (entered, delivered, dropped) over all ports.
fn books(scratch: &Scratch, instances: &[&ScratchInstance]) -> (u64, u64, u64) {
    let counters: Vec<PortCounters> = instances
        .iter()
        .map(|instance| scratch.switch.counters(instance.id(0)))
        .collect();
    let sum = |of: fn(&PortCounters) -> u64| counters.iter().map(of).sum();
    (
        sum(|c| c.tx_frames),
        sum(|c| c.rx_frames),
        sum(PortCounters::dropped_total),
    )
}

/// Plays the sender when this program was started as one; otherwise does nothing.
#[test]
fn sender_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mac = |text: &str| -> [u8; 6] {
        let bytes: Vec<u8> = text
            .split(':')
            .map(|byte| byte.parse().expect("a byte"))
            .collect();
        bytes.try_into().expect("six bytes")
    };
    let (to, own) = role.split_once(' ').expect("two addresses");
    let (to, own) = (mac(to), mac(own));
    let mut attached = Attached::from_env().expect("attach");
    let port = &mut attached.ports[0];
    let mut random = Random(u64::from(own[5]));
    loop {
        for _ in 0..=random.below(60) {
            let dst = if random.below(50) == 0 { [0xff; 6] } else { to };
            send(port, &frame(dst, own, 60 + random.below(1400) as usize));
        }
        port.flush(WhenFull::Drop).expect("flush");
    }
}

fn start_sender(instance: &ScratchInstance, to: [u8; 6]) -> Child {
    let text = |mac: [u8; 6]| mac.map(|byte| byte.to_string()).join(":");
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command
        .args(["--exact", "sender_process", "--nocapture"])
        .env(ROLE, format!("{} {}", text(to), text(instance.mac(0))))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    instance.spawn(&mut command).expect("sender")
}

/// Catches: frames that a call has counted as entered, and neither as delivered nor as dropped when its process was killed.
// promise: 1.7
#[test]
fn the_books_balance_with_senders_that_are_killed_in_the_middle() {
    if !skip::is_root("books") {
        return;
    }
    let mut scratch = Scratch::new("books").expect("scratch platform");
    let senders: Vec<ScratchInstance> = (0..3).map(|_| joined(&mut scratch, 1)).collect();
    let receiver = joined(&mut scratch, 1);
    let mut attached = receiver.attach().expect("attach");
    let mut children: Vec<Child> = senders
        .iter()
        .map(|sender| start_sender(sender, receiver.mac(0)))
        .collect();
    let mut got = 0u64;
    for (round, child) in children.iter_mut().enumerate() {
        // Some frames of each round arrive before their sender is killed.
        let goal = got + 20_000;
        while got < goal {
            let ended = child.try_wait().expect("it is our child");
            assert_eq!(ended, None, "sender {round} ended by itself");
            got += attached.ports[0].receive(64, |frame| assert!((60..1460).contains(&frame.len())))
                as u64;
        }
        child
            .kill()
            .unwrap_or_else(|error| panic!("killing sender {round}: {error}"));
        child.wait().expect("sender");
    }
    got += attached.ports[0].receive(usize::MAX, |_| ()) as u64;
    let all: Vec<&ScratchInstance> = senders.iter().chain([&receiver]).collect();
    let (entered, delivered, dropped) = books(&scratch, &all);
    assert_eq!(entered, delivered + dropped);
    assert_eq!(scratch.switch.counters(receiver.id(0)).rx_frames, got);
    assert!(dropped > 0, "rings of 64 slots overflow");
}

// promise: 3.2
#[test]
fn garbage_in_its_rings_changes_nothing_of_others_and_costs_them_no_frame() {
    if !skip::is_root("garbage") {
        return;
    }
    let mut scratch = Scratch::new("garbage").expect("scratch platform");
    let hostile = joined(&mut scratch, 2);
    let victim = joined(&mut scratch, 2);
    let canary = joined(&mut scratch, 3);
    let (mut from, mut to) = (
        scratch.instance(1, 64, 64).expect("instance"),
        scratch.instance(1, 64, 64).expect("instance"),
    );
    scratch.link((&mut from, 0), (&mut to, 0)).expect("link");
    let mut evil = hostile.attach().expect("attach");
    let mut watched = victim.attach().expect("attach");
    let (mut good, mut other) = (from.attach().expect("attach"), to.attach().expect("attach"));
    let untouched = canary.attach().expect("attach");
    let snapshot = |port: &Port| -> Vec<u64> {
        port.raw_ring()
            .rx
            .iter()
            .map(|desc| desc.load(Ordering::Relaxed))
            .collect()
    };
    let before = snapshot(&untouched.ports[0]);
    let mut random = Random(7);
    for round in 0..20_000u64 {
        let port = &mut evil.ports[0];
        for _ in 0..8 {
            let word = random.next();
            port.raw_ring().tx[random.below(1024) as usize].store(word, Ordering::Relaxed);
            port.raw_ring().rx[random.below(1024) as usize].store(word, Ordering::Relaxed);
        }
        let dst = if random.below(2) == 0 {
            victim.mac(0)
        } else {
            random.next().to_le_bytes()[..6].try_into().expect("six")
        };
        let src = if random.below(2) == 0 {
            hostile.mac(0)
        } else {
            canary.mac(0)
        };
        send(port, &frame(dst, src, 60));
        port.queue_raw(random.next() as u16, random.next() as u32);
        port.raw_ring()
            .receiver
            .rx_released
            .store(random.next(), Ordering::Relaxed);
        port.raw_ring()
            .receiver
            .rx_sleep
            .store(random.next() as u32, Ordering::Relaxed);
        // Errors are its own.
        let _ = port.flush(WhenFull::Drop);
        if random.below(4) == 0 {
            port.raw_ring()
                .sender
                .tx_head
                .store(random.next() as u32, Ordering::Relaxed);
            let _ = port.call_empty();
            port.discard_queued();
        }
        // Instances that are not on its switch notice nothing.
        assert!(send(
            &mut good.ports[0],
            &frame(to.mac(0), from.mac(0), 60 + (round % 1000) as usize)
        ));
        assert_eq!(good.ports[0].flush(WhenFull::Drop).expect("flush"), 1);
        assert_eq!(
            other.ports[0].receive(2, |bytes| assert_eq!(
                bytes.len(),
                60 + (round % 1000) as usize
            )),
            1
        );
        // Arriving frames are frames that it may send: its own address, a length of a frame.
        watched.ports[0].receive(64, |bytes| {
            assert_eq!(&bytes[6..12], hostile.mac(0));
            assert!((14..=2032).contains(&bytes.len()));
        });
    }
    assert_eq!(snapshot(&untouched.ports[0]), before);
    let (entered, delivered, dropped) = books(&scratch, &[&hostile, &victim, &canary]);
    assert_eq!(entered, delivered + dropped);
    assert_eq!(scratch.switch.counters(canary.id(0)).rx_frames, 0);
}

// promise: 3.3
#[test]
fn threads_that_race_on_one_port_get_a_refusal_and_break_nothing() {
    if !skip::is_root("race") {
        return;
    }
    let mut scratch = Scratch::new("race").expect("scratch platform");
    let (sender, receiver) = (joined(&mut scratch, 4), joined(&mut scratch, 4));
    let mut to = receiver.attach().expect("attach");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let racers: Vec<_> = (0..2)
            .map(|_| {
                let mut attached = sender.attach().expect("attach");
                let one = frame(receiver.mac(0), sender.mac(0), 64);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        for _ in 0..16 {
                            send(&mut attached.ports[0], &one);
                        }
                        // EBUSY, or frames that the other one has taken: its own fault.
                        let _ = attached.ports[0].flush(WhenFull::Drop);
                    }
                })
            })
            .collect();
        let drain = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                to.ports[0].receive(64, |bytes| assert_eq!(bytes.len(), 64));
            }
        });
        for racer in racers {
            racer.join().expect("racer");
        }
        done.store(true, Ordering::Release);
        drain.join().expect("receiver");
    });
    let (entered, delivered, dropped) = books(&scratch, &[&sender, &receiver]);
    assert_eq!(entered, delivered + dropped);
}

// promise: 3.3
#[test]
fn a_socket_of_its_own_is_no_port_and_maps_end_where_they_end() {
    if !skip::is_root("capability") {
        return;
    }
    let mut scratch = Scratch::new("capability").expect("scratch platform");
    let instance = scratch.instance(1, 64, 64).expect("instance");
    let table = instance.memory.table(
        &[],
        &Doorbells {
            own: -1,
            io: -1,
            peers: &[],
        },
    );
    assert_eq!(table.head.pool_slots, 128);
    let pool = nfluid_ring::memory::Pool::map(instance.handover.fds()[0], 128 + 64);
    assert!(pool.is_err(), "a mapping beyond the pool's end is refused");
}

/// A place in an instance's pool that others may write at the same time.
#[derive(Clone, Copy)]
struct Place(*mut u8);

// SAFETY: the pointer is only used for volatile accesses to shared memory, by tests that race on purpose.
unsafe impl Send for Place {}

impl Place {
    /// The byte at `offset` of slot `slot` of the port's pool.
    fn new(port: &Port, slot: u32, offset: usize) -> Self {
        let (start, len) = port.pool().as_raw_parts();
        let at = slot as usize * SLOT_SIZE + offset;
        assert!(at < len);
        // SAFETY: it lies within the mapping.
        Self(unsafe { start.add(at) })
    }

    fn write(self, value: u8) {
        // SAFETY: a byte of the mapping, which outlives the test's threads.
        unsafe { self.0.write_volatile(value) };
    }

    fn read(self) -> u8 {
        // SAFETY: as above.
        unsafe { self.0.read_volatile() }
    }
}

/// Stops a thread when dropped.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

// promise: 3.13
#[test]
fn a_frame_that_changes_during_the_call_is_delivered_as_it_was_checked() {
    if skip::is_root("changing") {
        change_during_calls("changing", 0);
    }
}

/// As above, of frames that are switched one by one: those that may have metadata.
// promise: 3.13
#[test]
fn a_frame_that_goes_alone_and_changes_is_delivered_as_it_was_checked() {
    if skip::is_root("alone") {
        change_during_calls("alone", DESC_OFFLOAD);
    }
}

/// Sends frames that change during the call, with these bits in their descriptors.
fn change_during_calls(label: &str, bits: u64) {
    let mut scratch = Scratch::new(label).expect("scratch platform");
    let (hostile, victim) = (joined(&mut scratch, 5), joined(&mut scratch, 5));
    let (mut evil, mut watched) = (
        hostile.attach().expect("attach"),
        victim.attach().expect("attach"),
    );
    let again = hostile.attach().expect("attach");
    let own = hostile.mac(0);
    let slots = evil.ports[0].entry().tx_base..evil.ports[0].entry().tx_base + 64;
    let sources: Vec<Place> = slots
        .map(|slot| Place::new(&evil.ports[0], slot, 11))
        .collect();
    let (started, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut got = 0;
    std::thread::scope(|scope| {
        // Another thread of the sender turns addresses into those of the victim and back, and lengths up and down.
        scope.spawn(|| {
            let (again, sources) = (again, sources);
            while !done.load(Ordering::Acquire) {
                for last in [own[5] ^ 0xff, own[5]] {
                    for (source, desc) in sources.iter().zip(&again.ports[0].raw_ring().tx) {
                        source.write(last);
                        desc.fetch_xor(64 ^ 2032, Ordering::Relaxed);
                    }
                }
                started.store(true, Ordering::Release);
            }
        });
        let _ends_also_when_this_panics = Done(&done);
        let port = &mut evil.ports[0];
        while !started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let mut idle = 0;
        while got < 300_000 {
            let before = got;
            for _ in 0..32 {
                send(port, &frame(victim.mac(0), own, 64));
                let ring = port.raw_ring();
                let behind = ring.switch.tx_tail.load(Ordering::Relaxed) + port.queued();
                ring.tx[(behind - 1) as usize % 64].fetch_or(bits, Ordering::Relaxed);
            }
            port.flush(WhenFull::Drop).expect("flush");
            got += watched.ports[0].receive(64, |bytes| {
                assert_eq!(&bytes[6..12], own);
                assert!([64, 2032].contains(&bytes.len()), "{}", bytes.len());
            });
            idle = if got == before { idle + 1 } else { 0 };
            assert!(
                idle < 10_000,
                "the victim's ring is stuck after {got} frames"
            );
        }
    });
    let (entered, delivered, dropped) = books(&scratch, &[&hostile, &victim]);
    assert_eq!(entered, delivered + dropped);
}

// promise: 3.13
#[test]
fn no_byte_beyond_a_frame_reaches_its_receiver() {
    if !skip::is_root("beyond") {
        return;
    }
    let mut scratch = Scratch::new("beyond").expect("scratch platform");
    let (sender, receiver) = (joined(&mut scratch, 6), joined(&mut scratch, 6));
    let (mut from, mut to) = (
        sender.attach().expect("attach"),
        receiver.attach().expect("attach"),
    );
    for len in 14..=2032 {
        // The rest of the sender's slot holds a secret; the receiver's slots hold something else.
        let slot = from.ports[0].next_tx_slot().expect("a slot");
        for offset in len..SLOT_SIZE {
            Place::new(&from.ports[0], slot, offset).write(0x99);
        }
        let taken = to.ports[0].taken() & 63;
        let place = |offset| Place::new(&to.ports[0], to.ports[0].entry().rx_base + taken, offset);
        (0..SLOT_SIZE).for_each(|offset| place(offset).write(0x11));
        assert!(send(
            &mut from.ports[0],
            &frame(receiver.mac(0), sender.mac(0), len)
        ));
        assert_eq!(from.ports[0].flush(WhenFull::Drop).expect("flush"), 1);
        let beyond: Vec<u8> = (len..SLOT_SIZE)
            .map(|offset| place(offset).read())
            .collect();
        assert!(!beyond.contains(&0x99), "length {len}");
        assert_eq!(
            to.ports[0].receive(2, |bytes| assert_eq!(bytes.len(), len)),
            1
        );
    }
}
