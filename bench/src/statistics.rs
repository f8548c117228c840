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
            (self.quantile(0.75) - self.quantile(0.25)) / median * 100.0
        }
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
        assert_eq!(samples.median(), 3.0);
        assert!((samples.spread_percent() - 200.0 / 3.0).abs() < 1e-9);
        assert_eq!(Samples::default().median(), 0.0);
    }
}
