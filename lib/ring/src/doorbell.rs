//! Block until a frame arrives.
//!
//! A receiver announces its sleep in the rings of its ports (`rx_sleep`), looks at the rings once
//! more, and blocks on two descriptors: a pipe that link peers write to, and a BPF ring buffer that
//! the switch itself rings. Rings are remembered by both, so one that comes between the last look
//! and the sleep is not lost; the order of the announcement and the last look, and of publication
//! and the sender's look at the announcement, is checked by a model (`tests/loom_doorbell.rs`).
//!
//! A process that holds the write end of the pipe can ring, but cannot take a ring back. A peer that rings for
//! nothing is ignored after [`SPURIOUS_MAX`] rings in a row, until real traffic comes; other peers that ring by the
//! pipe wait for at most [`DEAF`] then.
//!
//! Both are listened to by edge, so that a wake-up is one system call: the pipe is read now and then. A
//! peer that fills it up silences the pipe, and other peers' senders then have the switch ring.
//!
//! The reasons for pipes and sleep epochs: `docs/adr/0004-doorbells.md`.

use crate::bells::Bells;
use crate::engine::ring_all;
use crate::error::AttachError;
use crate::patience::Patience;
use crate::port::Port;
use crate::wake_sources::WakeSources;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

pub use crate::wake_sources::AGEING_IDLE;

/// Rings in a row without a frame, after which the pipe is not listened to for one sleep.
pub const SPURIOUS_MAX: u32 = 16;
/// Longest sleep in which the pipe is not listened to. Rings of other peers are not heard either, so this sleep is
/// short. A ring for nothing leads to the next such sleep, so a peer that rings all the time costs two wake-ups in
/// this time.
pub const DEAF: Duration = Duration::from_millis(1);
/// Longest sleep: whatever goes wrong elsewhere, a frame waits no longer than this.
pub const AGEING: Duration = Duration::from_secs(2);
/// The doorbell of a receiver, shared by its ports.
#[derive(Debug)]
pub struct Doorbell {
    sources: WakeSources,
    epoch: u32,
    patience: Patience,
    spurious: u32,
    /// Longest next sleep.
    ageing: Duration,
    stats: DoorbellStats,
}

/// Counters of the doorbell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorbellStats {
    /// Sleeps.
    pub sleeps: u64,
    /// Sleeps that found a frame when they ended.
    pub wakes: u64,
    /// Sleeps, of those, that only their timeout has ended: no sender has rung, as with a peer that does not ring, or
    /// that was killed before it rang.
    pub unrung: u64,
    /// Rings without a frame.
    pub spurious: u64,
    /// Frames found while spinning.
    pub spins_hit: u64,
}

/// The event that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// At least one port has a frame.
    Frame,
    /// An I/O thread has consumed frames of at least one port, and slots are short or the ports' own:
    /// [`Port::collect`] them.
    Consumed,
    /// The other descriptor that the caller watches is ready.
    Other,
    /// The time is over, or a ring came without a frame.
    Nothing,
}

impl Doorbell {
    /// A doorbell on the read end of a pipe, a BPF ring buffer, or both.
    ///
    /// # Errors
    /// When the ring buffer cannot be mapped, or the doorbells cannot be listened to.
    pub fn new(pipe: Option<OwnedFd>, kernel: Option<OwnedFd>) -> Result<Self, AttachError> {
        Ok(Doorbell {
            sources: WakeSources::new(pipe, kernel)?,
            epoch: fresh_epoch(),
            patience: Patience::default(),
            spurious: 0,
            ageing: AGEING,
            stats: DoorbellStats::default(),
        })
    }

    /// Returns the counters.
    pub fn stats(&self) -> DoorbellStats {
        self.stats
    }

    /// Turns of the adaptive spin before the next sleep.
    pub fn spin_turns(&self) -> u32 {
        self.patience.spin_turns()
    }

    /// The doorbell for a program whose threads have ports of their own, and sleep in event loops of their own.
    pub fn into_bells(self) -> Bells {
        Bells::new(self.sources)
    }

    /// Rings for the receivers that flushes have found asleep, then waits until a port of `ports` has a frame, an I/O
    /// thread has consumed frames that hold missed slots, `other` (if any) is readable, or `timeout` (at most
    /// [`AGEING`]; after sleeps that found nothing [`AGEING_IDLE`]) is over. Frames do not wake a thread if one of
    /// its TX rings is full of frames that an I/O thread has to consume: the thread could not send the frames on.
    /// `other` may be another descriptor at each call; [`Doorbell::forget`] is called before such a descriptor is
    /// closed.
    ///
    /// # Errors
    /// As `epoll_wait` reports them; an interrupted wait is no error.
    pub fn wait(
        &mut self,
        ports: &mut [Port],
        other: Option<&OwnedFd>,
        timeout: Duration,
    ) -> io::Result<Woken> {
        let wanted = Wanted::by(ports);
        if self.patience.takes_turns() {
            ring_all(ports);
        }
        // An I/O thread on this core runs when this thread sleeps, and rings: turns would only delay it.
        let hands_over = ports
            .iter()
            .any(|port| port.queued() > 0 && port.is_served_from_own_core());
        let due_now = || due(ports, wanted);
        if !hands_over && let Some(woken) = self.patience.give_way(self.stats.sleeps, due_now) {
            return Ok(woken);
        }
        if let Some(woken) = self.patience.spin(self.stats.sleeps, due_now) {
            self.stats.spins_hit += 1;
            return Ok(woken);
        }
        self.announce(ports, wanted);
        // The last thing before the sleep: on this core they run when this thread sleeps.
        ring_all(ports);
        let woken = match due(ports, wanted) {
            Some(woken) => Ok(woken),
            None => self.sleep(ports, wanted, other, timeout),
        };
        for port in ports {
            port.words().receiver.rx_sleep.store(0, Ordering::Relaxed);
            port.words().sender.tx_sleep.store(0, Ordering::Relaxed);
        }
        woken
    }

    /// Listens no longer to the `other` of the last wait.
    ///
    /// # Errors
    /// As `epoll_ctl` reports them.
    pub fn forget(&mut self) -> io::Result<()> {
        self.sources.listen_to(None)
    }

    /// Waits until a sender rings, for whichever port, or until `timeout` (at most [`AGEING`]) is over: for a thread
    /// that has no ports and wakes the threads that have ports. Returns true if a sender has rung.
    ///
    /// # Errors
    /// As `epoll_wait` reports them; an interrupted wait is no error.
    pub fn wait_for_ring(&mut self, timeout: Duration) -> io::Result<bool> {
        self.stats.sleeps += 1;
        // Before the threads look at their ports: a ring after that is a ring of its own.
        let rung = self.sources.wait(timeout.min(AGEING))?.any();
        self.stats.wakes += u64::from(rung);
        Ok(rung)
    }

    /// Stores a fresh sleep epoch in each port. The fence orders it before the last look at the
    /// rings; the switch orders publication, and an I/O thread consumption, before its look at the epoch.
    fn announce(&mut self, ports: &[Port], wanted: Wanted) {
        self.epoch = self.epoch.wrapping_add(1).max(1);
        for port in ports {
            let words = port.words();
            if wanted.frames {
                port.announce_sleep(self.epoch);
            }
            if wanted.room && port.queued() > 0 {
                words.sender.tx_sleep.store(self.epoch, Ordering::Relaxed);
            }
        }
        fence(Ordering::SeqCst);
    }

    fn sleep(
        &mut self,
        ports: &[Port],
        wanted: Wanted,
        other: Option<&OwnedFd>,
        timeout: Duration,
    ) -> io::Result<Woken> {
        self.stats.sleeps += 1;
        let listen = self.spurious < SPURIOUS_MAX;
        // A sleep without the pipe has not heard the pipe, and so says nothing about peers that ring by the pipe.
        let forgiven = if listen { 0 } else { SPURIOUS_MAX - 1 };
        self.sources.listen_to_pipe(listen)?;
        self.sources.listen_to(other)?;
        let nothing_until = if listen { self.ageing } else { DEAF };
        let rung = self.sources.wait(timeout.min(nothing_until))?;
        self.ageing = AGEING;
        if let Some(woken) = due(ports, wanted) {
            self.stats.wakes += 1;
            self.stats.unrung += u64::from(!rung.any());
            self.spurious = forgiven;
            return Ok(woken);
        }
        if rung.other {
            return Ok(Woken::Other);
        }
        self.spurious = match (rung.any(), listen) {
            (true, _) => {
                self.stats.spurious += 1;
                self.spurious + 1
            }
            (false, false) => forgiven,
            (false, true) => self.spurious,
        };
        if listen && !rung.any() {
            // A sleep that was to be shorter says nothing about longer ones.
            let next = if timeout < nothing_until { 1 } else { 2 };
            self.ageing = (nothing_until * next).min(AGEING_IDLE);
        }
        Ok(Woken::Nothing)
    }
}

/// The events that a sleeper is to be woken for.
#[derive(Clone, Copy)]
struct Wanted {
    /// Wakes for frames that arrive: not while a TX ring is full of frames that an I/O thread has to consume.
    frames: bool,
    /// Slots in which frames were that an I/O thread has consumed.
    room: bool,
}

impl Wanted {
    /// Queued frames hold slots of any of the ports. Queued frames may take half of the smallest ring before they are
    /// worth a wake-up.
    fn by(ports: &[Port]) -> Self {
        let queued: u32 = ports.iter().map(Port::queued).sum();
        let half = ports.iter().map(Port::half).min().unwrap_or(0);
        let is_full = |port: &Port| port.is_served() && !port.can_queue();
        Wanted {
            frames: !ports.iter().any(is_full),
            room: queued > half || ports.iter().any(Port::awaits_slots),
        }
    }
}

/// Returns the event that has come already, if there is such an event.
fn due(ports: &[Port], wanted: Wanted) -> Option<Woken> {
    if wanted.room && ports.iter().any(Port::has_consumed) {
        Some(Woken::Consumed)
    } else if wanted.frames && ports.iter().any(Port::is_ready) {
        Some(Woken::Frame)
    } else {
        None
    }
}

/// Returns a random epoch from which the sleep epochs of a sleeper start. A restarted instance, or another I/O
/// thread, thus does not take up an epoch for which a sender believes to have rung already.
pub fn fresh_epoch() -> u32 {
    rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_nsec as u32
}
