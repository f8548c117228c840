//! A doorbell for a program whose threads sleep in event loops of their own, such as `poll(2)`.
//!
//! All ports of an instance have one doorbell, and a ring does not say which port it is for. Each thread listens to it by a
//! [`Latch`]: a descriptor that stays readable from a ring on until its thread has seen it. A latch counts rings by edge, so
//! that a ring that one thread has seen is still there for the others. But a doorbell that nobody reads fills up, and what
//! one thread reads is gone for all. So a thread that reads wakes the other sleepers.

use crate::doorbell::fresh_epoch;
use crate::error::AttachError;
use crate::wake_sources::{BY_EDGE, KernelDoorbell, WakeSources, drain_pipe};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Wake-ups between two reads of the doorbell, far fewer than it holds rings.
const UNREAD_MAX: u32 = 16;

/// The doorbell that latches listen to.
#[derive(Debug)]
pub struct Bells {
    pipe: Option<OwnedFd>,
    kernel: Option<KernelDoorbell>,
    epoch: AtomicU32,
    listening: Mutex<Listening>,
}

#[derive(Debug, Default)]
struct Listening {
    /// The latches that are set: their threads sleep, or are about to.
    set: Vec<Weak<OwnedFd>>,
    /// Wake-ups since the doorbell was read.
    unread: u32,
}

/// What one thread listens by. Readable from a ring on, or from a wake-up by another thread on, until
/// [`Latch::release`].
#[derive(Debug)]
pub struct Latch {
    bells: Arc<Bells>,
    events: OwnedFd,
    /// Rung by other threads of the program.
    own: Arc<OwnedFd>,
}

impl Bells {
    pub(crate) fn new(sources: WakeSources) -> Self {
        let (pipe, kernel) = sources.into_parts();
        Bells {
            pipe,
            kernel,
            epoch: AtomicU32::new(fresh_epoch()),
            listening: Mutex::default(),
        }
    }

    /// A further latch.
    ///
    /// # Errors
    /// The kernel has no descriptor for it.
    pub fn latch(self: &Arc<Self>) -> Result<Latch, AttachError> {
        self.listen()
            .map_err(|errno| AttachError::Listen(errno.into()))
    }

    fn listen(self: &Arc<Self>) -> Result<Latch, rustix::io::Errno> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let kernel = self.kernel.as_ref().map(KernelDoorbell::fd);
        for fd in [Some(&own), self.pipe.as_ref(), kernel]
            .into_iter()
            .flatten()
        {
            epoll::add(&events, fd, epoll::EventData::new_u64(0), BY_EDGE)?;
        }
        Ok(Latch {
            bells: Arc::clone(self),
            events,
            own: Arc::new(own),
        })
    }

    /// The epoch of a sleep, for [`Port::fall_asleep`](crate::port::Port::fall_asleep).
    pub fn next_epoch(&self) -> u32 {
        let before = self.epoch.fetch_add(1, Ordering::Relaxed);
        before.wrapping_add(1).max(1)
    }

    fn drain(&self) {
        if let Some(pipe) = &self.pipe {
            drain_pipe(pipe);
        }
        if let Some(kernel) = &self.kernel {
            kernel.drain();
        }
    }
}

impl Latch {
    /// Before the thread announces its sleep: from now on no ring is lost to it.
    pub fn set(&self) {
        let mut listening = self.listening();
        listening.set.push(Arc::downgrade(&self.own));
    }

    /// After the sleep: forgets what has rung.
    pub fn release(&self) {
        let mut events = [const {
            epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(0),
            }
        }; 3];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let rung = epoll::wait(&self.events, &mut events, Some(&at_once));
        let mut listening = self.listening();
        let own = Arc::as_ptr(&self.own);
        listening
            .set
            .retain(|other| !std::ptr::eq(other.as_ptr(), own) && other.strong_count() > 0);
        listening.unread += u32::from(rung != Ok(0));
        if listening.unread < UNREAD_MAX {
            return;
        }
        listening.unread = 0;
        // Under the lock: whoever sets a latch later has not announced its sleep yet, and no ring is for it.
        self.bells.drain();
        for other in listening.set.iter().filter_map(Weak::upgrade) {
            let _full = rustix::io::write(&*other, &1u64.to_ne_bytes());
        }
    }

    fn listening(&self) -> std::sync::MutexGuard<'_, Listening> {
        let listening = self.bells.listening.lock();
        listening.unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Latch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// The descriptor's number, which a program may have as its own.
impl std::os::fd::AsRawFd for Latch {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.events.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::Doorbell;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_readable(latch: &Latch) -> bool {
        let mut fds = [PollFd::new(latch, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&at_once)).unwrap() == 1
    }

    #[test]
    fn a_ring_is_for_every_latch_and_none_is_lost_to_a_thread_that_reads_for_others() {
        let (reader, writer) = std::io::pipe().unwrap();
        let doorbell = Doorbell::new(Some(reader.into()), None).unwrap();
        let bells = Arc::new(doorbell.into_bells());
        let (one, other) = (bells.latch().unwrap(), bells.latch().unwrap());
        other.set();
        for turn in 0..3 * UNREAD_MAX {
            one.set();
            rustix::io::write(&writer, &[1]).unwrap();
            assert!(is_readable(&one), "{turn}");
            one.release();
            assert!(!is_readable(&one), "{turn}");
            // Also in the turn in which `one` has emptied the pipe.
            assert!(is_readable(&other), "{turn}");
        }
        other.release();
        assert!(!is_readable(&other));
        assert!(bells.listening.lock().unwrap().set.is_empty());
    }

    #[test]
    fn a_doorbell_that_many_rings_are_written_to_never_fills_up() {
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let doorbell = Doorbell::new(Some(reader.into()), None).unwrap();
        let bells = Arc::new(doorbell.into_bells());
        let latch = bells.latch().unwrap();
        for _ in 0..100_000 {
            latch.set();
            rustix::io::write(&writer, &[1]).expect("room for a ring");
            latch.release();
        }
    }
}
