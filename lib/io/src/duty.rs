//! A port that an I/O thread serves.

use nfluid_ring::layout::{Ring, SERVED_BY_ITSELF, SERVED_FROM_ANY_CORE, SERVED_FROM_OWN_CORE};
use nfluid_ring::memory::RingMemory;
use nfluid_switch::serve::{Serve, Sleeper};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The descriptors by which an instance and its I/O thread wake each other, and the cores of both.
#[derive(Debug)]
pub struct Doorbells {
    /// An eventfd that the instance writes to: the thread listens to it.
    pub io: OwnedFd,
    /// The instance's own doorbell: rung when it waits until frames are consumed.
    pub instance: Option<OwnedFd>,
    /// Cores on which the instance may run: a thread that follows it stays within them. Empty: any.
    pub cores: Vec<usize>,
}

/// A port, its rings and doorbells.
#[derive(Debug)]
pub struct Duty {
    port: u32,
    ring: RingMemory,
    doorbells: Arc<Doorbells>,
    /// The doorbell of the link's peer, if there is one that senders ring.
    peer_doorbell: Option<OwnedFd>,
    /// `tx_head` and `tx_tail` at the last visit.
    head: u32,
    tail: u32,
    /// Sleep epochs for which the peer and the instance were rung.
    peer_rung: u32,
    instance_rung: u32,
}

/// The result of a visit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Frames consumed, as the ring says.
    pub frames: u32,
    /// Doorbells rung.
    pub rings: u32,
}

impl Duty {
    /// Creates the duty for port `port` with the rings `ring`.
    pub fn new(
        port: u32,
        ring: RingMemory,
        doorbells: Arc<Doorbells>,
        peer_doorbell: Option<OwnedFd>,
    ) -> Self {
        let tail = ring.ring().switch.tx_tail.load(Ordering::Acquire);
        Duty {
            port,
            ring,
            doorbells,
            peer_doorbell,
            head: tail,
            tail,
            peer_rung: 0,
            instance_rung: 0,
        }
    }

    /// The port's number.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Returns the doorbells, which the instance's ports share.
    pub fn doorbells(&self) -> &Arc<Doorbells> {
        &self.doorbells
    }

    fn words(&self) -> &Ring {
        self.ring.ring()
    }

    /// Takes over the call from the instance. `shares_core` is true if the thread runs on the instance's core.
    pub(crate) fn take_over(&self, shares_core: bool) {
        let served = if shares_core {
            SERVED_FROM_OWN_CORE
        } else {
            SERVED_FROM_ANY_CORE
        };
        self.words().switch.served.store(served, Ordering::Release);
    }

    /// Makes the instance make its calls itself from now on. Frames that the instance handed over before still belong
    /// to this thread: the thread looks once more.
    pub(crate) fn leave(&self) {
        self.words().switch.io_sleep.store(0, Ordering::Relaxed);
        let served = &self.words().switch.served;
        served.store(SERVED_BY_ITSELF, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Are there frames in the TX ring?
    #[inline]
    pub(crate) fn has_frames(&self) -> bool {
        self.words().sender.tx_head.load(Ordering::Acquire) != self.tail
    }

    /// Has the instance handed over frames since the last visit?
    #[inline]
    pub(crate) fn has_new_frames(&self) -> bool {
        self.words().sender.tx_head.load(Ordering::Acquire) != self.head
    }

    /// Before a visit.
    #[inline]
    pub(crate) fn note_head(&mut self) {
        self.head = self.words().sender.tx_head.load(Ordering::Acquire);
    }

    /// Ends a visit after the switch has run: rings for the receivers and senders that the visit found waiting. The
    /// switch's locked additions order its stores before the look at `tx_sleep`; the instance announces its sleep
    /// before its last look.
    pub(crate) fn finish(&mut self, serve: &Serve) -> Visit {
        let words = self.ring.ring();
        let tail = words.switch.tx_tail.load(Ordering::Acquire);
        let mut visit = Visit {
            frames: tail.wrapping_sub(self.tail),
            rings: 0,
        };
        self.tail = tail;
        let asleep = words.switch.peer_asleep.load(Ordering::Relaxed);
        if asleep != 0 && asleep != self.peer_rung {
            let doorbell = self.peer_doorbell.as_ref();
            visit.rings += ring(doorbell, || serve.ring(self.port, Sleeper::Peer));
            self.peer_rung = asleep;
        }
        if visit.frames > 0 {
            fence(Ordering::SeqCst);
            visit.rings += self.ring_instance(serve);
        }
        visit
    }

    /// Wakes the instance if it waits until frames are consumed.
    pub(crate) fn ring_instance(&mut self, serve: &Serve) -> u32 {
        let asleep = self.words().sender.tx_sleep.load(Ordering::Relaxed);
        if asleep == 0 || asleep == self.instance_rung {
            return 0;
        }
        self.instance_rung = asleep;
        let doorbell = self.doorbells.instance.as_ref();
        ring(doorbell, || serve.ring(self.port, Sleeper::Owner))
    }

    /// Announces that the thread sleeps (an epoch that is never 0), or is awake (0).
    #[inline]
    pub(crate) fn announce(&self, epoch: u32) {
        self.words().switch.io_sleep.store(epoch, Ordering::Relaxed);
    }

    /// The core on which the instance ran when it last handed frames over, as it says: one of those that
    /// it may run on.
    pub(crate) fn sender_cpu(&self) -> Option<usize> {
        let cpu = self.words().sender.tx_cpu.load(Ordering::Relaxed);
        let core = (cpu as usize).checked_sub(1)?;
        let cores = &self.doorbells.cores;
        (cores.is_empty() || cores.contains(&core)).then_some(core)
    }
}

/// Writes a byte into a pipe. A full pipe was filled by another process that can ring it, and would not wake its
/// reader: `by_switch` wakes the reader then. A closed pipe belongs to a process that is gone. Returns the number of
/// rings.
fn ring(doorbell: Option<&OwnedFd>, by_switch: impl FnOnce() -> io::Result<()>) -> u32 {
    let Some(doorbell) = doorbell else { return 0 };
    let rung = match rustix::io::write(doorbell, &[1]) {
        Err(rustix::io::Errno::AGAIN) => by_switch().is_ok(),
        written => written.is_ok(),
    };
    u32::from(rung)
}
