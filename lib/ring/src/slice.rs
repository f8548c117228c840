//! The time slice of an NF's thread.
//!
//! A thread that wakes runs at once if its slice is shorter than the slice of the running thread, and if it has not
//! had more than its part of the core. No thread gets more of the core by a short slice (Linux 6.12 and later,
//! EEVDF). So an NF that wakes rarely and finds few frames then has a short slice, and the [`PLATFORM`]'s otherwise.
//! Measured: `nfluid-bench busy-core`.
//!
//! The platform gives each instance [`PLATFORM`], unless its operator has chosen another slice. The value
//! distinguishes the platform's slices from an operator's: only a slice that is a constant of this module is changed
//! here.

use rustix::process::Pid;
use std::io;

/// The slice in nanoseconds that the platform gives an instance without a slice of its own. Slices of operators are
/// whole microseconds.
pub const PLATFORM: u64 = 3_000_001;
/// The slice of an NF with little to do: the shortest slice that the kernel has, and a nanosecond.
const LIGHT: u64 = 100_001;

/// After so many activations with few frames the clock is looked at.
const ACTIVATIONS: u32 = 16;
/// Activations are rare if so many took as long as this, and not rare if they took less than half of it.
const RARE_NS: u64 = 8_000_000;

/// Gives a thread a slice in nanoseconds; without a thread, the calling one.
///
/// # Errors
/// As `sched_setattr` reports them. A kernel before 6.12 takes a slice and forgets it.
pub fn give(thread: Option<Pid>, slice: u64) -> io::Result<()> {
    let mut attributes = read(thread)?;
    attributes.runtime = slice;
    // SAFETY: the kernel only reads `attributes`, whose length they say.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            Pid::as_raw(thread),
            &raw const attributes,
            0u32,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the slice of a thread in nanoseconds; without a thread, of the calling thread. Returns 0 where the kernel
/// does not report slices.
///
/// # Errors
/// As `sched_getattr` reports them.
pub fn of(thread: Option<Pid>) -> io::Result<u64> {
    Ok(read(thread)?.runtime)
}

/// The argument of sched_setattr(2) (linux/sched/types.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The slice of an ordinary thread.
    runtime: u64,
    deadline: u64,
    period: u64,
}

fn read(thread: Option<Pid>) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes at most as many bytes to `attributes` as they are long.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            Pid::as_raw(thread),
            &raw mut attributes,
            size_of::<Attributes>() as u32,
            0u32,
        )
    };
    match done {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Declares that the calling thread has little to do for now, but needs to run soon after it wakes; or that this
/// state is over. An operator's slice stays, and so does the kernel's slice on kernels without slices per thread.
pub fn set_light(light: bool) {
    let slice = of(None).ok().and_then(|now| instead_of(now, light));
    if let Some(slice) = slice {
        let _as_before = give(None, slice);
    }
}

/// The slice of a thread, and whether the thread has little to do.
#[derive(Debug)]
pub(crate) struct Slices {
    /// Activations with few frames since the clock was looked at, and when that was.
    few: u32,
    since_ns: u64,
    light: bool,
}

impl Default for Slices {
    fn default() -> Self {
        Slices {
            few: 0,
            since_ns: 0,
            // Before its first frames it may have said so.
            light: true,
        }
    }
}

impl Slices {
    /// Records a turn with few frames.
    pub fn few(&mut self, now_ns: impl FnOnce() -> u64) {
        self.few += 1;
        if self.few >= ACTIVATIONS {
            self.few = 0;
            let now_ns = now_ns();
            if let Some(light) = is_light(now_ns.saturating_sub(self.since_ns)) {
                self.be(light);
            }
            self.since_ns = now_ns;
        }
    }

    /// Records a turn with many frames.
    pub fn many(&mut self) {
        self.few = 0;
        self.be(false);
    }

    /// Sets the slice again now and then while the thread is light: an operator may have taken a slice back.
    fn be(&mut self, light: bool) {
        if !light && !self.light {
            return;
        }
        set_light(light);
        self.light = light;
    }
}

/// Returns true if a thread is light whose last [`ACTIVATIONS`] took this time. `None`: the thread keeps its state.
fn is_light(took_ns: u64) -> Option<bool> {
    match took_ns {
        RARE_NS.. => Some(true),
        _ if took_ns < RARE_NS / 2 => Some(false),
        _ => None,
    }
}

/// The slice of a thread that has `now`, if it is to be another one.
fn instead_of(now: u64, light: bool) -> Option<u64> {
    match (now, light) {
        (PLATFORM, true) => Some(LIGHT),
        (LIGHT, false) => Some(PLATFORM),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `act` on a thread of its own whose slice is `slice`, and returns the slice that the thread has in the
    /// end. Returns `None` before Linux 6.12.
    fn on_a_thread_with(slice: u64, act: impl FnOnce(&mut Slices) + Send) -> Option<u64> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                give(None, slice).unwrap();
                (of(None).unwrap() == slice).then(|| {
                    act(&mut Slices::default());
                    of(None).unwrap()
                })
            });
            thread.join().unwrap()
        })
    }

    fn activations(slices: &mut Slices, every_ns: u64) {
        let start = slices.since_ns;
        for n in 1..=u64::from(ACTIVATIONS) {
            slices.few(|| start + n * every_ns);
        }
    }

    // promise: 4.13
    #[test]
    fn a_thread_that_wakes_rarely_has_a_short_slice_until_there_is_much_to_do() {
        let Some(slice) = on_a_thread_with(PLATFORM, |slices| activations(slices, 2_000_000))
        else {
            return;
        };
        assert_eq!(slice, LIGHT);
        let busy = |slices: &mut Slices| {
            activations(slices, 2_000_000);
            slices.many();
        };
        assert_eq!(on_a_thread_with(PLATFORM, busy), Some(PLATFORM));
        let begins = |slices: &mut Slices| {
            set_light(true);
            assert_eq!(of(None).unwrap(), LIGHT);
            slices.many();
        };
        assert_eq!(on_a_thread_with(PLATFORM, begins), Some(PLATFORM));
        let often = |slices: &mut Slices| {
            activations(slices, 2_000_000);
            activations(slices, 10_000);
        };
        assert_eq!(on_a_thread_with(PLATFORM, often), Some(PLATFORM));
    }

    // promise: 4.13
    #[test]
    fn an_operators_slice_stays() {
        const CHOSEN: u64 = 5_000_000;
        let light = |slices: &mut Slices| {
            set_light(true);
            activations(slices, 2_000_000);
            slices.many();
        };
        if let Some(slice) = on_a_thread_with(CHOSEN, light) {
            assert_eq!(slice, CHOSEN);
        }
    }

    #[test]
    fn a_thread_between_both_thresholds_keeps_its_slice() {
        assert_eq!(is_light(RARE_NS), Some(true));
        assert_eq!(is_light(RARE_NS - 1), None);
        assert_eq!(is_light(RARE_NS / 2 - 1), Some(false));
    }
}
