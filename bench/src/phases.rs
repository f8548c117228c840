//! Samples of the parts of something, by the names of the parts, in the order in which they are first met.

use crate::report::{Report, significant};
use nfluid_figures::statistics::Samples;

/// The parts.
#[derive(Debug, Default)]
pub struct Phases(Vec<(String, Samples)>);

impl Phases {
    /// Adds the time of each part, in milliseconds.
    pub fn push(&mut self, parts: impl IntoIterator<Item = (String, f64)>) {
        for (what, ms) in parts {
            match self.0.iter_mut().find(|(name, _)| *name == what) {
                Some((_, samples)) => samples.push(ms),
                None => self.0.push((what, Samples::from_iter([ms]))),
            }
        }
    }

    /// Hands each part in as `PREFIX.phase.PART_ms`; returns rows of a table: part, median, p99.
    pub fn report(&self, report: &mut Report, prefix: &str, conditions: &str) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for (what, samples) in &self.0 {
            report.figure(
                format!("{prefix}.phase.{what}_ms"),
                samples,
                "ms",
                conditions,
            );
            let figures = [samples.median(), samples.p99()].map(significant);
            rows.push([what.clone()].into_iter().chain(figures).collect());
        }
        rows
    }
}
