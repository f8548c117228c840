//! A law that tunes itself to a queue delay: RFC 8033, "Proportional Integral Controller Enhanced (PIE)", on the delay of a
//! core instead of a link.
//!
//! The RFC's gains are per second, for a target and an update interval of 15 ms each (section 4.2). Rings of a core
//! are drained in microseconds to milliseconds, so the gains are taken *relative to the target*: the law is the RFC's with
//! another unit of time, and serves round trips of up to about ten targets as the RFC's serves up to about 150 ms.

use crate::{ALWAYS, LawError, NEVER};

/// A probability within the law: finer than 2^-32, for the steps at small probabilities are.
const ONE: i64 = 1 << 48;
/// Delays relative to the target have this many bits after the point.
const DELAY_SHIFT: u32 = 16;
/// A delay of more targets counts as this many: what the RFC bounds by the size of its queue.
const TARGETS_MAX: u64 = 64;

/// alpha (0.125 / s) and beta (1.25 / s) times the RFC's target of 15 ms.
const ALPHA: i64 = ONE / 1_000_000 * 1875;
const BETA: i64 = ONE / 1_000_000 * 18_750;
/// Section 4.2, auto-tuning: below a probability of 1 / .0 the steps are divided by .1.
const SCALES: [(i64, i64); 6] = [
    (1_000_000, 2048),
    (100_000, 512),
    (10_000, 128),
    (1_000, 32),
    (100, 8),
    (10, 2),
];
/// Section 5.5: from a probability of 0.1 a step is at most 0.02.
const STEP_MAX: i64 = ONE / 50;
/// Without delay the probability becomes 1 - 1/64 of itself with each update (0.98 in the RFC).
const DECAY: i64 = 64;
/// Section 4.1: no signals with no more packets than this,
const FRAMES_MIN: u64 = 2;
/// nor below this probability, if the delay was less than half the target.
const SPARED_BELOW: i64 = ONE / 5;
/// An update that comes later counts as one after this many intervals.
const INTERVALS_MAX: u64 = 4;

/// The delay to aim at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pie {
    /// The queue delay to aim at, nanoseconds.
    pub target_ns: u64,
    /// How often the probability is adjusted, nanoseconds. Looks in between count by the mean of what they saw.
    pub update_ns: u64,
    /// No signals for so long after a time without congestion, nanoseconds (RFC 8033, section 4.4).
    pub burst_ns: u64,
}

impl Pie {
    /// The least and the most that can be aimed at.
    pub const TARGET_NS: (u64, u64) = (10_000, 1_000_000_000);
    /// The longest burst.
    pub const BURST_NS_MAX: u64 = 10_000_000_000;

    /// The law for a target, with an update interval and a burst in the RFC's proportion to it (1 and 10).
    pub const fn with_target(target_ns: u64) -> Self {
        Self {
            target_ns,
            update_ns: target_ns,
            burst_ns: target_ns.saturating_mul(10),
        }
    }

    /// # Errors
    /// A time outside of what can be followed.
    pub fn validate(&self) -> Result<(), LawError> {
        let (min, max) = Self::TARGET_NS;
        within("target", self.target_ns, min, max)?;
        within("update interval", self.update_ns, min, max)?;
        within("burst", self.burst_ns, 0, Self::BURST_NS_MAX)
    }
}

impl Default for Pie {
    /// A target of one millisecond.
    fn default() -> Self {
        Self::with_target(1_000_000)
    }
}

fn within(what: &'static str, ns: u64, min: u64, max: u64) -> Result<(), LawError> {
    if (min..=max).contains(&ns) {
        Ok(())
    } else {
        Err(LawError::Time { what, ns, min, max })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PieState {
    law: Pie,
    probability: i64,
    /// Delay at the last adjustment, in targets.
    delay: i64,
    burst_left_ns: u64,
    adjusted_ns: Option<u64>,
    looked_ns: u64,
    /// Delay x time since the last adjustment, in targets x ns.
    seen: u128,
}

impl PieState {
    pub(crate) fn new(law: Pie) -> Result<Self, LawError> {
        law.validate()?;
        Ok(Self {
            law,
            probability: 0,
            delay: 0,
            burst_left_ns: law.burst_ns,
            adjusted_ns: None,
            looked_ns: 0,
            seen: 0,
        })
    }

    /// Returns the probability with which packets are to be marked now.
    pub(crate) fn update(&mut self, now_ns: u64, delay_ns: u64, frames: u64) -> u32 {
        let now_ns = now_ns.max(self.looked_ns);
        let Some(adjusted_ns) = self.adjusted_ns else {
            self.adjusted_ns = Some(now_ns);
            self.looked_ns = now_ns;
            return NEVER;
        };
        self.seen += u128::from(self.in_targets(delay_ns)) * u128::from(now_ns - self.looked_ns);
        self.looked_ns = now_ns;
        let elapsed_ns = now_ns - adjusted_ns;
        if elapsed_ns >= self.law.update_ns {
            let mean = i64::try_from(self.seen / u128::from(elapsed_ns)).unwrap_or(i64::MAX);
            self.adjust(mean, elapsed_ns);
            self.adjusted_ns = Some(now_ns);
            self.seen = 0;
        }
        if frames <= FRAMES_MIN {
            NEVER
        } else {
            self.effective()
        }
    }

    fn in_targets(&self, delay_ns: u64) -> u64 {
        let targets = (u128::from(delay_ns) << DELAY_SHIFT) / u128::from(self.law.target_ns);
        u64::try_from(targets)
            .unwrap_or(u64::MAX)
            .min(TARGETS_MAX << DELAY_SHIFT)
    }

    /// Section 4.2: drop probability calculation.
    fn adjust(&mut self, delay: i64, elapsed_ns: u64) {
        let intervals_ns = elapsed_ns.min(INTERVALS_MAX * self.law.update_ns);
        let (was, target) = (self.delay, 1_i64 << DELAY_SHIFT);
        let integral = i128::from(ALPHA) * i128::from(delay - target) * i128::from(intervals_ns)
            / i128::from(self.law.update_ns);
        let proportional = i128::from(BETA) * i128::from(delay - was);
        self.probability = (self.probability + self.step(integral + proportional)).clamp(0, ONE);
        if delay == 0 && was == 0 {
            self.probability -=
                self.probability.div_euclid(DECAY) + i64::from(self.probability > 0);
        }
        self.delay = delay;
        self.burst_left_ns = self.burst_left_ns.saturating_sub(elapsed_ns);
        if self.probability == 0 && delay < target / 2 && was < target / 2 {
            self.burst_left_ns = self.law.burst_ns;
        }
    }

    /// A step of the probability, scaled to where it is.
    fn step(&self, raw: i128) -> i64 {
        let divisor = SCALES
            .iter()
            .find(|(below, _)| self.probability < ONE / below)
            .map_or(1, |&(_, divisor)| divisor);
        let step = (raw >> DELAY_SHIFT) / i128::from(divisor);
        let step = i64::try_from(step).unwrap_or(if step < 0 { -ONE } else { ONE });
        if self.probability >= ONE / 10 {
            step.min(STEP_MAX)
        } else {
            step
        }
    }

    /// Section 4.1: random dropping, what comes before the coin.
    fn effective(&self) -> u32 {
        let spared = self.delay < (1 << DELAY_SHIFT) / 2 && self.probability < SPARED_BELOW;
        if self.burst_left_ns > 0 || spared {
            return NEVER;
        }
        u32::try_from(self.probability >> 16).unwrap_or(ALWAYS)
    }
}
