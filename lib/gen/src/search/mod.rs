//! The highest rate that a device carries: NDR (no loss) and PDR (a tolerated share of loss), by one
//! search for several loss ratios in the manner of MLRsearch (draft-ietf-bmwg-mlrsearch); with one
//! goal and one trial per load it is RFC 2544's binary search (section 26.1).
//!
//! The search sees the device through a single function, which offers a rate for a given time and returns the offered
//! and the lost frames.
//!
//! - A **trial** counts for every goal: a load that was measured for one goal is not measured again for another.
//! - A **load** passes a goal when at most [`Goal::exceed_ratio`] of [`Goal::trials`] trials lose more
//!   than [`Goal::loss_max`]; it is left as soon as the rest cannot change that. A disturbance of the
//!   machine, not of the device, is outvoted.
//! - First short trials find out where to look, then only trials of the full length count. From the
//!   first guess the steps grow until a load that passes and one that fails enclose the limit; the
//!   interval is then halved (geometrically) until it is as narrow as asked.
//! - A load that failed outweighs a higher one that passed: the result lies below every load that
//!   failed.

mod narrow;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::{Goal, SearchSpec};

use std::time::Duration;

use narrow::Loads;
use serde::{Deserialize, Serialize};

/// The measurement of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Packets that were sent.
    pub offered: u64,
    /// Frames, of those, that did not arrive.
    pub lost: u64,
}

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Requested rate, in packets per second.
    pub rate: f64,
    /// Duration, in seconds.
    pub seconds: f64,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
}

/// Result of the search for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The limit lies between the two bounds.
    Found,
    /// The highest rate passed: the device may carry more.
    AboveRange,
    /// The lowest rate failed: the device carries less, if anything.
    BelowRange,
}

/// The result of the search for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GoalReport {
    /// The goal.
    pub goal: Goal,
    /// Result of the search.
    pub outcome: Outcome,
    /// The highest rate that passed, in packets per second: the result. 0 if none did.
    pub rate: f64,
    /// The lowest rate that failed; none when all passed.
    pub failed_rate: Option<f64>,
    /// Packets per second that arrived at [`GoalReport::rate`], mean of its trials.
    pub throughput: f64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchReport {
    /// The reports of the goals, in their order.
    pub goals: Vec<GoalReport>,
    /// Every measurement in its order, the short ones too.
    pub trials: Vec<Trial>,
}

/// The reason why a search failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError<E> {
    /// The numbers make no sense.
    #[error("search: {0}")]
    Spec(&'static str),
    /// A trial sent nothing, or lost more than it sent.
    #[error(
        "search: a trial at {rate:.0} packets per second counted {lost} lost of {offered} sent"
    )]
    Count {
        /// Rate of the trial.
        rate: f64,
        /// Frames sent, as the function reported.
        offered: u64,
        /// Frames lost, as the function reported.
        lost: u64,
    },
    /// The measurement failed.
    #[error(transparent)]
    Measure(E),
}

/// A generator that sends less than this share of the requested rate has lost the rest: the device was not offered
/// the rate.
const SENT_MIN: f64 = 0.99;

/// Searches the highest rate for each goal; `trial(rate in packets per second, duration)` measures.
///
/// # Errors
/// See [`SearchError`].
pub fn search<E>(
    spec: &SearchSpec,
    mut trial: impl FnMut(f64, Duration) -> Result<Counted, E>,
) -> Result<SearchReport, SearchError<E>> {
    spec.check().map_err(SearchError::Spec)?;
    let mut trials = Vec::new();
    let mut measure = |rate: f64, duration: Duration| {
        let counted = trial(rate, duration).map_err(SearchError::Measure)?;
        let loss = loss(rate, duration, counted)?;
        trials.push(Trial {
            rate,
            seconds: duration.as_secs_f64(),
            loss,
        });
        Ok(loss)
    };
    let guesses = guess(spec, &mut measure)?;
    let mut loads = Loads::default();
    let mut goals = Vec::with_capacity(spec.goals.len());
    for (goal, guess) in spec.goals.iter().zip(guesses) {
        let mut full = |rate| measure(rate, spec.trial());
        let bounds = loads.narrow(spec, goal, guess, &mut full)?;
        goals.push(loads.report(goal, bounds));
    }
    Ok(SearchReport { goals, trials })
}

/// Returns the start of each goal's search: the result of a coarse search with short trials, one per load.
fn guess<E>(
    spec: &SearchSpec,
    measure: &mut impl FnMut(f64, Duration) -> Result<f64, SearchError<E>>,
) -> Result<Vec<f64>, SearchError<E>> {
    let Some(short) = spec.short_trial() else {
        return Ok(vec![spec.rate_max; spec.goals.len()]);
    };
    let mut loads = Loads::default();
    let mut measure = |rate| measure(rate, short);
    // The rate that arrives when too much is offered is near to the rate that the device carries.
    let arrived = (1.0 - measure(spec.rate_max)?) * spec.rate_max;
    let mut from = arrived.clamp(spec.rate_min, spec.rate_max);
    let mut guesses = Vec::with_capacity(spec.goals.len());
    for goal in &spec.goals {
        let bounds = loads.narrow(spec, &goal.coarse(), from, &mut measure)?;
        from = bounds.passed.unwrap_or(spec.rate_min);
        guesses.push(from);
    }
    Ok(guesses)
}

/// Share of packets lost; a rate that was not offered counts as loss.
fn loss<E>(rate: f64, duration: Duration, counted: Counted) -> Result<f64, SearchError<E>> {
    let Counted { offered, lost } = counted;
    if offered == 0 || lost > offered {
        return Err(SearchError::Count {
            rate,
            offered,
            lost,
        });
    }
    let loss = lost as f64 / offered as f64;
    let sent = offered as f64 / (rate * duration.as_secs_f64());
    Ok(if sent < SENT_MIN {
        1.0 - (1.0 - loss) * sent
    } else {
        loss
    })
}
