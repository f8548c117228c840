//! Random early detection: Floyd and Jacobson, "Random Early Detection gateways for congestion avoidance", ToN 1993, with
//! the "gentle" slope of RFC 7567's recommended practice (Floyd, "Recommendation on using the gentle variant of RED", 2000).

use crate::{ALWAYS, LawError, NEVER};

/// An average has this many bits after the point.
const AVERAGE_SHIFT: u32 = 16;

/// Thresholds on the average of the sum of the occupancies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Red {
    /// No signals up to here, packets.
    pub min_frames: u32,
    /// Here the probability is `probability_max`, packets. From here to twice as many it rises to 1.
    pub max_frames: u32,
    /// The probability at `max_frames`; 2^32 would be 1.
    pub probability_max: u32,
    /// Time constant of the average, nanoseconds; 0: the occupancy itself.
    pub average_ns: u64,
}

impl Red {
    /// More packets than the rings of a core hold.
    pub const FRAMES_MAX: u32 = 1 << 24;
    /// The longest time constant.
    pub const AVERAGE_NS_MAX: u64 = 60_000_000_000;

    /// # Errors
    /// Thresholds reversed or absurd, no probability, an average over more than a minute.
    pub fn validate(&self) -> Result<(), LawError> {
        let (min, max) = (self.min_frames, self.max_frames);
        if min == 0 || max == 0 || min > Self::FRAMES_MAX || max > Self::FRAMES_MAX {
            return Err(LawError::ThresholdsAbsurd { min, max });
        }
        if min >= max {
            return Err(LawError::ThresholdsReversed { min, max });
        }
        if self.probability_max == NEVER {
            return Err(LawError::NoProbability);
        }
        if self.average_ns > Self::AVERAGE_NS_MAX {
            return Err(LawError::Time {
                what: "average",
                ns: self.average_ns,
                min: 0,
                max: Self::AVERAGE_NS_MAX,
            });
        }
        Ok(())
    }

    /// The probability at an average of `average` / 2^16 packets.
    fn at(&self, average: u64) -> u32 {
        let min = u64::from(self.min_frames) << AVERAGE_SHIFT;
        let max = u64::from(self.max_frames) << AVERAGE_SHIFT;
        let top = u64::from(self.probability_max);
        let value = if average <= min {
            0
        } else if average < max {
            slope(top, average - min, max - min)
        } else {
            top + slope(u64::from(ALWAYS) - top, (average - max).min(max), max)
        };
        u32::try_from(value).unwrap_or(ALWAYS)
    }
}

/// `height` x `part` / `whole`.
fn slope(height: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(height) * u128::from(part) / u128::from(whole);
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RedState {
    law: Red,
    average: u64,
    last_ns: Option<u64>,
}

impl RedState {
    pub(crate) fn new(law: Red) -> Result<Self, LawError> {
        law.validate()?;
        Ok(Self {
            law,
            average: 0,
            last_ns: None,
        })
    }

    pub(crate) fn update(&mut self, now_ns: u64, frames: u64) -> u32 {
        let now_ns = self.last_ns.map_or(now_ns, |last| now_ns.max(last));
        let elapsed = self.last_ns.map_or(0, |last| now_ns - last);
        self.last_ns = Some(now_ns);
        self.average = moved(
            self.average,
            frames.min(u64::from(u32::MAX)) << AVERAGE_SHIFT,
            elapsed,
            self.law.average_ns,
        );
        self.law.at(self.average)
    }
}

/// Returns an exponential average for samples at any distance in time: a step of elapsed / (elapsed + time constant)
/// toward the sample. The average needs no exponential function, and no distance makes it overshoot.
fn moved(average: u64, sample: u64, elapsed_ns: u64, constant_ns: u64) -> u64 {
    if constant_ns == 0 {
        return sample;
    }
    let whole = u128::from(elapsed_ns) + u128::from(constant_ns);
    let step = |distance: u64| {
        u64::try_from(u128::from(distance) * u128::from(elapsed_ns) / whole).unwrap_or(0)
    };
    if sample >= average {
        average + step(sample - average)
    } else {
        average - step(average - sample)
    }
}
