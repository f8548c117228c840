//! Medians and spread.

/// Repetitions of one measurement.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds a repetition.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The repetitions, in the order in which they were made.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The median; 0 without a repetition.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Distance between the quartiles as a part of the median, in percent.
    pub fn spread_percent(&self) -> f64 {
        let median = self.median();
        if median == 0.0 {
            0.0
        } else {
            (self.high_quartile() - self.low_quartile()) / median * 100.0
        }
    }

    /// A quarter of the repetitions are at most this.
    pub fn low_quartile(&self) -> f64 {
        self.quantile(0.25)
    }

    /// A quarter of the repetitions are at least this.
    pub fn high_quartile(&self) -> f64 {
        self.quantile(0.75)
    }

    /// The 99th percentile; 0 without a repetition.
    pub fn p99(&self) -> f64 {
        self.quantile(0.99)
    }

    /// The arithmetic mean; 0 without a repetition.
    pub fn mean(&self) -> f64 {
        if self.0.is_empty() {
            0.0
        } else {
            self.0.iter().sum::<f64>() / self.0.len() as f64
        }
    }

    /// Round by round, how many times the other's: both sides of a ratio are measured within a second.
    pub fn ratios(&self, other: &Samples) -> Samples {
        let rounds = self.0.iter().zip(&other.0);
        rounds.map(|(one, other)| one / other).collect()
    }

    /// Linear interpolation between order statistics.
    pub fn quantile(&self, q: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else {
            return 0.0;
        };
        let position = q * last as f64;
        let below = position.floor() as usize;
        let above = (below + 1).min(last);
        sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
    }
}

/// Returns the item with the highest median.
pub fn highest<'a, T>(
    among: impl IntoIterator<Item = &'a T>,
    of: impl Fn(&T) -> &Samples,
) -> Option<&'a T> {
    let by_median = |a: &&T, b: &&T| of(a).median().total_cmp(&of(b).median());
    among.into_iter().max_by(by_median)
}

impl From<f64> for Samples {
    /// Returns the samples of a value that was measured once, or computed.
    fn from(value: f64) -> Self {
        Samples(vec![value])
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Samples(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;

    #[test]
    fn median_and_spread_of_known_samples() {
        let samples: Samples = [4.0, 1.0, 3.0, 2.0, 5.0].into_iter().collect();
        assert_eq!((samples.median(), samples.mean()), (3.0, 3.0));
        assert!((samples.spread_percent() - 200.0 / 3.0).abs() < 1e-9);
        assert_eq!(
            (samples.low_quartile(), samples.high_quartile()),
            (2.0, 4.0)
        );
        assert_eq!(samples.mean(), 3.0);
        assert!((samples.p99() - 4.96).abs() < 1e-9);
        let none = Samples::default();
        assert_eq!((none.median(), none.mean(), none.p99()), (0.0, 0.0, 0.0));
    }
}
