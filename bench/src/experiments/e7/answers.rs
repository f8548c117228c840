//! How long answers took, out of wrk's statistics.
//!
//! wrk corrects them for what it has omitted to ask while it waited: an answer that took several times as long as usual
//! counts as if further requests had been made at the usual pace meanwhile, each answered with it (`stats_correct`, wrk 4).
//! Its mean is what clients would see who ask whether or not they are answered; a few stalls of milliseconds, such as two programs
//! on one core cause, decide it. The correction only ever adds to smaller values than the one that it is made for, so it can be undone.

use std::collections::BTreeMap;

/// Answers by the microseconds that they took.
pub type Counts = BTreeMap<u64, u64>;

/// Mean time of the answers that there really were. `corrected`: wrk's statistics; `usual_us`: the interval that it has
/// corrected by.
pub fn mean_us(mut corrected: Counts, usual_us: u64) -> f64 {
    let usual_us = usual_us.max(1);
    let values: Vec<u64> = corrected.keys().rev().copied().collect();
    for value in values
        .into_iter()
        .take_while(|value| *value >= 2 * usual_us)
    {
        // All that was added to it was added for larger values, which have been seen to.
        let count = corrected.get(&value).copied().unwrap_or(0);
        let mut less = value - usual_us;
        while less > usual_us {
            if let Some(added) = corrected.get_mut(&less) {
                *added = added.saturating_sub(count);
            }
            less -= usual_us;
        }
    }
    let answers: u64 = corrected.values().sum();
    let sum: u64 = corrected.iter().map(|(us, count)| us * count).sum();
    sum as f64 / answers as f64
}

#[cfg(test)]
mod tests {
    use super::{Counts, mean_us};

    /// As wrk does it.
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
        assert!((mean_us(corrected, 100) - sum as f64 / 1009.0).abs() < 1e-9);
        assert!((mean_us(counts, 10_000) - sum as f64 / 1009.0).abs() < 1e-9);
    }
}
