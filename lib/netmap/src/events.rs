//! `epoll`: the kernel has a latch in each set that has descriptors of this library, and not those descriptors. What their
//! rings are ready for is found here, at each wait.

use crate::calls::{errno, fail, guarded, milliseconds};
use crate::descriptor::{self, Descriptor};
use crate::next;
use crate::waiting::{Awaited, Deadline, Others, wait};
use nfluid_ring::bells::Latch;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_short};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a set is to say of a descriptor.
#[derive(Clone, Copy)]
struct Interest {
    events: u32,
    data: u64,
}

/// The descriptors of this library in a set of the program.
#[derive(Clone)]
struct Set {
    /// In the kernel's set.
    latch: Arc<Latch>,
    members: BTreeMap<c_int, Interest>,
}

type Sets = BTreeMap<c_int, Set>;

static SETS: Mutex<Sets> = Mutex::new(BTreeMap::new());
/// The number of sets: programs without any look up nothing.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The data by which the kernel knows a latch: an address that no program has.
static OWN: u8 = 0;

fn own_data() -> u64 {
    (&raw const OWN) as u64
}

fn sets() -> MutexGuard<'static, Sets> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes sets without members. Their latches are closed, and so leave the kernel's sets, when the lock is free again:
/// this library's own `close` takes it.
fn tidy(mut sets: MutexGuard<'static, Sets>) {
    let (kept, empty) = std::mem::take(&mut *sets)
        .into_iter()
        .partition(|(_, set): &(c_int, Set)| !set.members.is_empty());
    *sets = kept;
    COUNT.store(sets.len(), Ordering::Release);
    drop(sets);
    drop::<Sets>(empty);
}

/// A descriptor is closed: a set, or a member of sets.
pub fn forget(fd: c_int) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut sets = sets();
    if let Some(set) = sets.get_mut(&fd) {
        set.members.clear();
    }
    sets.values_mut().for_each(|set| {
        set.members.remove(&fd);
    });
    tidy(sets);
}

/// Changes what a set is to say of a descriptor of this library. Returns errno if it cannot be.
fn change(
    set: c_int,
    operation: c_int,
    (fd, descriptor): (c_int, &Descriptor),
    event: Option<libc::epoll_event>,
) -> Result<(), c_int> {
    let mut sets = sets();
    let is_member = |set: &Set| set.members.contains_key(&fd);
    match (operation, sets.get(&set).is_some_and(is_member)) {
        (libc::EPOLL_CTL_ADD, true) => return Err(libc::EEXIST),
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => return Err(libc::ENOENT),
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, _) => {}
        _ => return Err(libc::EINVAL),
    }
    if operation == libc::EPOLL_CTL_DEL {
        if let Some(set) = sets.get_mut(&set) {
            set.members.remove(&fd);
        }
        tidy(sets);
        return Ok(());
    }
    let event = event.ok_or(libc::EFAULT)?;
    let interest = Interest {
        events: event.events,
        data: event.u64,
    };
    if let Some(set) = sets.get_mut(&set) {
        set.members.insert(fd, interest);
        return Ok(());
    }
    let latch = descriptor
        .instance
        .bells
        .latch()
        .map_err(|_| libc::ENOMEM)?;
    let mut own = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: own_data(),
    };
    // SAFETY: the event is ours.
    let done = unsafe { next::epoll_ctl(set, operation, latch.as_raw_fd(), &raw mut own) };
    if done != 0 {
        let errno = errno();
        // Before the latch is closed: see `tidy`.
        drop(sets);
        return Err(errno);
    }
    let new = Set {
        latch: Arc::new(latch),
        members: BTreeMap::from([(fd, interest)]),
    };
    sets.insert(set, new);
    COUNT.store(sets.len(), Ordering::Release);
    Ok(())
}

/// `epoll_ctl` of the C library.
///
/// # Safety
/// As of that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    let Some(own) = descriptor::find(fd) else {
        // SAFETY: as the caller promises.
        return unsafe { next::epoll_ctl(set, operation, fd, event) };
    };
    // SAFETY: null or an event, as the caller promises.
    let event = unsafe { event.as_ref() }.copied();
    let changed = guarded(
        || change(set, operation, (fd, &own), event),
        || Err(libc::EFAULT),
    );
    changed.map_or_else(fail, |()| 0)
}

/// The rest of a set, which the kernel knows.
struct Rest<'a> {
    set: c_int,
    latch: Arc<Latch>,
    events: &'a mut Vec<libc::epoll_event>,
    most: usize,
    mask: *const libc::sigset_t,
}

impl Others for Rest<'_> {
    /// The latch is in the set already. What the kernel has no room to tell now, it tells at the next wait.
    fn wait(&mut self, _latch: Option<&Latch>, time: Duration, found: c_int) -> c_int {
        let room = self.most - usize::try_from(found).unwrap_or(0).min(self.most);
        if room == 0 {
            return 0;
        }
        // Rounded up, so that no wait ends early and spins.
        let time = c_int::try_from(time.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX);
        let nothing = libc::epoll_event { events: 0, u64: 0 };
        let mut found = vec![nothing; room];
        let most = c_int::try_from(room).unwrap_or(c_int::MAX);
        // SAFETY: the array is ours, and the mask as the caller promised.
        let count =
            unsafe { next::epoll_pwait(self.set, found.as_mut_ptr(), most, time, self.mask) };
        found.truncate(usize::try_from(count).unwrap_or(0));
        found.retain(|event| event.u64 != own_data());
        *self.events = found;
        match count {
            0.. => self.events.len() as c_int,
            _ => count,
        }
    }

    fn latch(&self) -> Option<Arc<Latch>> {
        Some(Arc::clone(&self.latch))
    }
}

/// Waits, if a descriptor of this library is in the set.
///
/// # Safety
/// `events` has room for `most`; `mask` is null or can be read.
unsafe fn wait_for(
    set: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: Option<Duration>,
    mask: *const libc::sigset_t,
) -> Option<c_int> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let Set { latch, members } = sets().get(&set).cloned()?;
    let most = usize::try_from(most).unwrap_or(0);
    if most == 0 || events.is_null() {
        return Some(fail(libc::EINVAL));
    }
    let mut interests = Vec::new();
    let mut awaited = Vec::new();
    for (fd, interest) in members {
        if let Some(descriptor) = descriptor::find(fd) {
            interests.push((fd, interest));
            // The numbers of poll's events are those of epoll's.
            awaited.push(Awaited {
                descriptor,
                events: interest.events as c_short & (libc::POLLIN | libc::POLLOUT),
                found: 0,
            });
        }
    }
    let mut found = Vec::new();
    let mut rest = Rest {
        set,
        latch,
        events: &mut found,
        most,
        mask,
    };
    let ready = wait(&mut awaited, &mut rest, Deadline::of(timeout));
    if ready <= 0 {
        return Some(ready);
    }
    let mut all = Vec::new();
    for ((fd, interest), one) in interests.into_iter().zip(&awaited) {
        if one.found == 0 || all.len() == most {
            continue;
        }
        all.push(libc::epoll_event {
            events: u32::from(one.found.cast_unsigned()),
            u64: interest.data,
        });
        if interest.events & libc::EPOLLONESHOT as u32 != 0 {
            silence(set, fd);
        }
    }
    all.append(&mut found);
    all.truncate(most);
    for (index, event) in all.iter().enumerate() {
        // SAFETY: less than `most`, which is the room of the array.
        unsafe { events.add(index).write(*event) };
    }
    Some(all.len() as c_int)
}

/// A member that was to be told once says nothing until the program asks anew.
fn silence(set: c_int, fd: c_int) {
    let mut sets = sets();
    let member = sets.get_mut(&set).and_then(|set| set.members.get_mut(&fd));
    if let Some(interest) = member {
        interest.events = 0;
    }
}

/// `epoll_pwait` of the C library.
///
/// # Safety
/// As of that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const libc::sigset_t,
) -> c_int {
    let time = milliseconds(timeout);
    // SAFETY: the same contract.
    let own = || unsafe { wait_for(set, events, most, time, mask) };
    let own = guarded(own, || Some(-1));
    // SAFETY: the same contract.
    own.unwrap_or_else(|| unsafe { next::epoll_pwait(set, events, most, timeout, mask) })
}

/// `epoll_wait` of the C library.
///
/// # Safety
/// As of that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { epoll_pwait(set, events, most, timeout, std::ptr::null()) }
}
