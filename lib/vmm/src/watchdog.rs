//! A guest that never stands still is stopped.
//!
//! A timer counts the CPU time of this process, and sends a signal whenever it has used one second. The signal ends
//! [`KVM_RUN`](https://docs.kernel.org/virt/kvm/api.html#kvm-run), which then finds whether the guest is still in the
//! call in which the last signal has found it. A guest that sleeps, is paused, or waits for a CPU uses no time, and a
//! guest without work costs nothing.

use std::io;
use std::ptr::null_mut;

/// CPU time in seconds between two signals.
const INTERVAL_S: i64 = 1;
/// A guest that two signals in a row find in one call is stopped, after this CPU time in seconds at most.
pub const PATIENCE_S: u64 = 2 * INTERVAL_S as u64;

/// Starts the timer of this process.
///
/// # Errors
/// The kernel's.
pub fn start() -> io::Result<()> {
    // SAFETY: all zeros are a valid action; the handler below does nothing, so it is safe in every context.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = interrupt as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the action is initialized, and no old one is asked for.
    if unsafe { libc::sigaction(libc::SIGPROF, &raw const action, null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let interval = libc::timeval {
        tv_sec: INTERVAL_S,
        tv_usec: 0,
    };
    let timer = libc::itimerval {
        it_interval: interval,
        it_value: interval,
    };
    // SAFETY: the timer's value is initialized, and no old one is asked for.
    if unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Does nothing: that the signal comes ends the system call.
extern "C" fn interrupt(_signal: libc::c_int) {}

/// The calls that signals have found under way.
#[derive(Debug, Default)]
pub struct Watch {
    calls: u64,
    /// The call in which the last signal has come.
    found: Option<u64>,
}

impl Watch {
    /// A call begins.
    pub fn begin(&mut self) {
        self.calls += 1;
    }

    /// A signal has come. Returns true if an earlier signal has come in the same call.
    pub fn is_stuck(&mut self) -> bool {
        self.found.replace(self.calls) == Some(self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::Watch;

    #[test]
    fn only_a_call_that_two_signals_find_is_stuck() {
        let mut watch = Watch::default();
        watch.begin();
        assert!(!watch.is_stuck());
        watch.begin();
        assert!(!watch.is_stuck(), "another call");
        assert!(watch.is_stuck());
    }
}
