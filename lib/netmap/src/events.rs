//! `epoll`: the kernel knows a descriptor of this library in a set by the instance's doorbell only. What its rings are ready
//! for is found here, at each wait.

use crate::calls::{fail, guarded, milliseconds};
use crate::descriptor;
use crate::next;
use crate::waiting::{Awaited, Deadline, Others, wait};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_short};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a set is to say of a descriptor.
#[derive(Clone, Copy)]
struct Interest {
    events: u32,
    data: u64,
}

/// For each set, its descriptors of this library.
static SETS: Mutex<BTreeMap<c_int, BTreeMap<c_int, Interest>>> = Mutex::new(BTreeMap::new());
/// The number of sets: programs without any look up nothing.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The data by which the kernel knows such a descriptor: an address that no program has.
static OWN: u8 = 0;

fn own_data() -> u64 {
    (&raw const OWN) as u64
}

fn sets() -> MutexGuard<'static, BTreeMap<c_int, BTreeMap<c_int, Interest>>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A descriptor is closed: a set, or a member of sets.
pub fn forget(fd: c_int) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut sets = sets();
    sets.remove(&fd);
    sets.values_mut().for_each(|set| {
        set.remove(&fd);
    });
    sets.retain(|_, set| !set.is_empty());
    COUNT.store(sets.len(), Ordering::Release);
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
    if descriptor::find(fd).is_none() {
        // SAFETY: as the caller promises.
        return unsafe { next::epoll_ctl(set, operation, fd, event) };
    }
    // SAFETY: null or an event, as the caller promises.
    let wanted = unsafe { event.as_ref() }.copied();
    let mut own = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: own_data(),
    };
    // SAFETY: the event is ours.
    let done = unsafe { next::epoll_ctl(set, operation, fd, &raw mut own) };
    if done != 0 {
        return done;
    }
    let mut sets = sets();
    let members = sets.entry(set).or_default();
    match (operation, wanted) {
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, Some(event)) => {
            let interest = Interest {
                events: event.events,
                data: event.u64,
            };
            members.insert(fd, interest);
        }
        _ => {
            members.remove(&fd);
        }
    }
    sets.retain(|_, set| !set.is_empty());
    COUNT.store(sets.len(), Ordering::Release);
    0
}

/// The rest of a set, which the kernel knows.
struct Rest<'a> {
    set: c_int,
    events: &'a mut Vec<libc::epoll_event>,
    most: usize,
    mask: *const libc::sigset_t,
}

impl Others for Rest<'_> {
    /// The latch is in the set already, as is each descriptor of this library. What the kernel has no room to tell now, it
    /// tells at the next wait.
    fn wait(&mut self, _latch: Option<c_int>, time: Duration, found: c_int) -> c_int {
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
    let members = sets().get(&set).cloned()?;
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
    if let Some(interest) = sets().get_mut(&set).and_then(|set| set.get_mut(&fd)) {
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
