//! Rates of slices, from the metrics of their instances.

use super::InstanceStats;
use serde::Serialize;
use std::collections::BTreeSet;

/// The rates of a slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SliceRates {
    /// The instance.
    pub instance: String,
    /// The slice.
    pub name: String,
    /// Intervals per second that were done in time.
    pub done: f64,
    /// Intervals per second that were late.
    pub late: f64,
    /// Intervals per second that ended otherwise, or of which samples are missing.
    pub lost: f64,
    /// Mean time from an interval's whole input to its end, in nanoseconds; absent: none was done.
    pub makespan_ns: Option<f64>,
    /// Part of its engine's processing elements on which the slice's tasks ran, in percent.
    pub busy_percent: Option<f64>,
}

impl SliceRates {
    /// Returns the rates of an instance's slices between two snapshots, `seconds` apart. Counters that are smaller than before
    /// begin anew.
    pub(super) fn of(
        old: Option<&InstanceStats>,
        new: &InstanceStats,
        seconds: f64,
    ) -> Vec<SliceRates> {
        let names = new.metrics.keys().filter_map(|key| slice_of(key));
        let names: BTreeSet<&str> = names.collect();
        let growth = |key: &str| {
            let now = new.metrics.get(key).copied().unwrap_or(0.0);
            let before = old.and_then(|old| old.metrics.get(key)).copied();
            let before = before.filter(|&before| before <= now).unwrap_or(0.0);
            now - before
        };
        let rates = names.into_iter().map(|name| {
            let ends = |end: &str| {
                growth(&format!(
                    "slice_intervals_total{{slice=\"{name}\",end=\"{end}\"}}"
                ))
            };
            let of_slice = |metric: &str| format!("{metric}{{slice=\"{name}\"}}");
            let lost = [
                "failed",
                "hung",
                "refused",
                "overrun",
                "incomplete",
                "missing",
            ];
            let done = ends("done");
            let makespan = growth(&of_slice("slice_makespan_seconds_total"));
            let busy = growth(&of_slice("slice_busy_seconds_total"));
            let pes = new
                .metrics
                .get(&of_slice("slice_pes"))
                .filter(|&&pes| pes > 0.0);
            SliceRates {
                instance: new.name.clone(),
                name: name.to_owned(),
                done: done / seconds,
                late: ends("late") / seconds,
                lost: lost.map(ends).iter().sum::<f64>() / seconds,
                makespan_ns: (done > 0.0).then(|| makespan / done * 1e9),
                busy_percent: pes.map(|pes| busy / seconds / pes * 100.0),
            }
        });
        rates.collect()
    }
}

/// The slice that a metric is about, by its number of PEs, which each slice has.
fn slice_of(key: &str) -> Option<&str> {
    key.strip_prefix("slice_pes{slice=\"")?.strip_suffix("\"}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(done: f64, lost: f64, seconds: f64) -> InstanceStats {
        let metrics = [
            ("slice_pes{slice=\"a\"}", 2.0),
            ("slice_intervals_total{slice=\"a\",end=\"done\"}", done),
            ("slice_intervals_total{slice=\"a\",end=\"missing\"}", lost),
            ("slice_makespan_seconds_total{slice=\"a\"}", seconds),
            ("slice_busy_seconds_total{slice=\"a\"}", 2.0 * seconds),
            ("slice_pes_lost_total", 0.0),
        ];
        InstanceStats {
            name: "cells".to_owned(),
            metrics: metrics.map(|(key, value)| (key.to_owned(), value)).into(),
            ..InstanceStats::default()
        }
    }

    #[test]
    fn rates_of_slices_come_from_their_instances_metrics() {
        let (before, after) = (stats(100.0, 4.0, 0.1), stats(300.0, 6.0, 0.5));
        let [rates] = &SliceRates::of(Some(&before), &after, 2.0)[..] else {
            panic!("one slice");
        };
        assert_eq!(
            (rates.instance.as_str(), rates.name.as_str()),
            ("cells", "a")
        );
        assert_eq!((rates.done, rates.late, rates.lost), (100.0, 0.0, 1.0));
        let [makespan, busy] =
            [rates.makespan_ns, rates.busy_percent].map(Option::unwrap_or_default);
        assert!((makespan - 2e6).abs() < 1.0, "{makespan}");
        assert!((busy - 20.0).abs() < 1e-9, "{busy}");
        let anew = &SliceRates::of(Some(&after), &before, 1.0)[0];
        assert_eq!(anew.done, 100.0, "the instance began anew");
        let silent = &SliceRates::of(Some(&after), &after, 1.0)[0];
        assert_eq!((silent.done, silent.makespan_ns), (0.0, None));
        assert_eq!(SliceRates::of(None, &InstanceStats::default(), 1.0), []);
    }
}
