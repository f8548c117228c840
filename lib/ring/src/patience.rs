//! The turns that a thread waits before it sleeps: while they have paid lately.

const SPIN_MAX: u32 = 4096;
const SPIN_PROBE: u32 = 128;
const YIELDS_MAX: u32 = 16;
const YIELDS_PROBE: u32 = 2;
/// Sleeps after which yielding is tried again although it has not paid.
const YIELDS_TRIED_EVERY: u64 = 16;
/// The same for spinning.
const SPIN_TRIED_EVERY: u64 = 64;

/// How long the next wait for an event is, before the thread sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    spin: u32,
    /// Turns of the next spin that is tried although it has not paid: more each time, since the awaited event may
    /// take as long as waking its sender, on another core.
    probe: u32,
    /// Turns given to others before the next sleep.
    yields: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            spin: SPIN_PROBE,
            probe: SPIN_PROBE,
            yields: YIELDS_PROBE,
        }
    }
}

impl Patience {
    /// Turns of the next spin.
    pub fn spin_turns(&self) -> u32 {
        self.spin
    }

    /// Does the next wait take any turns?
    #[inline]
    pub(crate) fn takes_turns(&self) -> bool {
        self.yields > 0 || self.spin > 0
    }

    /// Lets other threads on this core run while doing so has paid lately: for the frames that those threads send
    /// meanwhile, no doorbell needs to be rung. A ring costs what ten such turns cost, in a virtual machine
    /// (`nfluid-bench sleeping-nfs`: of 40 NFs that sleep at once, half of the CPU time is spent on ringing). For a thread that
    /// is alone on its core, the turn is a system call. `sleeps`: how often the thread has slept.
    pub fn give_way<T>(&mut self, sleeps: u64, due: impl Fn() -> Option<T>) -> Option<T> {
        for _ in 0..self.yields {
            rustix::thread::sched_yield();
            if let Some(found) = due() {
                self.yields = (self.yields * 2).min(YIELDS_MAX);
                return Some(found);
            }
        }
        self.yields /= 2;
        if sleeps.is_multiple_of(YIELDS_TRIED_EVERY) {
            self.yields = self.yields.max(YIELDS_PROBE);
        }
        None
    }

    /// Spins while that has paid lately: it halves after each miss, doubles after each hit.
    pub fn spin<T>(&mut self, sleeps: u64, due: impl Fn() -> Option<T>) -> Option<T> {
        for _ in 0..self.spin {
            if let Some(found) = due() {
                self.spin = (self.spin * 2).min(SPIN_MAX);
                return Some(found);
            }
            std::hint::spin_loop();
        }
        self.spin /= 2;
        if sleeps.is_multiple_of(SPIN_TRIED_EVERY) {
            self.probe = if self.probe < SPIN_MAX {
                self.probe * 2
            } else {
                SPIN_PROBE
            };
            self.spin = self.spin.max(self.probe);
        }
        None
    }
}
