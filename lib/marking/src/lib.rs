//! Congestion signals by CPU cost: how likely a packet is marked (ECN) or dropped when it enters the ring of a network
//! function, so that TCP senders share a core as they share a link.
//!
//! RED_4: p of flow i = p of the core x (cost of i / cost of the cheapest)^2, where a cost is the mean CPU time that a
//! packet takes. A TCP sender's rate goes with 1 / sqrt(p) (Mathis et al., "The macroscopic behavior of the TCP congestion
//! avoidance algorithm", CCR 1997), so its packets per second go with 1 / cost, and its CPU time is that of the others.
//! RED_4 has one queue for all; RED_4 MQ marks on entry to a queue per function, by the *sum* of all that share the core.
//! Here they differ in the [`Ring`]s that a [`Signal`] is shown: one, with the mean cost of what waits in it, or all.
//!
//! p of the core is found by one of two [`Law`]s: [`Red`], by hand-set thresholds, or [`Pie`], which tunes itself to a delay.
//!
//! Two hosts use this crate: the controller of the data plane, and the simulator. The crate knows no clock, no
//! randomness and no packet: times and random numbers are handed in, so that the same inputs give the same decisions.
//! Integers only; a probability is a `u32`, [`NEVER`] is 0, [`ALWAYS`] is `u32::MAX`, and between them p means (p +
//! 1) / 2^32.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod pie;
mod red;

pub use pie::Pie;
pub use red::Red;

use pie::PieState;
use red::RedState;

/// The probability 0.
pub const NEVER: u32 = 0;
/// The probability 1.
pub const ALWAYS: u32 = u32::MAX;

/// A ratio of costs has this many bits after the point.
const RATIO_SHIFT: u32 = 16;
/// From here on the square of a ratio turns the smallest probability into 1.
const RATIO_MAX: u64 = 1 << (RATIO_SHIFT + 16);

/// The frames that wait in a ring of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Packets that wait.
    pub occupancy: u32,
    /// Mean CPU time of a packet in nanoseconds, 0 if it is not known yet.
    pub cost_ns: u64,
}

/// How p of a core is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// By thresholds on the sum of the occupancies.
    Red(Red),
    /// By a delay to aim at.
    Pie(Pie),
}

impl Default for Law {
    fn default() -> Self {
        Self::Pie(Pie::default())
    }
}

/// Why a law cannot be used. The texts name what to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LawError {
    /// The lower threshold is not below the upper one.
    #[error("thresholds reversed: min {min} must be less than max {max}")]
    ThresholdsReversed {
        /// Lower threshold, packets.
        min: u32,
        /// Upper threshold, packets.
        max: u32,
    },
    /// A threshold that no rings can reach, or that is passed by an empty ring.
    #[error("thresholds {min} and {max}: must be within 1..={}", Red::FRAMES_MAX)]
    ThresholdsAbsurd {
        /// Lower threshold, packets.
        min: u32,
        /// Upper threshold, packets.
        max: u32,
    },
    /// No marks at the upper threshold: the law would jump, or never mark.
    #[error("the probability at the upper threshold must be more than 0")]
    NoProbability,
    /// A time outside of what the law can follow.
    #[error("{what} of {ns} ns: must be within {min} and {max} ns")]
    Time {
        /// Which time.
        what: &'static str,
        /// The time given, nanoseconds.
        ns: u64,
        /// The least allowed, nanoseconds.
        min: u64,
        /// The most allowed, nanoseconds.
        max: u64,
    },
}

/// The congestion of one core.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    state: State,
    probability: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Red(RedState),
    Pie(PieState),
}

impl Signal {
    /// A core without congestion.
    ///
    /// # Errors
    /// The law makes no sense: thresholds reversed, times absurd.
    pub fn new(law: Law) -> Result<Self, LawError> {
        let state = match law {
            Law::Red(law) => State::Red(RedState::new(law)?),
            Law::Pie(law) => State::Pie(PieState::new(law)?),
        };
        Ok(Self {
            state,
            probability: NEVER,
        })
    }

    /// Looks at the rings that share the core, at `now_ns` of any clock that does not go back; one that does is taken to stand.
    /// To be called often: at least once per [`Pie::update_ns`]. Returns p of the core.
    pub fn update(&mut self, now_ns: u64, rings: &[Ring]) -> u32 {
        self.probability = match &mut self.state {
            State::Red(red) => red.update(now_ns, frames(rings)),
            State::Pie(pie) => pie.update(now_ns, delay_ns(rings), frames(rings)),
        };
        self.probability
    }

    /// p of the core as of the last update.
    pub fn probability(&self) -> u32 {
        self.probability
    }
}

/// Packets that wait for the core.
pub fn frames(rings: &[Ring]) -> u64 {
    rings.iter().map(|ring| u64::from(ring.occupancy)).sum()
}

/// The queue delay of the core: the time that it needs for what waits in its rings, nanoseconds.
pub fn delay_ns(rings: &[Ring]) -> u64 {
    rings.iter().fold(0, |sum: u64, ring| {
        sum.saturating_add(u64::from(ring.occupancy).saturating_mul(ring.cost_ns))
    })
}

/// The cost of the cheapest ring whose cost is known; 0 if none is.
pub fn cheapest_ns(rings: &[Ring]) -> u64 {
    rings
        .iter()
        .map(|ring| ring.cost_ns)
        .filter(|&cost| cost > 0)
        .min()
        .unwrap_or(0)
}

/// The probability for a flow (RED_4) or a ring (RED_4 MQ) whose packets cost `cost_ns`: p of the core x (cost / cheapest)^2,
/// at most 1. Unknown costs (0), and what is cheaper than the cheapest, count as the cheapest.
pub fn probability(core: u32, cost_ns: u64, cheapest_ns: u64) -> u32 {
    if core == NEVER || cheapest_ns == 0 || cost_ns <= cheapest_ns {
        return core;
    }
    let ratio = (u128::from(cost_ns) << RATIO_SHIFT) / u128::from(cheapest_ns);
    let ratio = ratio.min(u128::from(RATIO_MAX));
    let scaled = (u128::from(core) * ratio * ratio) >> (2 * RATIO_SHIFT);
    u32::try_from(scaled).unwrap_or(ALWAYS)
}

/// Is the packet marked? `random` is uniform over all `u32`.
#[inline]
pub fn decide(probability: u32, random: u32) -> bool {
    probability != NEVER && random <= probability
}

#[cfg(test)]
mod tests;
