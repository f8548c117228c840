//! Descriptors that a sleeping receiver listens to: its pipe, the kernel's doorbell, and a descriptor of the caller.

use crate::error::AttachError;
use crate::memory::Mapping;
use rustix::event::{Timespec, epoll};
use rustix::mm::ProtFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest sleep of a receiver that asks for it and found nothing after sleeps of
/// [`AGEING`](crate::doorbell::AGEING), twice that, and so on for a minute: 10,000 of them that look every 8 s cost
/// 3.5 % of a core.
pub const AGEING_IDLE: Duration = Duration::from_secs(64);
/// Wake-ups by the pipe between two reads of it: far fewer than it holds bytes.
const RINGS_UNREAD_MAX: u32 = 64;

/// Keys of the three.
const PIPE: u64 = 0;
const KERNEL: u64 = 1;
const OTHER: u64 = 2;

/// The sources, and what listens to them.
#[derive(Debug)]
pub(crate) struct WakeSources {
    events: OwnedFd,
    pipe: Option<OwnedFd>,
    kernel: Option<KernelDoorbell>,
    hears_pipe: bool,
    other: Option<RawFd>,
    rings_unread: u32,
}

/// The descriptors that have ended a sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rung {
    pub(crate) pipe: bool,
    pub(crate) kernel: bool,
    pub(crate) other: bool,
}

impl Rung {
    pub(crate) fn any(self) -> bool {
        self.pipe || self.kernel || self.other
    }
}

impl WakeSources {
    pub(crate) fn new(pipe: Option<OwnedFd>, kernel: Option<OwnedFd>) -> Result<Self, AttachError> {
        let listening = |errno: rustix::io::Errno| AttachError::Listen(errno.into());
        let mut sources = WakeSources {
            events: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(listening)?,
            pipe,
            kernel: kernel.map(KernelDoorbell::map).transpose()?,
            hears_pipe: false,
            other: None,
            rings_unread: 0,
        };
        if let Some(doorbell) = &sources.kernel {
            sources
                .add(&doorbell.fd, KERNEL, BY_EDGE)
                .map_err(listening)?;
        }
        sources.listen_to_pipe(true).map_err(AttachError::Listen)?;
        Ok(sources)
    }

    /// The pipe and the kernel's doorbell, to which another set may listen.
    pub(crate) fn into_parts(self) -> (Option<OwnedFd>, Option<KernelDoorbell>) {
        (self.pipe, self.kernel)
    }

    fn add(
        &self,
        fd: &OwnedFd,
        key: u64,
        flags: epoll::EventFlags,
    ) -> Result<(), rustix::io::Errno> {
        epoll::add(&self.events, fd, epoll::EventData::new_u64(key), flags)
    }

    /// Starts or stops listening to the pipe. At the start, bytes that lie in the pipe count as a ring.
    pub(crate) fn listen_to_pipe(&mut self, listen: bool) -> io::Result<()> {
        let Some(pipe) = self.pipe.as_ref().filter(|_| listen != self.hears_pipe) else {
            return Ok(());
        };
        if listen {
            self.add(pipe, PIPE, BY_EDGE)?;
        } else {
            epoll::delete(&self.events, pipe)?;
            self.drain_pipe();
        }
        self.hears_pipe = listen;
        Ok(())
    }

    /// Listens to `other`, and to nothing that was `other` before.
    pub(crate) fn listen_to(&mut self, other: Option<&OwnedFd>) -> io::Result<()> {
        let number = other.map(AsRawFd::as_raw_fd);
        if number == self.other {
            return Ok(());
        }
        if let Some(before) = self.other.take() {
            // SAFETY: the descriptor is borrowed for this call, which checks it: if it was closed
            // meanwhile, it left the set then.
            let before = unsafe { std::os::fd::BorrowedFd::borrow_raw(before) };
            let _ = epoll::delete(&self.events, before);
        }
        if let Some(fd) = other {
            self.add(fd, OTHER, epoll::EventFlags::IN)?;
        }
        self.other = number;
        Ok(())
    }

    /// Sleeps until one of them rings, or `timeout` (at most [`AGEING_IDLE`]) is over.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<Rung> {
        let timeout = Timespec::try_from(timeout.min(AGEING_IDLE)).map_err(io::Error::other)?;
        let nothing = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(PIPE),
        };
        let mut events = [nothing; 3];
        let count = match epoll::wait(&self.events, &mut events, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => 0,
            other => other?,
        };
        let mut rung = Rung::default();
        for event in &events[..count] {
            match event.data.u64() {
                PIPE => rung.pipe = true,
                KERNEL => rung.kernel = true,
                _ => rung.other = true,
            }
        }
        if rung.pipe {
            self.rings_unread += 1;
            if self.rings_unread >= RINGS_UNREAD_MAX {
                self.drain_pipe();
            }
        }
        // Costs no call; a full ring buffer would not ring.
        if let Some(doorbell) = &self.kernel {
            doorbell.drain();
        }
        Ok(rung)
    }

    fn drain_pipe(&mut self) {
        self.rings_unread = 0;
        if let Some(pipe) = &self.pipe {
            drain_pipe(pipe);
        }
    }
}

/// Reads far more than the rings between two such calls.
pub(crate) fn drain_pipe(pipe: &OwnedFd) {
    let mut bytes = [0u8; 4096];
    let _ = rustix::io::read(pipe, &mut bytes);
}

/// Each ring is an event, whether or not the ones before were read.
pub(crate) const BY_EDGE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);

/// The user side of a BPF ring buffer whose content does not matter.
#[derive(Debug)]
pub(crate) struct KernelDoorbell {
    fd: OwnedFd,
    consumer: Mapping,
    producer: Mapping,
}

impl KernelDoorbell {
    fn map(fd: OwnedFd) -> Result<Self, AttachError> {
        let page = rustix::param::page_size();
        let map =
            |access, offset| Mapping::with(fd.as_fd(), (offset, page), "kernel doorbell", access);
        Ok(KernelDoorbell {
            consumer: map(ProtFlags::READ | ProtFlags::WRITE, 0)?,
            producer: map(ProtFlags::READ, page)?,
            fd,
        })
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Marks everything as read: a ring buffer with unread records stays readable.
    pub(crate) fn drain(&self) {
        let position = |mapping: &Mapping| mapping.start().cast::<AtomicU64>();
        let (consumer, producer) = (position(&self.consumer), position(&self.producer));
        // SAFETY: a mapping of a page begins with a position, an atomic, and lives as long as `self`. That of the producer is
        // only loaded from.
        let (consumer, producer) = unsafe { (consumer.as_ref(), producer.as_ref()) };
        consumer.store(producer.load(Ordering::Acquire), Ordering::Release);
    }
}
