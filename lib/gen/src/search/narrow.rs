//! Loads with their trials, and the way to the two that enclose a goal's limit.

use super::{Goal, GoalReport, Outcome, SearchError, SearchSpec};

/// A rate and the losses that were measured at it, in their order.
struct Load {
    rate: f64,
    losses: Vec<f64>,
}

/// All loads that were measured with trials of one length.
#[derive(Default)]
pub(super) struct Loads(Vec<Load>);

/// The known bounds of a goal's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The highest rate that passed, below every one that failed.
    pub passed: Option<f64>,
    /// The lowest rate that failed.
    pub failed: Option<f64>,
}

impl Load {
    /// Returns true if the load passes; `None` while further trials could change that. Later trials, made for another
    /// goal, change nothing: a search that moved its bounds back might not end.
    fn passes(&self, goal: &Goal) -> Option<bool> {
        let wanted = goal.trials as usize;
        let counted = &self.losses[..self.losses.len().min(wanted)];
        let bad = counted.iter().filter(|loss| **loss > goal.loss_max).count();
        let good = counted.len() - bad;
        let may_be_bad = (goal.exceed_ratio * wanted as f64).floor() as usize;
        if bad > may_be_bad {
            Some(false)
        } else if good >= wanted - may_be_bad {
            Some(true)
        } else {
            None
        }
    }
}

impl Loads {
    /// Measures until the bounds of `goal` are within its precision, or one of them is the end of the range. Begins at
    /// the rate `guess`.
    pub(super) fn narrow<E>(
        &mut self,
        spec: &SearchSpec,
        goal: &Goal,
        guess: f64,
        measure: &mut impl FnMut(f64) -> Result<f64, SearchError<E>>,
    ) -> Result<Bounds, SearchError<E>> {
        let mut next = Some(guess);
        // A factor between two rates; grows while one of the bounds is missing.
        let mut step = 1.0 + goal.precision;
        while let Some(rate) = next {
            self.decide(goal, rate, measure)?;
            let bounds = self.bounds(goal);
            next = match (bounds.passed, bounds.failed) {
                (Some(passed), Some(failed)) => {
                    let wide = failed - passed > goal.precision * failed;
                    wide.then(|| (passed * failed).sqrt())
                }
                (Some(passed), None) => {
                    (passed < spec.rate_max).then(|| (passed * step).min(spec.rate_max))
                }
                (None, Some(failed)) => {
                    (failed > spec.rate_min).then(|| (failed / step).max(spec.rate_min))
                }
                (None, None) => None,
            };
            step *= step;
        }
        Ok(self.bounds(goal))
    }

    /// Measures at `rate` until it is known whether it passes.
    fn decide<E>(
        &mut self,
        goal: &Goal,
        rate: f64,
        measure: &mut impl FnMut(f64) -> Result<f64, SearchError<E>>,
    ) -> Result<(), SearchError<E>> {
        let known = self.0.iter().position(|load| load.rate == rate);
        let index = known.unwrap_or_else(|| {
            let losses = Vec::new();
            self.0.push(Load { rate, losses });
            self.0.len() - 1
        });
        let load = &mut self.0[index];
        while load.passes(goal).is_none() {
            load.losses.push(measure(rate)?);
        }
        Ok(())
    }

    fn bounds(&self, goal: &Goal) -> Bounds {
        let with = |passes: bool| {
            let loads = self.0.iter();
            loads
                .filter(move |load| load.passes(goal) == Some(passes))
                .map(|load| load.rate)
        };
        let failed = with(false).min_by(f64::total_cmp);
        let below = |rate: &f64| failed.is_none_or(|failed| *rate < failed);
        Bounds {
            passed: with(true).filter(below).max_by(f64::total_cmp),
            failed,
        }
    }

    /// Returns the result of the search for a goal.
    pub(super) fn report(&self, goal: &Goal, bounds: Bounds) -> GoalReport {
        let outcome = match (bounds.passed, bounds.failed) {
            (Some(_), Some(_)) => Outcome::Found,
            (Some(_), None) => Outcome::AboveRange,
            (None, _) => Outcome::BelowRange,
        };
        let rate = bounds.passed.unwrap_or(0.0);
        let losses = self.0.iter().find(|load| load.rate == rate);
        let losses = losses.map_or(&[][..], |load| &load.losses);
        let loss = losses.iter().sum::<f64>() / losses.len().max(1) as f64;
        GoalReport {
            goal: *goal,
            outcome,
            rate,
            failed_rate: bounds.failed,
            throughput: rate * (1.0 - loss),
        }
    }
}
