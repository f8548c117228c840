//! The highest rate that a device carries: NDR (no loss) and PDR (a tolerated share of loss), by
//! the binary search of RFC 2544 section 26.1.
//!
//! The search sees the device through one function: offer this rate, tell me the share lost. It
//! keeps an interval whose lower end passed and whose upper end failed, and halves it until it is
//! as narrow as asked. A device that passes at the highest rate or fails at the lowest is told
//! apart from one whose limit was found.

use serde::{Deserialize, Serialize};

/// Between which rates to search, and how finely. Rates are in packets per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchSpec {
    /// Lowest rate tried.
    pub rate_min: f64,
    /// Highest rate tried, and the first.
    pub rate_max: f64,
    /// Largest share of loss that passes, 0 to 1: 0 for NDR, CSIT's PDR has 0.005.
    pub loss_max: f64,
    /// Width of the final interval as a share of its upper end; CSIT uses 0.005.
    pub precision: f64,
    /// How often a rate that failed is tried again before it counts as failed: on a shared machine
    /// a loss may be somebody else's doing.
    pub retries: u32,
}

impl SearchSpec {
    /// A search for the rate without loss up to `rate_max` packets per second.
    pub fn ndr(rate_max: f64) -> Self {
        SearchSpec {
            rate_min: rate_max / 1000.0,
            rate_max,
            loss_max: 0.0,
            precision: 0.005,
            retries: 0,
        }
    }

    /// The same, tolerating CSIT's 0.5 % of loss.
    pub fn pdr(rate_max: f64) -> Self {
        SearchSpec {
            loss_max: 0.005,
            ..SearchSpec::ndr(rate_max)
        }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// [`SearchError::Spec`] with what is wrong.
    pub fn check(&self) -> Result<(), SearchError<std::convert::Infallible>> {
        let SearchSpec {
            rate_min,
            rate_max,
            loss_max,
            precision,
            ..
        } = *self;
        if !(rate_min > 0.0 && rate_min <= rate_max && rate_max.is_finite()) {
            return Err(SearchError::Spec(
                "rates must be finite and 0 < lowest <= highest",
            ));
        }
        if !(0.0..1.0).contains(&loss_max) {
            return Err(SearchError::Spec(
                "the loss that passes must be from 0 to below 1",
            ));
        }
        if !(1e-6..1.0).contains(&precision) {
            return Err(SearchError::Spec(
                "the precision must be from 0.000001 to below 1",
            ));
        }
        Ok(())
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Offered rate in packets per second.
    pub rate: f64,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// Whether that passed.
    pub passed: bool,
}

/// How a search ended.
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

/// What the search came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchReport {
    /// How it ended.
    pub outcome: Outcome,
    /// The highest rate that passed, in packets per second: the result. 0 if none did.
    pub rate: f64,
    /// The lowest rate that failed; none when all passed.
    pub failed_rate: Option<f64>,
    /// Every measurement in its order.
    pub trials: Vec<Trial>,
}

/// Why a search came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum SearchError<E> {
    /// The numbers make no sense.
    #[error("search: {0}")]
    Spec(&'static str),
    /// The measurement failed or gave a share of loss outside 0 to 1.
    #[error("search: measured loss {0} is not between 0 and 1")]
    Loss(f64),
    /// The measurement failed.
    #[error(transparent)]
    Measure(E),
}

/// Searches the highest rate at which `measure(rate in packets per second)` gives a share of loss
/// of at most [`SearchSpec::loss_max`].
///
/// # Errors
/// See [`SearchError`].
pub fn search<E>(
    spec: &SearchSpec,
    mut measure: impl FnMut(f64) -> Result<f64, E>,
) -> Result<SearchReport, SearchError<E>> {
    if let Err(SearchError::Spec(reason)) = spec.check() {
        return Err(SearchError::Spec(reason));
    }
    let mut trials = Vec::new();
    let mut passes = |rate: f64| -> Result<bool, SearchError<E>> {
        for _ in 0..=spec.retries {
            let loss = measure(rate).map_err(SearchError::Measure)?;
            if !(0.0..=1.0).contains(&loss) {
                return Err(SearchError::Loss(loss));
            }
            let passed = loss <= spec.loss_max;
            trials.push(Trial { rate, loss, passed });
            if passed {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let (outcome, rate, failed_rate) = if passes(spec.rate_max)? {
        (Outcome::AboveRange, spec.rate_max, None)
    } else if !passes(spec.rate_min)? {
        (Outcome::BelowRange, 0.0, Some(spec.rate_min))
    } else {
        let (mut passed, mut failed) = (spec.rate_min, spec.rate_max);
        while failed - passed > spec.precision * failed {
            let middle = f64::midpoint(passed, failed);
            *(if passes(middle)? {
                &mut passed
            } else {
                &mut failed
            }) = middle;
        }
        (Outcome::Found, passed, Some(failed))
    };
    Ok(SearchReport {
        outcome,
        rate,
        failed_rate,
        trials,
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    /// A device that carries `capacity` packets per second and loses the rest.
    fn device(capacity: f64) -> impl FnMut(f64) -> Result<f64, Infallible> {
        move |rate| Ok(((rate - capacity) / rate).max(0.0))
    }

    #[test]
    fn ndr_of_a_known_device() {
        let report = search(&SearchSpec::ndr(10e6), device(3.3e6)).unwrap();
        assert_eq!(report.outcome, Outcome::Found);
        assert!(
            report.rate <= 3.3e6 && report.rate >= 3.3e6 * 0.994,
            "{}",
            report.rate
        );
        assert!(report.trials.len() < 15, "{}", report.trials.len());
    }

    #[test]
    fn pdr_is_above_ndr() {
        let ndr = search(&SearchSpec::ndr(10e6), device(3.3e6)).unwrap();
        let spec = SearchSpec {
            loss_max: 0.05,
            ..SearchSpec::pdr(10e6)
        };
        let pdr = search(&spec, device(3.3e6)).unwrap();
        let limit = 3.3e6 / 0.95;
        assert!(pdr.rate > ndr.rate && pdr.rate <= limit && pdr.rate >= limit * 0.994);
    }

    #[test]
    fn the_ends_of_the_range_are_told_apart() {
        let above = search(&SearchSpec::ndr(1e6), device(2e6)).unwrap();
        assert_eq!(
            (above.outcome, above.rate, above.trials.len()),
            (Outcome::AboveRange, 1e6, 1)
        );
        let below = search(&SearchSpec::ndr(1e6), device(10.0)).unwrap();
        assert_eq!((below.outcome, below.rate), (Outcome::BelowRange, 0.0));
    }

    #[test]
    fn a_retry_forgives_a_loss_that_does_not_repeat() {
        let spec = SearchSpec {
            retries: 1,
            ..SearchSpec::ndr(1e6)
        };
        let mut calls = 0;
        let report = search(&spec, |_| {
            calls += 1;
            Ok::<_, Infallible>(if calls == 1 { 0.1 } else { 0.0 })
        });
        assert_eq!(report.unwrap().outcome, Outcome::AboveRange);
    }

    #[test]
    fn nonsense_is_refused() {
        let ndr = SearchSpec::ndr(1e6);
        for spec in [
            SearchSpec {
                rate_min: 0.0,
                ..ndr
            },
            SearchSpec {
                rate_min: 2e6,
                ..ndr
            },
            SearchSpec {
                rate_max: f64::NAN,
                ..ndr
            },
            SearchSpec {
                loss_max: 1.0,
                ..ndr
            },
            SearchSpec {
                precision: 0.0,
                ..ndr
            },
        ] {
            assert!(
                matches!(search(&spec, device(1.0)), Err(SearchError::Spec(_))),
                "{spec:?}"
            );
        }
        let bad = search(&ndr, |_| Ok::<_, Infallible>(f64::NAN));
        assert!(matches!(bad, Err(SearchError::Loss(_))));
        assert!(matches!(
            search(&ndr, |_| Err("broken")),
            Err(SearchError::Measure("broken"))
        ));
    }

    proptest! {
        #[test]
        fn the_bounds_enclose_the_limit(capacity in 2e3f64..1e6, precision in 1e-4f64..0.1) {
            let spec = SearchSpec { precision, ..SearchSpec::ndr(1e6) };
            let report = search(&spec, device(capacity)).unwrap();
            prop_assert_eq!(report.outcome, Outcome::Found);
            let failed = report.failed_rate.unwrap();
            prop_assert!(report.rate <= capacity && capacity < failed);
            prop_assert!(failed - report.rate <= precision * failed);
        }
    }
}
