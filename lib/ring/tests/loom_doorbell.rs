//! The doorbell protocol, explored by a model: no wake-up is lost, in any order of the steps (with
//! three threads: in any with few interruptions) and with any store delayed as far as the memory
//! model lets it.
//!
//! The model follows `src/doorbell.rs` (the receiver), `src/port.rs` (a link's sender rings the pipe) and
//! `bpf/switch/deliver.h` (the switch rings the kernel doorbell), step by step; the code itself does system calls,
//! which loom cannot run. The ageing timeout and the limit on rings without a frame are left out: here a receiver
//! that is not woken sleeps for ever, and loom reports a deadlock. The tests that expect a deadlock show that the
//! model would notice each of the rules being broken.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p nfluid-ring --release --test loom_doorbell`
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Interruptions of running threads within one order of steps, where there are three threads.
const PREEMPTIONS_MAX: usize = 2;

/// Which of the protocol's rules hold.
#[derive(Clone, Copy)]
struct Rules {
    /// The receiver's fence between its announcement and its last look.
    receiver_fence: bool,
    /// The switch's locked addition between publication and its look at the announcement.
    sender_fence: bool,
    /// The kernel doorbell's note follows the ring.
    note_after_ring: bool,
}

const RIGHT: Rules = Rules {
    receiver_fence: true,
    sender_fence: true,
    note_after_ring: true,
};

/// A doorbell that remembers rings until it is answered: a pipe, or a BPF ring buffer.
struct Doorbell {
    rings: Mutex<u32>,
    rung: Condvar,
}

impl Doorbell {
    fn new() -> Self {
        Doorbell {
            rings: Mutex::new(0),
            rung: Condvar::new(),
        }
    }

    fn ring(&self) {
        *self.rings.lock().unwrap() += 1;
        self.rung.notify_one();
    }

    /// `poll`, then reading everything.
    fn sleep_and_clear(&self) {
        let mut rings = self.rings.lock().unwrap();
        while *rings == 0 {
            rings = self.rung.wait(rings).unwrap();
        }
        *rings = 0;
    }
}

/// The memory that receiver and senders share: two positions of a ring, and the words around them.
struct Shared {
    rules: Rules,
    /// RX descriptors: 0, or published.
    rx: [AtomicU32; 2],
    rx_sleep: AtomicU32,
    /// Sleep epoch for which the kernel doorbell was rung.
    rung: AtomicU32,
    doorbell: Doorbell,
    /// Rung by the receiver when it has the frame at position 1: see `stalled_after_first_step`.
    second_received: Doorbell,
}

impl Shared {
    fn new(rules: Rules) -> Arc<Self> {
        Arc::new(Shared {
            rules,
            rx: [AtomicU32::new(0), AtomicU32::new(0)],
            rx_sleep: AtomicU32::new(0),
            rung: AtomicU32::new(0),
            doorbell: Doorbell::new(),
            second_received: Doorbell::new(),
        })
    }

    fn is_published(&self, position: usize) -> bool {
        self.rx[position].load(Ordering::Acquire) != 0
    }

    /// `publish` and `delivered` of the switch: the sleep epoch that the sender finds.
    fn deliver(&self, position: usize) -> u32 {
        self.rx[position].store(1, Ordering::Release);
        if self.rules.sender_fence {
            fence(Ordering::SeqCst);
        }
        self.rx_sleep.load(Ordering::Relaxed)
    }

    /// `Port::call` of a link's sender: rings the pipe once per epoch that it sees.
    fn send_on_link(&self, position: usize, rung: &mut u32) {
        let epoch = self.deliver(position);
        if epoch != 0 && epoch != *rung {
            self.doorbell.ring();
            *rung = epoch;
        }
    }

    /// `ring_kernel_doorbell`, in which `between` happens between ring and note.
    fn send_through_switch(&self, position: usize, between: impl FnOnce()) {
        let epoch = self.deliver(position);
        if epoch == 0 || self.rung.load(Ordering::Relaxed) == epoch {
            return;
        }
        if self.rules.note_after_ring {
            self.doorbell.ring();
            between();
            self.rung.store(epoch, Ordering::Relaxed);
        } else {
            self.rung.store(epoch, Ordering::Relaxed);
            between();
            self.doorbell.ring();
        }
    }

    /// Sends as a sender whose CPU quota ends in the middle of its call: the sender goes on only when the second
    /// frame has arrived. The arrival of the second frame must not depend on this sender.
    fn send_and_stall(&self, position: usize) {
        self.send_through_switch(position, || self.second_received.sleep_and_clear());
    }

    /// Takes `frames` frames, as an NF does: all that are there, then `Doorbell::wait`.
    fn receive(&self, frames: usize) {
        let mut taken = [false; 2];
        let mut epoch = 0;
        loop {
            for position in 0..2 {
                if !taken[position] && self.is_published(position) {
                    taken[position] = true;
                    if position == 1 {
                        self.second_received.ring();
                    }
                }
            }
            if taken.iter().filter(|&&taken| taken).count() == frames {
                return;
            }
            epoch += 1;
            self.wait(epoch, &taken);
        }
    }

    /// `Doorbell::wait` after its spin: announce, look once more, sleep, be awake.
    fn wait(&self, epoch: u32, taken: &[bool; 2]) {
        self.rx_sleep.store(epoch, Ordering::Relaxed);
        if self.rules.receiver_fence {
            fence(Ordering::SeqCst);
        }
        let ready = (0..2).any(|position| !taken[position] && self.is_published(position));
        if !ready {
            self.doorbell.sleep_and_clear();
        }
        self.rx_sleep.store(0, Ordering::Relaxed);
    }
}

/// A single sender on a link, with a single frame.
fn link_with_one_frame(rules: Rules) {
    loom::model(move || {
        let shared = Shared::new(rules);
        let peer = Arc::clone(&shared);
        let sender = thread::spawn(move || peer.send_on_link(0, &mut 0));
        shared.receive(1);
        sender.join().unwrap();
    });
}

/// Two senders through the switch, a frame each. Three threads have too many orders to try all of
/// them: those in which a thread is interrupted at most [`PREEMPTIONS_MAX`] times are tried.
fn kernel_doorbell_with_two_senders(rules: Rules, first: fn(&Shared)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(move || {
        let shared = Shared::new(rules);
        let (one, two) = (Arc::clone(&shared), Arc::clone(&shared));
        let senders = [
            thread::spawn(move || first(&one)),
            thread::spawn(move || two.send_through_switch(1, || ())),
        ];
        shared.receive(2);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

// promise: 1.8
#[test]
fn a_link_loses_no_wake_up() {
    link_with_one_frame(RIGHT);
}

#[test]
fn a_link_loses_no_wake_up_between_two_frames() {
    loom::model(|| {
        let shared = Shared::new(RIGHT);
        let peer = Arc::clone(&shared);
        let sender = thread::spawn(move || {
            let mut rung = 0;
            peer.send_on_link(0, &mut rung);
            peer.send_on_link(1, &mut rung);
        });
        shared.receive(2);
        sender.join().unwrap();
    });
}

// promise: 1.8
#[test]
fn the_kernel_doorbell_loses_no_wake_up_of_two_senders() {
    kernel_doorbell_with_two_senders(RIGHT, |shared| shared.send_through_switch(0, || ()));
}

#[test]
fn the_kernel_doorbell_depends_on_no_sender_that_stalls() {
    kernel_doorbell_with_two_senders(RIGHT, |shared| shared.send_and_stall(0));
}

// promise: 1.8
#[test]
#[should_panic(expected = "deadlock")]
fn without_the_receivers_fence_a_wake_up_is_lost() {
    link_with_one_frame(Rules {
        receiver_fence: false,
        ..RIGHT
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_senders_fence_a_wake_up_is_lost() {
    link_with_one_frame(Rules {
        sender_fence: false,
        ..RIGHT
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn with_the_note_before_the_ring_a_stalled_sender_loses_anothers_wake_up() {
    let rules = Rules {
        note_after_ring: false,
        ..RIGHT
    };
    kernel_doorbell_with_two_senders(rules, |shared| shared.send_and_stall(0));
}
