use std::convert::Infallible;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const TRIAL: Duration = Duration::from_secs(1);

fn counted(rate: f64, duration: Duration, loss: f64) -> Counted {
    let offered = (rate * duration.as_secs_f64()).ceil();
    Counted {
        offered: offered as u64,
        lost: (offered * loss) as u64,
    }
}

/// A device that carries `capacity` packets per second and loses the rest.
fn device(capacity: f64) -> impl FnMut(f64, Duration) -> Result<Counted, Infallible> {
    move |rate, duration| {
        let offered = (rate * duration.as_secs_f64()).round();
        let arrived = offered.min((capacity * duration.as_secs_f64()).round());
        Ok(Counted {
            offered: offered as u64,
            lost: (offered - arrived) as u64,
        })
    }
}

/// A device on a machine that makes one trial of `every` lose a tenth whatever is offered.
fn disturbed(
    capacity: f64,
    every: u32,
    seed: u32,
) -> impl FnMut(f64, Duration) -> Result<Counted, Infallible> {
    let mut quiet = device(capacity);
    // Marsaglia's xorshift: the same in every run.
    let mut random = 0x9e37_79b9_u32.wrapping_mul(seed);
    move |rate, duration| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        let mut counted = quiet(rate, duration)?;
        if random.is_multiple_of(every) {
            counted.lost = counted.lost.max(counted.offered / 10);
        }
        Ok(counted)
    }
}

fn spec(goals: &[Goal]) -> SearchSpec {
    SearchSpec {
        goals: goals.to_vec(),
        ..SearchSpec::ndr_pdr(10e6, TRIAL)
    }
}

#[test]
fn ndr_and_pdr_of_a_known_device() {
    let report = search(&SearchSpec::ndr_pdr(10e6, TRIAL), device(3.3e6)).unwrap();
    let [ndr, pdr] = report.goals[..] else {
        panic!("two goals: {report:?}");
    };
    assert_eq!((ndr.outcome, pdr.outcome), (Outcome::Found, Outcome::Found));
    assert!(ndr.rate <= 3.3e6 && ndr.rate >= 3.3e6 * 0.994, "{ndr:?}");
    let limit = 3.3e6 / 0.995;
    assert!(
        pdr.rate <= limit + 1.0 && pdr.rate >= limit * 0.994,
        "{pdr:?}"
    );
    assert_eq!(ndr.throughput, ndr.rate);
    assert!(pdr.throughput <= 3.3e6 + 1.0 && pdr.throughput > 3.3e6 * 0.99);
}

#[test]
fn short_trials_find_the_place_and_long_ones_count() {
    let report = search(&spec(&[Goal::ndr()]), device(3.3e6)).unwrap();
    let long = report.trials.iter().filter(|trial| trial.seconds == 1.0);
    let long: Vec<_> = long.map(|trial| trial.rate).collect();
    assert!(long.len() <= 8, "{} long trials", long.len());
    assert!(
        long.iter().all(|rate| (2e6..5e6).contains(rate)),
        "{long:?}"
    );
    assert!(
        long.contains(&report.goals[0].rate),
        "the result was measured"
    );
    let without = SearchSpec {
        short_seconds: 0.0,
        ..spec(&[Goal::ndr()])
    };
    let without = search(&without, device(3.3e6)).unwrap();
    assert!(without.trials.iter().all(|trial| trial.seconds == 1.0));
    assert_eq!(without.goals[0].outcome, Outcome::Found);
}

#[test]
fn a_trial_counts_for_every_goal() {
    let mut seen = Vec::new();
    let mut device = device(3.3e6);
    let report = search(&SearchSpec::ndr_pdr(10e6, TRIAL), |rate, duration| {
        assert!(!seen.contains(&(rate, duration)), "{rate} is known");
        // The very first trial gives the start of the search; the search may return to its rate.
        if rate < 10e6 {
            seen.push((rate, duration));
        }
        device(rate, duration)
    });
    assert_eq!(report.unwrap().goals.len(), 2);
}

#[test]
fn the_ends_of_the_range_are_distinguished() {
    let above = search(&spec(&[Goal::ndr()]), device(20e6)).unwrap();
    assert_eq!(above.goals[0].outcome, Outcome::AboveRange);
    assert_eq!(above.goals[0].rate, 10e6);
    assert_eq!(above.goals[0].failed_rate, None);
    let below = search(&spec(&[Goal::ndr()]), device(10.0)).unwrap();
    assert_eq!(below.goals[0].outcome, Outcome::BelowRange);
    assert_eq!((below.goals[0].rate, below.goals[0].throughput), (0.0, 0.0));
    assert_eq!(below.goals[0].failed_rate, Some(10e3));
}

// promise: 12.5
#[test]
fn a_majority_forgives_losses_that_are_the_machines() {
    // Counts those of twenty runs whose bounds enclose the device's limit.
    let right = |goal: Goal| {
        let encloses = |seed: &u32| {
            let report = search(&spec(&[goal]), disturbed(3.3e6, 4, *seed)).unwrap();
            let goal = report.goals[0];
            goal.rate <= 3.3e6 && goal.failed_rate.is_some_and(|failed| failed >= 3.3e6)
        };
        (1..=20).filter(encloses).count()
    };
    let single = right(Goal::ndr());
    assert!(single < 15, "{single} of 20");
    assert_eq!(right(Goal::ndr().majority_of(41)), 20);
}

#[test]
fn a_load_is_left_as_soon_as_it_is_decided() {
    let report = search(&spec(&[Goal::ndr().majority_of(5)]), device(20e6)).unwrap();
    let long = report.trials.iter().filter(|trial| trial.seconds == 1.0);
    // Three of five are the majority.
    assert_eq!(long.count(), 3);
}

// promise: 12.5
#[test]
fn what_was_not_sent_was_not_carried() {
    // A generator that sends two million a second, independently of the requested rate.
    let report = search(&spec(&[Goal::ndr()]), |rate, duration| {
        Ok::<_, Infallible>(counted(rate.min(2e6), duration, 0.0))
    });
    let goal = report.unwrap().goals[0];
    assert_eq!(goal.outcome, Outcome::Found);
    assert!(goal.rate < 2e6 / SENT_MIN + 1.0, "{goal:?}");
}

#[test]
fn nonsense_is_refused() {
    let good = SearchSpec::ndr_pdr(1e6, TRIAL);
    let with_goal = |goal| SearchSpec {
        goals: vec![goal],
        ..good.clone()
    };
    let ndr = Goal::ndr();
    let bad = [
        SearchSpec {
            rate_min: 0.0,
            ..good.clone()
        },
        SearchSpec {
            rate_min: 2e6,
            ..good.clone()
        },
        SearchSpec {
            rate_max: f64::NAN,
            ..good.clone()
        },
        SearchSpec {
            trial_seconds: 0.0,
            ..good.clone()
        },
        SearchSpec {
            trial_seconds: f64::INFINITY,
            ..good.clone()
        },
        SearchSpec {
            short_seconds: -1.0,
            ..good.clone()
        },
        SearchSpec {
            goals: vec![],
            ..good.clone()
        },
        with_goal(Goal {
            loss_max: 1.0,
            ..ndr
        }),
        with_goal(Goal {
            exceed_ratio: f64::NAN,
            ..ndr
        }),
        with_goal(Goal { trials: 0, ..ndr }),
        with_goal(Goal {
            precision: 0.0,
            ..ndr
        }),
    ];
    for spec in bad {
        let refused = search(&spec, device(1.0));
        assert!(matches!(refused, Err(SearchError::Spec(_))), "{spec:?}");
    }
    for (offered, lost) in [(0, 0), (1, 2)] {
        let counted = Counted { offered, lost };
        let refused = search(&good, |_, _| Ok::<_, Infallible>(counted));
        assert!(matches!(refused, Err(SearchError::Count { .. })));
    }
    let refused = search(&good, |_, _| Err("broken"));
    assert!(matches!(refused, Err(SearchError::Measure("broken"))));
}

proptest! {
    // promise: 12.5
    #[test]
    fn the_bounds_enclose_the_limit(capacity in 2e4f64..1e7, precision in 1e-4f64..0.1) {
        let goal = Goal { precision, ..Goal::ndr() };
        let goal = search(&spec(&[goal]), device(capacity)).unwrap().goals[0];
        prop_assert_eq!(goal.outcome, Outcome::Found);
        let failed = goal.failed_rate.unwrap();
        prop_assert!(goal.rate <= capacity + 1.0 && capacity < failed + 1.0);
        prop_assert!(failed - goal.rate <= precision * failed);
    }

    #[test]
    fn any_device_ends_the_search(losses in prop::collection::vec(0.0f64..1.0, 1..50), trials in 1u32..5) {
        let mut losses = losses.into_iter().cycle();
        let goals = [Goal::ndr().majority_of(trials), Goal::pdr().majority_of(trials)];
        let report = search(&spec(&goals), |rate, duration| {
            // A third of the losses is none at all.
            let loss = losses.next().filter(|loss| *loss > 0.33).unwrap_or(0.0);
            Ok::<_, Infallible>(counted(rate, duration, loss))
        });
        let report = report.unwrap();
        prop_assert!(report.trials.len() < 1000, "{} trials", report.trials.len());
    }
}
