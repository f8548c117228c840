//! Response times from wrk's statistics.
//!
//! wrk corrects them for requests that it did not send while it waited: an answer that took several times as long as
//! usual counts as if further requests had been made at the usual pace meanwhile, each answered with it
//! (`stats_correct`, wrk 4). Its mean is that of clients in an open loop. Here the loop is closed: a connection sends
//! its next request after an answer. The correction also compares sides badly: with c connections and r requests a
//! second, the usual time is c / r, and a stall of s adds s / (c / r) answers of s / 2 in the mean, which is s * s / (2
//! c) of time for each of r: the same sum for every side, however fast. A few stalls of milliseconds, such as two
//! programs on one core cause, so bring the ratio of any two sides towards 1. The correction only ever adds smaller
//! values than the corrected one, so it can be undone.

use std::collections::BTreeMap;

/// Numbers of answers by response time in microseconds.
pub type Counts = BTreeMap<u64, u64>;

/// Returns the real answers. `corrected`: wrk's statistics; `usual_us`: the interval of wrk's correction.
pub fn of(mut corrected: Counts, usual_us: u64) -> Counts {
    let usual_us = usual_us.max(1);
    let values: Vec<u64> = corrected.keys().rev().copied().collect();
    for value in values
        .into_iter()
        .take_while(|value| *value >= 2 * usual_us)
    {
        // All additions to this value belong to larger values, which have been handled.
        let count = corrected.get(&value).copied().unwrap_or(0);
        let mut less = value - usual_us;
        while less > usual_us {
            if let Some(added) = corrected.get_mut(&less) {
                *added = added.saturating_sub(count);
            }
            less -= usual_us;
        }
    }
    corrected
}

/// Returns the mean response time.
pub fn mean_us(answers: &Counts) -> f64 {
    let count: u64 = answers.values().sum();
    let sum: u64 = answers.iter().map(|(us, count)| us * count).sum();
    sum as f64 / count as f64
}

/// Returns the response time that `percent` percent of the answers do not exceed; 0 without answers.
pub fn percentile_us(answers: &Counts, percent: u64) -> f64 {
    let count: u64 = answers.values().sum();
    let wanted = (count * percent).div_ceil(100);
    let mut seen = 0;
    let found = answers.iter().find(|(_, count)| {
        seen += **count;
        seen >= wanted
    });
    found.map_or(0.0, |(us, _)| *us as f64)
}

#[cfg(test)]
mod tests {
    use super::{Counts, mean_us, of, percentile_us};

    /// Corrects as wrk does.
    fn correct(counts: &Counts, usual_us: u64) -> Counts {
        let mut corrected = counts.clone();
        for (value, count) in counts.range(2 * usual_us..) {
            let mut less = value - usual_us;
            while less > usual_us {
                *corrected.entry(less).or_default() += count;
                less -= usual_us;
            }
        }
        corrected
    }

    #[test]
    fn what_wrk_has_added_is_taken_out() {
        let counts = Counts::from([(90, 500), (110, 500), (700, 3), (900, 4), (5000, 2)]);
        let corrected = correct(&counts, 100);
        let added: u64 = corrected.values().sum();
        assert_eq!(added, 1009 + 3 * 5 + 4 * 7 + 2 * 48, "none is below 101");
        let sum: u64 = counts.iter().map(|(us, count)| us * count).sum();
        let answers = of(corrected, 100);
        assert!((mean_us(&answers) - sum as f64 / 1009.0).abs() < 1e-9);
        let same = of(counts.clone(), 10_000);
        assert_eq!(same, counts, "nothing was corrected by so long an interval");
    }

    #[test]
    fn a_percentile_is_a_time_that_an_answer_took() {
        let counts = Counts::from([(90, 500), (110, 490), (700, 3), (5000, 7)]);
        assert_eq!(percentile_us(&counts, 50), 90.0);
        assert_eq!(percentile_us(&counts, 99), 110.0);
        assert_eq!(percentile_us(&counts, 100), 5000.0);
        assert_eq!(percentile_us(&Counts::new(), 99), 0.0);
    }
}
