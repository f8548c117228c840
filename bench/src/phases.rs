//! Samples of the phases of an operation, by name, in the order of their first occurrence.

use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_figures::statistics::Samples;

/// The quantity of a sweep of phases.
pub const PARTS: [Quantity; 1] = [Quantity::new(
    "_ms",
    "ms",
    &[("median", Shown::Median), ("p99", Shown::P99)],
)];

/// Samples by phase.
#[derive(Debug, Default)]
pub struct Phases(Vec<(String, Samples)>);

impl Phases {
    /// Adds the time of each phase, in milliseconds.
    pub fn push(&mut self, parts: impl IntoIterator<Item = (String, f64)>) {
        for (what, ms) in parts {
            match self.0.iter_mut().find(|(name, _)| *name == what) {
                Some((_, samples)) => samples.push(ms),
                None => self.0.push((what, Samples::from_iter([ms]))),
            }
        }
    }

    /// Adds a row for each phase: the cells of `key` and the phase's name. The figures are `PREFIX.phase.PART_ms`.
    pub fn add_to(&self, sweep: &mut Sweep<1>, key: &[&str], prefix: &str, conditions: &str) {
        for (what, samples) in &self.0 {
            let key: Vec<String> = key
                .iter()
                .chain([&what.as_str()])
                .map(|it| (*it).to_owned())
                .collect();
            let side = Side::new(key, format!("{prefix}.phase.{what}"), ()).under(conditions);
            sweep.add(&side, [samples.clone()]);
        }
    }
}
