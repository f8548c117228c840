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
/// CPU time in seconds for a call about frames: so many signals end it.
pub const PATIENCE_S: u32 = 2;
/// The same for other calls: the state of a network function can be large.
pub const LONG_PATIENCE_S: u32 = 30;

/// Starts the timer of this process.
///
/// # Errors
/// The kernel's.
pub fn start() -> io::Result<()> {
    // SAFETY: all zeros are a valid action; the handler below does nothing, so it is safe in every context.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // Other system calls go on; KVM_RUN does not.
    action.sa_flags = libc::SA_RESTART;
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

/// The signals that have come in the call at hand.
#[derive(Debug, Default)]
pub struct Watch {
    found: u32,
    patience_s: u32,
}

impl Watch {
    /// A call begins, which may take so much CPU time.
    pub fn begin(&mut self, patience_s: u32) {
        self.found = 0;
        self.patience_s = patience_s;
    }

    /// A signal has come. Returns the time that the call was given if it has taken all of it.
    pub fn is_over(&mut self) -> Option<u32> {
        self.found += 1;
        (self.found >= self.patience_s).then_some(self.patience_s)
    }
}

#[cfg(test)]
mod tests {
    use super::{LONG_PATIENCE_S, PATIENCE_S, Watch};

    #[test]
    fn only_a_call_that_takes_all_its_time_is_over() {
        let mut watch = Watch::default();
        watch.begin(PATIENCE_S);
        assert_eq!(watch.is_over(), None);
        watch.begin(PATIENCE_S);
        assert_eq!(watch.is_over(), None, "another call");
        assert_eq!(watch.is_over(), Some(PATIENCE_S));
        watch.begin(LONG_PATIENCE_S);
        assert_eq!(watch.is_over(), None);
    }
}
