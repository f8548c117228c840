//! Handing queued frames over: by the hyperio call, or to an I/O thread.

use super::*;
use std::time::Duration;

/// Looks at what an I/O thread has done, before the first nap.
const IO_THREAD_YIELDS: u32 = 64;
/// Between two later ones.
const IO_THREAD_NAP: Duration = Duration::from_micros(50);

impl Port {
    /// Hands the queued frames to the switch, in this thread's own context, and wakes the link's
    /// peer if it sleeps; or to an I/O thread, if one serves the port. Returns how many frames have
    /// been consumed since the last flush.
    ///
    /// # Errors
    /// `EBUSY`: another thread is in a call on this port; `ENETDOWN`: the port is down. The queued
    /// frames are discarded and counted in [`PortStats::tx_errors`].
    pub fn flush(&mut self, when_full: WhenFull) -> io::Result<u32> {
        let flushed = self.flush_quietly(when_full);
        self.ring_all();
        flushed
    }

    /// Flushes as [`Port::flush`] does, but defers the wake-up of a receiver on the caller's core, which could not run
    /// before the caller sleeps: [`Port::ring_all`] wakes it, or the caller's own sleep
    /// ([`crate::doorbell::Doorbell::wait`]).
    ///
    /// # Errors
    /// As for [`Port::flush`].
    pub fn flush_quietly(&mut self, when_full: WhenFull) -> io::Result<u32> {
        if self.is_served() && self.hand_over(when_full) {
            return Ok(self.collect());
        }
        let mut consumed = 0;
        while self.queued() > 0 {
            let step = self.call(when_full)?;
            consumed += step;
            if step == 0 || (when_full == WhenFull::Keep && self.queued() > 0) {
                break;
            }
        }
        Ok(consumed)
    }

    fn call(&mut self, when_full: WhenFull) -> io::Result<u32> {
        let option = match when_full {
            WhenFull::Drop => CALL_TX,
            WhenFull::Keep => CALL_TX_KEEP,
        };
        self.words()
            .sender
            .tx_head
            .store(self.tx_next, Ordering::Release);
        self.stats.calls += 1;
        if let Err(error) = self.hyperio(option) {
            if self.was_served && error.raw_os_error() == Some(libc::EBUSY) {
                // The I/O thread that leaves the port is in its last calls: it looks at `tx_head`
                // after each of them, and takes these frames along.
                return Ok(self.collect());
            }
            self.stats.tx_errors += 1;
            self.discard_queued();
            return Err(error);
        }
        let asleep = self.words().switch.peer_asleep.load(Ordering::Relaxed);
        let tail = self.words().switch.tx_tail.load(Ordering::Acquire);
        if tail.wrapping_sub(self.tx_done) > self.queued() {
            // Another thread uses this port too, so positions mean nothing any more.
            self.stats.tx_errors += 1;
            self.discard_queued();
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        if asleep != 0 {
            self.peer_asleep = asleep;
        }
        Ok(self.collect())
    }

    /// Waits until the I/O thread has made the port's calls, if an I/O thread makes them: the slots of queued frames are
    /// the caller's again.
    pub fn await_io_thread(&mut self) {
        let mut turns: u32 = 0;
        while self.queued() > 0 && self.is_served() {
            if self.collect() > 0 {
                turns = 0;
            } else if turns < IO_THREAD_YIELDS {
                turns += 1;
                std::thread::yield_now();
            } else {
                std::thread::sleep(IO_THREAD_NAP);
            }
        }
    }

    /// Returns true if an I/O thread makes this port's calls.
    #[inline]
    pub fn is_served(&self) -> bool {
        self.words().switch.served.load(Ordering::Relaxed) != SERVED_BY_ITSELF
            && self.io_doorbell.is_some()
    }

    /// Returns true if an I/O thread on this core makes this port's calls.
    #[inline]
    pub(crate) fn is_served_from_own_core(&self) -> bool {
        self.words().switch.served.load(Ordering::Relaxed) == SERVED_FROM_OWN_CORE
            && self.io_doorbell.is_some()
    }

    /// Returns true if a frame waits in a TX slot of the port itself. The sender of such a frame may want the slot
    /// back; slots of frames that are only passed on are wanted back only when slots are short.
    #[inline]
    pub(crate) fn awaits_slots(&self) -> bool {
        self.sends_own && self.queued() > 0
    }

    /// Frames of which the port should not have more queued if its instance is to have room enough.
    #[inline]
    pub(crate) fn half(&self) -> u32 {
        self.mask / 2
    }

    /// Hands the queued frames over to the I/O thread. Returns false if the thread has left the port meanwhile, and
    /// may not have seen these frames.
    fn hand_over(&mut self, when_full: WhenFull) -> bool {
        self.was_served = true;
        let words = self.words();
        let line = &words.sender;
        line.tx_keep
            .store(u32::from(when_full == WhenFull::Keep), Ordering::Relaxed);
        line.tx_cpu.store(current_cpu() + 1, Ordering::Relaxed);
        line.tx_head.store(self.tx_next, Ordering::Release);
        // The fence stands before the looks at the thread's words. The thread announces its sleep, or that it no
        // longer serves the port, before its last look at `tx_head`. So either this side sees the announcement, or
        // the thread sees the new head.
        fence(Ordering::SeqCst);
        self.io_asleep = words.switch.io_sleep.load(Ordering::Relaxed);
        // On this core it cannot run before this thread sleeps, and should find all there is then.
        if !self.is_served_from_own_core() || self.queued() > self.half() {
            self.ring_io_thread();
        }
        self.is_served()
    }

    /// Wakes the I/O thread if handing over has found it asleep.
    fn ring_io_thread(&mut self) {
        let epoch = std::mem::take(&mut self.io_asleep);
        if epoch == 0 || epoch == self.io_rung {
            return;
        }
        if let Some(doorbell) = &self.io_doorbell {
            // A full eventfd is a ring that the thread has not answered yet.
            let _ = rustix::io::write(&**doorbell, &1u64.to_ne_bytes());
            self.stats.rings += 1;
        }
        self.io_rung = epoch;
    }

    /// Wakes the receivers that flushes have found asleep: the link's peer, and the I/O thread.
    #[inline]
    pub fn ring_all(&mut self) {
        self.ring_peer();
        if self.io_asleep != 0 {
            self.ring_io_thread();
        }
    }

    /// Notes the frames that an I/O thread has consumed since the last call, and returns their number.
    pub fn collect(&mut self) -> u32 {
        let tail = self.words().switch.tx_tail.load(Ordering::Acquire);
        let consumed = tail.wrapping_sub(self.tx_done);
        if consumed > self.queued() {
            return 0;
        }
        self.take_back(consumed);
        self.tx_done = tail;
        self.sends_own &= self.queued() > 0;
        self.stats.tx_frames += u64::from(consumed);
        consumed
    }

    /// Takes the slots in the next `count` TX descriptors back for the instance, if the pool is shared.
    #[inline]
    fn take_back(&self, count: u32) {
        let Some(lending) = self.pool.lending().filter(|_| count > 0) else {
            return;
        };
        let tx = &self.words().tx;
        lending.put_back((0..count.min(self.mask + 1)).map(|i| {
            let index = self.tx_done.wrapping_add(i) & self.mask;
            tx_desc_slot(tx[index as usize].load(Ordering::Relaxed))
        }));
    }

    /// Has an I/O thread consumed something that was not yet collected?
    #[inline]
    pub(crate) fn has_consumed(&self) -> bool {
        self.queued() > 0 && self.words().switch.tx_tail.load(Ordering::Acquire) != self.tx_done
    }

    /// Position after the last frame queued.
    #[inline]
    pub(crate) fn tx_next(&self) -> u32 {
        self.tx_next
    }

    /// Has the switch consumed everything that was queued before `position`?
    #[inline]
    pub(crate) fn is_consumed(&self, position: u32) -> bool {
        self.queued() == 0 || is_before(position, self.tx_done)
    }

    /// Takes queued frames back: the switch has not consumed them and never will.
    pub fn discard_queued(&mut self) {
        self.take_back(self.queued());
        self.tx_next = self.words().switch.tx_tail.load(Ordering::Acquire);
        self.tx_done = self.tx_next;
        self.words()
            .sender
            .tx_head
            .store(self.tx_next, Ordering::Release);
    }

    /// Wakes the link's peer if a flush has found it asleep.
    #[inline]
    pub fn ring_peer(&mut self) {
        if self.peer_asleep != 0 {
            self.ring_sleeping_peer();
        }
    }

    /// Writes a byte into the peer's pipe. A full pipe was filled by another peer of its owner, and would not wake
    /// the owner: the switch rings then. A closed pipe means that the peer is gone, which is no error of this sender.
    fn ring_sleeping_peer(&mut self) {
        let epoch = std::mem::take(&mut self.peer_asleep);
        if epoch == self.rung {
            return;
        }
        if let Some(doorbell) = &self.peer_doorbell {
            if rustix::io::write(doorbell, &[1]) == Err(rustix::io::Errno::AGAIN) {
                let _ = self.hyperio(CALL_DOORBELL);
            }
            self.stats.rings += 1;
        }
        self.rung = epoch;
    }

    /// Enters the switch and does nothing there: the cost of the call itself.
    ///
    /// # Errors
    /// As the kernel reports them.
    pub fn nop(&self) -> io::Result<()> {
        self.hyperio(CALL_NOP)
    }

    /// Runs the switch over a TX ring in which nothing is queued.
    ///
    /// # Errors
    /// As for [`Port::flush`].
    pub fn call_empty(&self) -> io::Result<()> {
        self.hyperio(CALL_TX)
    }

    #[inline]
    fn hyperio(&self, option: i32) -> io::Result<()> {
        let value = 0u32;
        // SAFETY: the option value is a live u32 of the length that is passed; the kernel only
        // reads it.
        let status = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                SOL_NFLUID,
                option,
                (&raw const value).cast(),
                size_of::<u32>() as libc::socklen_t,
            )
        };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// The core on which the caller runs.
fn current_cpu() -> u32 {
    // SAFETY: the call has no preconditions; it fails only where the kernel does not know it.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).unwrap_or(u32::MAX - 1)
}
