//! Waiting for rings and for other descriptors at once.
//!
//! A wait for rings also does what is to be done there: packets leave, released buffers go back, and what has arrived is
//! shown. Buffers come back before packets leave, because packets that a program forwards need them.

use crate::calls::{errno, fail};
use crate::descriptor::Descriptor;
use crate::next;
use nfluid_ring::bells::Latch;
use nfluid_ring::doorbell::AGEING;
use nfluid_ring::patience::Patience;
use std::cell::Cell;
use std::ffi::{c_int, c_short};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

const IN: c_short = libc::POLLIN | libc::POLLRDNORM;
const OUT: c_short = libc::POLLOUT | libc::POLLWRNORM;

/// A descriptor of this library among those that are waited for.
pub struct Awaited {
    pub descriptor: Arc<Descriptor>,
    /// What is waited for, as in `poll`.
    pub events: c_short,
    /// What has come.
    pub found: c_short,
}

/// How long a wait is.
#[derive(Clone, Copy)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Of a timeout; `None`: never.
    pub fn of(timeout: Option<Duration>) -> Self {
        // One that no clock reaches is none.
        Deadline(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    fn left(self) -> Duration {
        self.0.map_or(AGEING, |end| {
            end.saturating_duration_since(Instant::now()).min(AGEING)
        })
    }

    fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// The other descriptors of a wait, which the kernel knows.
pub trait Others {
    /// Waits for them, and for a latch if there is one, for at most `time`. Returns how many of them are ready, or -1 with
    /// errno. `found` others of this library are ready already.
    fn wait(&mut self, latch: Option<&Latch>, time: Duration, found: c_int) -> c_int;

    /// The latch by which a thread sleeps, if it is not that of a descriptor.
    fn latch(&self) -> Option<Arc<Latch>> {
        None
    }
}

thread_local! {
    /// Turns before the sleeps of this thread, and its sleeps.
    static PATIENCE: Cell<(Patience, u64)> = Cell::new((Patience::default(), 0));
}

/// Waits until one of `awaited` or of `others` is ready. Returns how many are: 0, the time is over; -1, with errno.
pub fn wait(awaited: &mut [Awaited], others: &mut dyn Others, deadline: Deadline) -> c_int {
    loop {
        let ready = look(awaited);
        if ready > 0 || deadline.is_over() {
            let more = others.wait(None, Duration::ZERO, ready);
            // What was found is not lost by an error of the others, who have it still.
            return if ready > 0 { ready + more.max(0) } else { more };
        }
        if !arrives_soon(awaited) {
            let more = sleep(awaited, others, deadline);
            if more != 0 {
                return more;
            }
        }
    }
}

/// Does what is to be done at the rings, and finds out which are ready.
fn look(awaited: &mut [Awaited]) -> c_int {
    let mut ready = 0;
    for one in &mut *awaited {
        let is_good = one.descriptor.binding().is_some() && one.descriptor.release().is_ok();
        one.found = if is_good { 0 } else { libc::POLLERR };
    }
    for one in &mut *awaited {
        let waits_for_room = one.events & OUT != 0;
        let sends = |it: &crate::descriptor::Binding| waits_for_room || !it.no_tx_poll;
        if one.descriptor.binding().is_some_and(sends) && one.descriptor.send().is_err() {
            one.found |= libc::POLLERR;
        }
        if waits_for_room && one.descriptor.can_send() {
            one.found |= one.events & OUT;
        }
    }
    for one in &mut *awaited {
        let waits = one.events & IN != 0;
        let receives = |it: &crate::descriptor::Binding| waits || it.do_rx_poll;
        if one.descriptor.binding().is_some_and(receives) {
            one.descriptor.receive();
        }
        if waits && one.descriptor.has_received() {
            one.found |= one.events & IN;
        }
        ready += c_int::from(one.found != 0);
    }
    ready
}

/// The lanes in which a frame is waited for.
fn lanes(awaited: &[Awaited]) -> impl Iterator<Item = (&Descriptor, usize)> {
    let receiving = awaited.iter().filter(|one| one.events & IN != 0);
    receiving.flat_map(|one| {
        let lanes = one.descriptor.binding().map(|it| it.rx.iter());
        lanes
            .into_iter()
            .flatten()
            .map(|lane| (&*one.descriptor, *lane))
    })
}

/// Waits for a few turns while that has paid lately. Returns true if a frame has come.
fn arrives_soon(awaited: &[Awaited]) -> bool {
    let due = || {
        lanes(awaited)
            .any(|(descriptor, lane)| descriptor.instance.has_arrived(lane))
            .then_some(())
    };
    let (mut patience, sleeps) = PATIENCE.get();
    let found = patience
        .give_way(sleeps, due)
        .or_else(|| patience.spin(sleeps, due));
    PATIENCE.set((patience, sleeps + u64::from(found.is_none())));
    found.is_some()
}

/// Sleeps until a frame comes, or another descriptor is ready; 0: one of them, or none, has to be looked for.
fn sleep(awaited: &[Awaited], others: &mut dyn Others, deadline: Deadline) -> c_int {
    let Some(first) = awaited.iter().find(|one| one.events & IN != 0) else {
        return others.wait(None, deadline.left(), 0);
    };
    let own = others.latch();
    let latch = own.as_deref().unwrap_or(&first.descriptor.latch);
    latch.set();
    let epoch = first.descriptor.instance.bells.next_epoch();
    // All, also behind one with a frame: `awake` is for all.
    let asleep = lanes(awaited).fold(true, |asleep, (descriptor, lane)| {
        descriptor.instance.lane(lane).fall_asleep(epoch) && asleep
    });
    let time = if asleep {
        deadline.left()
    } else {
        Duration::ZERO
    };
    let more = others.wait(Some(latch), time, 0);
    let errno = errno();
    for (descriptor, lane) in lanes(awaited) {
        descriptor.instance.lane(lane).awake();
    }
    latch.release();
    if more < 0 {
        return fail(errno);
    }
    more
}

/// The descriptors of a `poll` that the kernel knows.
pub struct Polled<'a> {
    fds: &'a mut [libc::pollfd],
    /// A copy in which those of this library are left out, with one more place.
    own: Vec<libc::pollfd>,
    mask: *const libc::sigset_t,
}

/// `poll` over descriptors of which some are of this library; `None`: none is.
///
/// # Safety
/// `mask` is null or can be read.
pub unsafe fn poll(
    fds: &mut [libc::pollfd],
    deadline: Deadline,
    mask: *const libc::sigset_t,
) -> Option<c_int> {
    let mut awaited: Vec<Awaited> = Vec::new();
    let mut places = Vec::new();
    for (index, fd) in fds.iter().enumerate() {
        if let Some(descriptor) = crate::descriptor::find(fd.fd) {
            places.push(index);
            awaited.push(Awaited {
                descriptor,
                events: fd.events,
                found: 0,
            });
        }
    }
    if awaited.is_empty() {
        return None;
    }
    let mut own = fds.to_vec();
    for index in &places {
        own[*index].fd = -1;
    }
    own.push(NOTHING);
    let mut others = Polled { fds, own, mask };
    let ready = wait(&mut awaited, &mut others, deadline);
    for (index, one) in places.into_iter().zip(&awaited) {
        fds[index].revents = one.found;
    }
    Some(ready)
}

const NOTHING: libc::pollfd = libc::pollfd {
    fd: -1,
    events: libc::POLLIN,
    revents: 0,
};

impl Others for Polled<'_> {
    fn wait(&mut self, latch: Option<&Latch>, time: Duration, _found: c_int) -> c_int {
        let last = self.own.len() - 1;
        self.own[last].fd = latch.map_or(-1, AsRawFd::as_raw_fd);
        let is_empty = self.own.iter().all(|fd| fd.fd < 0);
        if is_empty && time.is_zero() {
            return 0;
        }
        let time = timespec(time);
        let count = self.own.len() as libc::nfds_t;
        // SAFETY: the array is ours, and the mask as the caller promised.
        let mut ready =
            unsafe { next::ppoll(self.own.as_mut_ptr(), count, &raw const time, self.mask) };
        for (fd, own) in self.fds.iter_mut().zip(&self.own) {
            fd.revents = if own.fd < 0 { 0 } else { own.revents };
        }
        if ready > 0 && latch.is_some() && self.own[last].revents != 0 {
            ready -= 1;
        }
        ready
    }
}

pub fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
