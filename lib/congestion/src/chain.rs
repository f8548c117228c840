//! A direction of a chain of instances: the refusal of frames at its entry, and the later ring that is its
//! bottleneck.

use crate::controller::PortSample;

/// Frames are refused as soon as a later ring is full to three quarters,
const HIGH: (u64, u64) = (3, 4);
/// and the frames in the ring keep its instance busy for so long: shorter queues are gone before the next sample.
const HIGH_NS: u64 = 3_000_000;
/// The entry takes frames again when no later ring is more than half full, or keeps its instance busy for longer than
/// this.
const LOW: (u64, u64) = (1, 2);
const LOW_NS: u64 = 1_500_000;
/// An instance holds up its chain if frames wait for it for longer than this, on average.
const BOTTLENECK_NS: f64 = 200_000.0;
/// Time constant of that average.
const AVERAGE_NS: f64 = 1e9;

/// A direction of a chain. Its rings are those of the ports by which frames enter the instances, in order.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    refuses: bool,
    delays_ns: Vec<f64>,
    at_ns: Option<u64>,
}

/// Returns the time for which the frames in the ring keep its instance busy.
fn work_ns(sample: &PortSample) -> u64 {
    u64::from(sample.waiting).saturating_mul(sample.cost_ns)
}

/// Returns true if the ring is fuller than a fraction of it.
fn is_above(sample: &PortSample, (part, whole): (u64, u64)) -> bool {
    u64::from(sample.waiting) * whole > u64::from(sample.slots) * part
}

impl Direction {
    /// Takes the samples of the rings, the entry first, at `now_ns`; an unused ring is absent. Returns true if the
    /// entry is to refuse frames.
    pub fn update(&mut self, now_ns: u64, rings: &[Option<PortSample>]) -> bool {
        self.average(now_ns, rings);
        let later = rings.iter().skip(1).flatten();
        let is_over = |sample: &PortSample| is_above(sample, HIGH) && work_ns(sample) >= HIGH_NS;
        let is_under = |sample: &PortSample| !is_above(sample, LOW) || work_ns(sample) <= LOW_NS;
        self.refuses = if self.refuses {
            !later.clone().all(is_under)
        } else {
            later.clone().any(is_over)
        };
        self.refuses
    }

    fn average(&mut self, now_ns: u64, rings: &[Option<PortSample>]) {
        let before = self.at_ns.replace(now_ns).unwrap_or(now_ns);
        let elapsed = now_ns.saturating_sub(before) as f64;
        let part = elapsed / (elapsed + AVERAGE_NS);
        self.delays_ns.resize(rings.len(), 0.0);
        for (delay, sample) in self.delays_ns.iter_mut().zip(rings) {
            let now = sample.as_ref().map_or(0.0, |sample| work_ns(sample) as f64);
            *delay += (now - *delay) * part;
        }
    }

    /// Returns true if the entry refuses frames.
    pub fn refuses(&self) -> bool {
        self.refuses
    }

    /// Returns the bottleneck: the index, from the entry, of the instance for which frames wait longest. `None`:
    /// frames wait for no instance.
    pub fn bottleneck(&self) -> Option<usize> {
        let delays = self.delays_ns.iter().enumerate();
        let longest = delays.max_by(|a, b| a.1.total_cmp(b.1));
        longest
            .filter(|(_, delay)| **delay >= BOTTLENECK_NS)
            .map(|(index, _)| index)
    }
}
