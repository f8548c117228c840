//! Signals of congestion on entry: the data plane's law (`lib/marking`), asked as its controller asks.

use nfluid_marking::{Law, LawError, Ring, Signal, decide, probability};

/// Sampling interval of the occupancies, that of the data plane's controller.
pub const SAMPLE_NS: u64 = 1_000_000;

/// How a core signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    /// How the probability of the core is found.
    pub law: Law,
    /// RED_4: times the square of the cost over the cheapest. Otherwise all flows see the same.
    pub by_cost: bool,
}

/// The signals of one core.
#[derive(Clone, Debug)]
pub struct Congestion {
    signal: Signal,
    by_cost: bool,
    cheapest_ns: u64,
    /// By class.
    probabilities: Vec<u32>,
}

impl Congestion {
    /// No congestion among so many classes.
    ///
    /// # Errors
    /// The law makes no sense.
    pub fn new(marking: Marking, costs_ns: &[u64]) -> Result<Self, LawError> {
        Ok(Congestion {
            signal: Signal::new(marking.law)?,
            by_cost: marking.by_cost,
            cheapest_ns: costs_ns.iter().copied().min().unwrap_or(0),
            probabilities: vec![0; costs_ns.len()],
        })
    }

    /// Takes the waiting packets of each class, and updates the probabilities.
    pub fn sample(&mut self, now_ns: u64, waiting: &[Ring]) {
        let core = self.signal.update(now_ns, waiting);
        for (own, ring) in self.probabilities.iter_mut().zip(waiting) {
            *own = if self.by_cost {
                probability(core, ring.cost_ns, self.cheapest_ns)
            } else {
                core
            };
        }
    }

    /// Does a packet of `class` that enters now get a signal?
    pub fn signals(&self, class: usize, random: u32) -> bool {
        decide(self.probabilities[class], random)
    }
}
