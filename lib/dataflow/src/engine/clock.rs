//! The engine's clock: nanoseconds since the engine's start, for some ten nanoseconds.

use std::time::Instant;

/// How long the time stamp counter is compared with the kernel's clock.
#[cfg(target_arch = "x86_64")]
const CALIBRATION: std::time::Duration = std::time::Duration::from_millis(5);

/// A clock; copies agree with each other.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    begun: Instant,
    counter: Option<Counter>,
}

/// The time stamp counter of x86, where it runs at one rate on all cores.
#[derive(Debug, Clone, Copy)]
struct Counter {
    begun: u64,
    /// Nanoseconds per tick, in 2^-32.
    scale: u64,
}

impl Clock {
    /// Starts a clock. Takes five milliseconds where the clock has to be calibrated.
    pub fn start() -> Self {
        let begun = Instant::now();
        Self {
            begun,
            counter: Counter::calibrated(begun),
        }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn now(&self) -> u64 {
        match self.counter {
            Some(counter) => counter.now(),
            None => self.begun.elapsed().as_nanos() as u64,
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Counter {
    fn calibrated(begun: Instant) -> Option<Self> {
        if !is_invariant() {
            return None;
        }
        let (first, from) = pair(begun);
        std::thread::sleep(CALIBRATION);
        let (last, to) = pair(begun);
        let passed = u128::from(last.checked_sub(first)?);
        let scale = (u128::from(to.checked_sub(from)?) << 32).checked_div(passed)?;
        Some(Self {
            begun: first,
            scale: u64::try_from(scale).ok()?,
        })
    }

    #[inline]
    fn now(self) -> u64 {
        let passed = u128::from(ticks().saturating_sub(self.begun));
        ((passed * u128::from(self.scale)) >> 32) as u64
    }
}

/// The counter and the nanoseconds since `begun` at one moment: of some looks the quickest, which nothing interrupted.
#[cfg(target_arch = "x86_64")]
fn pair(begun: Instant) -> (u64, u64) {
    const LOOKS: usize = 16;
    let looks = (0..LOOKS).map(|_| {
        let before = ticks();
        let nanoseconds = begun.elapsed().as_nanos() as u64;
        (ticks().saturating_sub(before), before, nanoseconds)
    });
    let (_, counter, nanoseconds) = looks.min().unwrap_or_default();
    (counter, nanoseconds)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86_64 has the instruction, and it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns true if the counter runs at one rate in all power states, and thus on all cores (CPUID 80000007h, EDX bit 8).
#[cfg(target_arch = "x86_64")]
fn is_invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    const HIGHEST: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    __cpuid(HIGHEST).eax >= POWER && __cpuid(POWER).edx & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
impl Counter {
    fn calibrated(_begun: Instant) -> Option<Self> {
        None
    }

    fn now(self) -> u64 {
        self.begun
    }
}
