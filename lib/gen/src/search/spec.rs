//! Goals, resolution and duration of a search.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The conditions for a rate to pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Largest share of loss that a trial may have, 0 to 1: 0 for NDR, CSIT's PDR has 0.005.
    pub loss_max: f64,
    /// Share of the trials that may lose more, 0 to below 1; CSIT uses 0.5.
    pub exceed_ratio: f64,
    /// Trials per load at most; CSIT's duration sum over its trial duration is 20.
    pub trials: u32,
    /// Width of the final interval as a share of its upper end; CSIT uses 0.005.
    pub precision: f64,
}

impl Goal {
    /// RFC 2544: no loss in one trial.
    pub fn ndr() -> Self {
        Goal {
            loss_max: 0.0,
            exceed_ratio: 0.0,
            trials: 1,
            precision: 0.005,
        }
    }

    /// Returns a goal that tolerates CSIT's 0.5 % of loss.
    pub fn pdr() -> Self {
        Goal {
            loss_max: 0.005,
            ..Goal::ndr()
        }
    }

    /// Returns the goal, decided by the majority of so many trials per load: on a shared machine another process may
    /// cause a loss.
    pub fn majority_of(self, trials: u32) -> Self {
        Goal {
            exceed_ratio: 0.5,
            trials,
            ..self
        }
    }

    /// Returns a coarse search, to find out where to look.
    pub(super) fn coarse(self) -> Self {
        const PRECISION: f64 = 0.03;
        Goal {
            exceed_ratio: 0.0,
            trials: 1,
            precision: self.precision.max(PRECISION),
            ..self
        }
    }
}

/// Between which rates to search, for what, and how long. Rates are in packets per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchSpec {
    /// Lowest rate tried.
    pub rate_min: f64,
    /// Highest rate tried.
    pub rate_max: f64,
    /// Length of a trial that counts, in seconds.
    pub trial_seconds: f64,
    /// Length of the short trials that only find out where to look; 0 for none.
    pub short_seconds: f64,
    /// The goals, smallest loss first.
    pub goals: Vec<Goal>,
}

impl SearchSpec {
    /// NDR and PDR up to `rate_max` packets per second, by trials of `trial`, short ones a fifth of it.
    pub fn ndr_pdr(rate_max: f64, trial: Duration) -> Self {
        SearchSpec {
            rate_min: rate_max / 1000.0,
            rate_max,
            trial_seconds: trial.as_secs_f64(),
            short_seconds: trial.as_secs_f64() / 5.0,
            goals: vec![Goal::ndr(), Goal::pdr()],
        }
    }

    /// Length of a trial that counts.
    pub(super) fn trial(&self) -> Duration {
        Duration::from_secs_f64(self.trial_seconds)
    }

    /// Length of a short trial, if there are any.
    pub(super) fn short_trial(&self) -> Option<Duration> {
        (self.short_seconds > 0.0).then(|| Duration::from_secs_f64(self.short_seconds))
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// The error names the defect.
    pub fn check(&self) -> Result<(), &'static str> {
        /// A day: a longer duration is a mistake, and would not fit in a [`Duration`] at some point.
        const SECONDS_MAX: f64 = 86_400.0;
        const GOALS_MAX: usize = 16;
        const TRIALS_MAX: u32 = 1000;
        let positive = self.rate_min > 0.0 && self.rate_min <= self.rate_max;
        if !(positive && self.rate_max.is_finite()) {
            return Err("rates must be finite and 0 < lowest <= highest");
        }
        if !(self.trial_seconds > 0.0 && self.trial_seconds <= SECONDS_MAX) {
            return Err("a trial must last more than 0 s and at most a day");
        }
        if !(0.0..=self.trial_seconds).contains(&self.short_seconds) {
            return Err("a short trial must be from 0 s to the length of a trial");
        }
        if self.goals.is_empty() || self.goals.len() > GOALS_MAX {
            return Err("there must be 1 to 16 goals");
        }
        for goal in &self.goals {
            if !(0.0..1.0).contains(&goal.loss_max) {
                return Err("the loss that passes must be from 0 to below 1");
            }
            if !(0.0..1.0).contains(&goal.exceed_ratio) {
                return Err("the share of trials that may lose more must be from 0 to below 1");
            }
            if !(1..=TRIALS_MAX).contains(&goal.trials) {
                return Err("trials per load must be 1 to 1000");
            }
            if !(1e-6..1.0).contains(&goal.precision) {
                return Err("the precision must be from 0.000001 to below 1");
            }
        }
        Ok(())
    }
}
