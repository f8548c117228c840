//! Latency histograms: every value kept to three significant digits (HdrHistogram), from one
//! nanosecond to a minute, in a bounded amount of memory.

use std::fmt;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency with a bucket of its own, in nanoseconds; longer ones count as this.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
            .expect("constant bounds that the histogram accepts");
        Latency { histogram }
    }
}

impl Latency {
    /// Adds one latency in nanoseconds.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.histogram.reset();
    }

    /// Adds everything that `other` has recorded.
    pub fn add(&mut self, other: &Latency) {
        self.histogram
            .add(&other.histogram)
            .expect("all histograms here have the same bounds");
    }

    /// The figures; `None` when nothing has been recorded.
    pub fn summary(&self) -> Option<LatencySummary> {
        let histogram = &self.histogram;
        (!histogram.is_empty()).then(|| LatencySummary {
            count: histogram.len(),
            min_ns: histogram.min(),
            mean_ns: histogram.mean(),
            stdev_ns: histogram.stdev(),
            p50_ns: histogram.value_at_quantile(0.5),
            p90_ns: histogram.value_at_quantile(0.9),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        })
    }
}

/// The figures of a histogram; times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Values recorded.
    pub count: u64,
    /// Smallest.
    pub min_ns: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub stdev_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90 % are at most this.
    pub p90_ns: u64,
    /// 99 % are at most this.
    pub p99_ns: u64,
    /// 99.9 % are at most this.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

impl fmt::Display for LatencySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        write!(
            f,
            "min {:.1} mean {:.1} p50 {:.1} p90 {:.1} p99 {:.1} p99.9 {:.1} max {:.1} us",
            us(self.min_ns),
            self.mean_ns / 1e3,
            us(self.p50_ns),
            us(self.p90_ns),
            us(self.p99_ns),
            us(self.p999_ns),
            us(self.max_ns),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_series() {
        let mut latency = Latency::default();
        assert_eq!(latency.summary(), None);
        (1..=1000).for_each(|us| latency.record(us * 1000));
        let summary = latency.summary().unwrap();
        let near = |value: u64, wanted: u64| value.abs_diff(wanted) * 500 <= wanted;
        assert!(
            near(summary.min_ns, 1000) && near(summary.max_ns, 1_000_000),
            "{summary}"
        );
        assert!(
            near(summary.p50_ns, 500_000) && near(summary.p90_ns, 900_000),
            "{summary}"
        );
        assert!(
            near(summary.p99_ns, 990_000) && near(summary.p999_ns, 999_000),
            "{summary}"
        );
        assert!((summary.mean_ns - 500_500.0).abs() < 1000.0);
    }

    #[test]
    fn histograms_add_up() {
        let (mut total, mut part) = (Latency::default(), Latency::default());
        for latency_ns in [10, 1000] {
            part.record(latency_ns);
            total.add(&part);
            part.clear();
        }
        total.add(&part);
        let summary = total.summary().unwrap();
        assert_eq!(
            (summary.count, summary.min_ns, summary.max_ns),
            (2, 10, 1000)
        );
        assert_eq!(part.summary(), None);
    }

    #[test]
    fn values_beyond_the_bounds_are_kept_as_the_bound() {
        let mut latency = Latency::default();
        latency.record(0);
        latency.record(u64::MAX);
        let summary = latency.summary().unwrap();
        assert_eq!(summary.count, 2);
        assert!(summary.max_ns >= LATENCY_MAX_NS);
    }
}
