//! Block until a frame arrives.
//!
//! A receiver announces its sleep in the rings of its ports (`rx_sleep`), looks at the rings once
//! more, and blocks on two descriptors: a pipe that link peers write to, and a BPF ring buffer that
//! the switch itself rings. Rings are remembered by both, so one that comes between the last look
//! and the sleep is not lost; the order of the announcement and the last look, and of publication
//! and the sender's look at the announcement, is checked by a model (`tests/loom_doorbell.rs`).
//!
//! Whoever holds the write end of the pipe can ring, but cannot take a ring back. A peer that rings
//! for nothing is ignored after [`SPURIOUS_MAX`] rings in a row, until real traffic comes.
//!
//! Why pipes and sleep epochs: `docs/adr/0004-doorbells.md`.

use crate::attach::AttachError;
use crate::port::Port;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

/// Rings in a row without a frame, after which the pipe is not listened to for one sleep.
pub const SPURIOUS_MAX: u32 = 16;
/// Longest sleep: whatever goes wrong elsewhere, a frame waits no longer than this.
pub const AGEING: Duration = Duration::from_secs(2);
const SPIN_MAX: u32 = 4096;
const SPIN_PROBE: u32 = 128;

/// The doorbell of a receiver, shared by its ports.
#[derive(Debug)]
pub struct Doorbell {
    pipe: Option<OwnedFd>,
    kernel: Option<KernelBell>,
    epoch: u32,
    spin: u32,
    spurious: u32,
    stats: DoorbellStats,
}

/// What the doorbell counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorbellStats {
    /// Sleeps.
    pub sleeps: u64,
    /// Sleeps that found a frame when they ended.
    pub wakes: u64,
    /// Rings without a frame.
    pub spurious: u64,
    /// Frames found while spinning.
    pub spins_hit: u64,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// At least one port has a frame.
    Frame,
    /// Another descriptor that the caller watches is ready.
    Other,
    /// The time is over, or a ring came without a frame.
    Nothing,
}

impl Doorbell {
    /// A doorbell on the read end of a pipe, a BPF ring buffer, or both.
    ///
    /// # Errors
    /// When the ring buffer cannot be mapped.
    pub fn new(pipe: Option<OwnedFd>, kernel: Option<OwnedFd>) -> Result<Self, AttachError> {
        Ok(Doorbell {
            pipe,
            kernel: kernel.map(KernelBell::map).transpose()?,
            epoch: fresh_epoch(),
            spin: SPIN_PROBE,
            spurious: 0,
            stats: DoorbellStats::default(),
        })
    }

    /// What was counted.
    pub fn stats(&self) -> DoorbellStats {
        self.stats
    }

    /// Turns of the adaptive spin before the next sleep.
    pub fn spin_turns(&self) -> u32 {
        self.spin
    }

    /// Waits until one of `ports` has a frame, `other` (if any) is readable, or `timeout` (at most
    /// [`AGEING`]) is over.
    ///
    /// # Errors
    /// As `poll` reports them; an interrupted wait is no error.
    pub fn wait(
        &mut self,
        ports: &[Port],
        other: Option<&OwnedFd>,
        timeout: Duration,
    ) -> io::Result<Woken> {
        if self.spin_for_frame(ports) {
            return Ok(Woken::Frame);
        }
        self.announce(ports);
        let ready = ports.iter().any(Port::is_ready);
        let woken = if ready {
            Ok(Woken::Frame)
        } else {
            self.sleep(ports, other, timeout)
        };
        for port in ports {
            port.words().receiver.rx_sleep.store(0, Ordering::Relaxed);
        }
        woken
    }

    /// Waits until somebody rings, for whichever port, or `timeout` (at most [`AGEING`]) is over: for a
    /// thread that has no ports and wakes those that have. Returns whether somebody did.
    ///
    /// # Errors
    /// As `poll` reports them; an interrupted wait is no error.
    pub fn wait_for_ring(&mut self, timeout: Duration) -> io::Result<bool> {
        self.stats.sleeps += 1;
        let kernel = self.kernel.as_ref().map(|bell| &bell.fd);
        let mut fds: arrayvec::ArrayVec<PollFd<'_>, 2> = arrayvec::ArrayVec::new();
        let bells = self.pipe.iter().chain(kernel);
        fds.extend(bells.map(|fd| PollFd::new(fd, PollFlags::IN)));
        let timeout = Timespec::try_from(timeout.min(AGEING)).map_err(io::Error::other)?;
        let polled = match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => 0,
            other => other?,
        };
        let pipe_ready = self.pipe.is_some() && !fds[0].revents().is_empty();
        if pipe_ready {
            self.drain_pipe();
        }
        // Before the threads look at their ports: a ring after that is a ring of its own.
        if let Some(bell) = &self.kernel {
            bell.drain();
        }
        self.stats.wakes += u64::from(polled > 0);
        Ok(polled > 0)
    }

    /// Spins while that has paid lately: it halves after each miss, doubles after each hit.
    fn spin_for_frame(&mut self, ports: &[Port]) -> bool {
        for _ in 0..self.spin {
            if ports.iter().any(Port::is_ready) {
                self.spin = (self.spin * 2).min(SPIN_MAX);
                self.stats.spins_hit += 1;
                return true;
            }
            std::hint::spin_loop();
        }
        self.spin /= 2;
        if self.stats.sleeps.is_multiple_of(64) {
            self.spin = self.spin.max(SPIN_PROBE);
        }
        false
    }

    /// Stores a fresh sleep epoch in each port. The fence orders it before the last look at the
    /// rings; the switch orders publication before its look at the epoch.
    fn announce(&mut self, ports: &[Port]) {
        self.epoch = self.epoch.wrapping_add(1).max(1);
        for port in ports {
            port.words()
                .receiver
                .rx_sleep
                .store(self.epoch, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    fn sleep(
        &mut self,
        ports: &[Port],
        other: Option<&OwnedFd>,
        timeout: Duration,
    ) -> io::Result<Woken> {
        self.stats.sleeps += 1;
        let listen = self.spurious < SPURIOUS_MAX;
        let mut fds: arrayvec::ArrayVec<PollFd<'_>, 3> = arrayvec::ArrayVec::new();
        let pipe = self.pipe.as_ref().filter(|_| listen);
        fds.extend(pipe.map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(
            self.kernel
                .as_ref()
                .map(|bell| PollFd::new(&bell.fd, PollFlags::IN)),
        );
        fds.extend(other.map(|fd| PollFd::new(fd, PollFlags::IN)));
        let timeout = Timespec::try_from(timeout.min(AGEING)).map_err(io::Error::other)?;
        let polled = match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => 0,
            other => other?,
        };
        let other_ready = other.is_some() && fds.last().is_some_and(|fd| !fd.revents().is_empty());
        let pipe_ready = pipe.is_some() && !fds[0].revents().is_empty();
        drop(fds);
        if pipe_ready {
            self.drain_pipe();
        }
        if let Some(bell) = &self.kernel {
            bell.drain();
        }
        if ports.iter().any(Port::is_ready) {
            self.stats.wakes += 1;
            self.spurious = 0;
            return Ok(Woken::Frame);
        }
        if other_ready {
            return Ok(Woken::Other);
        }
        self.spurious = match (polled > 0, listen) {
            (true, _) => {
                self.stats.spurious += 1;
                self.spurious + 1
            }
            (false, false) => 0,
            (false, true) => self.spurious,
        };
        Ok(Woken::Nothing)
    }

    fn drain_pipe(&self) {
        let mut bytes = [0u8; 4096];
        if let Some(pipe) = &self.pipe {
            let _ = rustix::io::read(pipe, &mut bytes);
        }
    }
}

/// Epochs start anywhere, so that a restarted instance does not take up one for which a sender
/// believes to have rung already.
fn fresh_epoch() -> u32 {
    rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_nsec as u32
}

/// The user side of a BPF ring buffer whose content does not matter.
#[derive(Debug)]
struct KernelBell {
    fd: OwnedFd,
    consumer: NonNull<AtomicU64>,
    producer: NonNull<AtomicU64>,
    page: usize,
}

// SAFETY: the two positions are atomics in a shared mapping that the bell owns.
unsafe impl Send for KernelBell {}
// SAFETY: as above.
unsafe impl Sync for KernelBell {}

impl KernelBell {
    fn map(fd: OwnedFd) -> Result<Self, AttachError> {
        let page = rustix::param::page_size();
        let map = |prot, offset: usize| {
            // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
            unsafe {
                mmap(
                    null_mut(),
                    page,
                    prot,
                    MapFlags::SHARED,
                    fd.as_fd(),
                    offset as u64,
                )
            }
            .map_err(|errno| AttachError::Map {
                what: "kernel bell",
                len: page,
                source: errno.into(),
            })
            .map(|start| {
                NonNull::new(start.cast::<AtomicU64>()).expect("mmap returns no null pointer")
            })
        };
        let consumer = map(ProtFlags::READ | ProtFlags::WRITE, 0)?;
        let producer = match map(ProtFlags::READ, page) {
            Ok(producer) => producer,
            Err(error) => {
                // SAFETY: we made this mapping just now and nobody else knows it.
                let _ = unsafe { munmap(consumer.as_ptr().cast(), page) };
                return Err(error);
            }
        };
        Ok(KernelBell {
            fd,
            consumer,
            producer,
            page,
        })
    }

    /// Marks everything as read: a ring buffer with unread records stays readable.
    fn drain(&self) {
        // SAFETY: both pointers are to mappings of at least a page that live as long as `self`.
        let (consumer, producer) = unsafe { (self.consumer.as_ref(), self.producer.as_ref()) };
        consumer.store(producer.load(Ordering::Acquire), Ordering::Release);
    }
}

impl Drop for KernelBell {
    fn drop(&mut self) {
        for start in [self.consumer, self.producer] {
            // SAFETY: we made these mappings, and nobody refers to them any more.
            let _ = unsafe { munmap(start.as_ptr().cast(), self.page) };
        }
    }
}
