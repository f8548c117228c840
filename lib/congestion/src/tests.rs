use crate::{Controller, Direction, Meter, PortSample, Settings};
use nfluid_marking::{ALWAYS, Law, LawError, NEVER, Pie, Red};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// An instance that takes `cost_ns` per frame and gets `frames` every 100 ms, seen through what it claims to have waiting.
fn metered(samples: u64, frames: u64, cost_ns: u64, claim: impl Fn(u64) -> u32) -> Meter {
    let mut meter = Meter::new(1);
    for sample in 0..samples {
        let delivered = sample * frames;
        meter.measure(sample * 100 * MS, &[delivered], |waiting| {
            waiting.push(claim(sample));
            Some(delivered * cost_ns)
        });
    }
    meter
}

fn near(found: Option<f64>, wanted: f64, percent: f64) {
    let found = found.expect("it was at work");
    assert!(
        (found - wanted).abs() <= wanted * percent / 100.0,
        "{found} instead of {wanted}"
    );
}

#[test]
fn the_cost_is_cpu_time_over_frames() {
    let meter = metered(50, 10_000, 700, |_| 0);
    near(meter.cost_ns(), 700.0, 0.1);
    near(meter.mean_cost_ns(), 700.0, 0.1);
    near(Some(meter.ports()[0].cpu_ns), 49.0 * 10_000.0 * 700.0, 0.1);
    assert_eq!(meter.ports()[0].frames, 49 * 10_000);
}

// promise: 7.35
#[test]
fn an_instance_that_lies_about_its_ring_does_not_change_its_cost() {
    // The instance made its counter jump by a whole ring, up and down, at every sample.
    let ways: [fn(u64) -> u32; 4] = [
        |sample| if sample % 2 == 0 { 1024 } else { 0 },
        |sample| (sample * 389 % 1025) as u32,
        |sample| if sample < 25 { 1024 } else { 0 },
        |sample| if sample == 49 { 0 } else { 1024 },
    ];
    for claim in ways {
        let meter = metered(50, 50_000, 700, claim);
        near(meter.mean_cost_ns(), 700.0, 0.1);
        near(meter.cost_ns(), 700.0, 1.0);
    }
}

#[test]
fn a_change_of_cost_is_followed_within_seconds_and_the_mean_remembers() {
    let mut meter = Meter::new(1);
    let mut cpu_ns = 0;
    for sample in 0..100_u64 {
        cpu_ns += 1000 * if sample < 50 { 100 } else { 900 };
        meter.measure(sample * 100 * MS, &[sample * 1000 + 1000], |waiting| {
            waiting.push(0);
            Some(cpu_ns)
        });
    }
    near(meter.cost_ns(), 900.0, 2.0);
    near(meter.mean_cost_ns(), 500.0, 3.0);
}

// promise: 7.35
#[test]
fn an_idle_instance_is_not_asked_and_keeps_its_cost() {
    let mut meter = metered(20, 1000, 500, |_| 0);
    let mut asked = 0;
    for sample in 20..1000_u64 {
        let at_work = meter.measure(sample * 100 * MS, &[19 * 1000], |waiting| {
            asked += 1;
            waiting.push(0);
            Some(19 * 500_000 + sample)
        });
        assert!(!at_work || sample == 20);
    }
    assert_eq!(asked, 1);
    near(meter.cost_ns(), 500.0, 0.1);
    // CPU time that the instance used while it had no frames belongs to no packet.
    for sample in 1000..1010_u64 {
        meter.measure(sample * 100 * MS, &[(sample - 980) * 1000], |waiting| {
            waiting.push(0);
            Some(60_000 * MS + (sample - 980) * 500_000)
        });
    }
    near(meter.cost_ns(), 500.0, 0.1);
}

#[test]
fn counters_made_anew_count_from_there() {
    let mut meter = metered(20, 1000, 500, |_| 0);
    for sample in 0..20_u64 {
        meter.measure((20 + sample) * 100 * MS, &[sample * 1000], |waiting| {
            waiting.push(0);
            Some(sample * 800_000)
        });
    }
    near(meter.cost_ns(), 800.0, 10.0);
    assert_eq!(meter.ports()[0].frames, (19 + 19) * 1000);
}

#[test]
fn ports_split_the_time_by_frames() {
    let mut meter = Meter::new(2);
    for sample in 0..10_u64 {
        meter.measure(
            sample * 100 * MS,
            &[sample * 300, sample * 100],
            |waiting| {
                waiting.extend([0, 0]);
                Some(sample * 400_000)
            },
        );
    }
    let [much, little] = meter.ports() else {
        panic!("two ports");
    };
    assert_eq!((much.frames, little.frames), (2700, 900));
    assert!((much.cpu_ns - 3.0 * little.cpu_ns).abs() < 1.0);
}

fn sample(port: u32, waiting: u32, cost_ns: u64, read_to: u32) -> PortSample {
    PortSample {
        port,
        core: Some(1),
        waiting,
        slots: 1024,
        read_to,
        cost_ns,
    }
}

fn red() -> Law {
    Law::Red(Red {
        min_frames: 100,
        max_frames: 1000,
        probability_max: ALWAYS / 1000,
        average_ns: 0,
    })
}

fn controller(law: Law) -> Controller {
    Controller::new(Settings {
        law: Some(law),
        cores: [(3, None)].into(),
    })
    .expect("it makes sense")
}

#[test]
fn dear_rings_are_marked_by_the_square_of_their_cost_from_the_sum() {
    let mut of_core = controller(red());
    let words = of_core.update(MS, &[sample(1, 40, 100, 0), sample(2, 400, 400, 0)]);
    let ratio = f64::from(words[1].probability) / f64::from(words[0].probability);
    assert!(
        words[0].probability > NEVER,
        "the sum is over the threshold"
    );
    assert!((ratio - 16.0).abs() < 0.1, "{ratio}");
}

#[test]
fn a_core_without_a_law_and_an_unknown_core_are_never_marked() {
    let mut of_core = controller(red());
    let mut elsewhere = sample(1, 1000, 100, 0);
    elsewhere.core = Some(3);
    let mut nowhere = sample(2, 1000, 100, 0);
    nowhere.core = None;
    let words = of_core.update(MS, &[elsewhere, nowhere, sample(4, 50, 100, 0)]);
    assert!(words.iter().all(|word| word.probability == NEVER));
    assert!(Settings::default().is_off());
}

#[test]
fn cores_do_not_mix() {
    let mut of_core = controller(red());
    let mut other = sample(2, 900, 100, 0);
    other.core = Some(0);
    let words = of_core.update(MS, &[sample(1, 50, 100, 0), other]);
    assert_eq!(words[0].probability, NEVER);
    assert!(words[1].probability > NEVER);
    assert_eq!(of_core.cores().count(), 2);
}

#[test]
fn the_tuned_law_marks_a_core_that_is_late_and_forgets_it() {
    let mut of_core = controller(Law::Pie(Pie::with_target(MS)));
    let mut marked = 0;
    for at in 0..200_u64 {
        // 1000 frames of 5 us are five times the target.
        let words = of_core.update(at * MS, &[sample(1, 1000, 5000, at as u32)]);
        marked += u32::from(words[0].probability > NEVER);
    }
    assert!(marked > 150, "{marked}");
    let mut words = Vec::new();
    for at in 200..20_000_u64 {
        words = of_core.update(at * MS, &[sample(1, 0, 5000, 0)]);
    }
    assert_eq!(words[0].probability, NEVER);
}

#[test]
fn rings_that_cannot_hold_the_target_are_marked_before_they_run_over() {
    let marked = |waiting: u32, cost_ns: u64| {
        let mut of_core = controller(Law::Pie(Pie::with_target(5 * MS)));
        let mut words = Vec::new();
        for at in 0..2000_u64 {
            words = of_core.update(at * MS, &[sample(1, waiting, cost_ns, at as u32)]);
        }
        words[0].probability > NEVER
    };
    // 1024 slots of 100 ns are a tenth of a millisecond; of 1 ms, a second.
    assert!(marked(900, 100));
    assert!(!marked(100, 100));
    assert!(marked(100, 1_000_000));
}

// promise: 7.36
#[test]
fn neighbours_do_not_pay_for_an_instance_that_stands_still() {
    let mut of_core = controller(red());
    let mut words = Vec::new();
    for at in 0..2000_u64 {
        let stands = sample(1, 1024, 100, 7);
        words = of_core.update(at * MS, &[stands, sample(2, 5, 100, at as u32)]);
        if at == 100 {
            assert!(words[1].probability > NEVER, "it may still go on");
        }
    }
    assert_eq!(words[1].probability, NEVER);
    let words = of_core.update(2001 * MS, &[sample(1, 1024, 100, 8), sample(2, 5, 100, 9)]);
    assert!(words[1].probability > NEVER, "it goes on");
}

// promise: 7.36
#[test]
fn a_ring_that_is_kept_empty_is_spared_for_a_neighbour_that_floods() {
    let mut controller = controller(red());
    let mut words = Vec::new();
    for round in 0..100 {
        let flooded = sample(1, 512, 1_000, round * 64);
        words = controller.update(
            u64::from(round) * MS,
            &[
                flooded,
                sample(2, 1, 1_000, round),
                sample(3, 20, 1_000, round),
            ],
        );
    }
    assert!(words[0].probability > NEVER);
    assert_eq!(words[1].probability, NEVER, "it keeps up");
    assert!(words[2].probability > NEVER, "it does not");
}

#[test]
fn a_law_without_sense_is_an_error() {
    let law = Law::Pie(Pie::with_target(1));
    let settings = Settings {
        law: None,
        cores: [(0, Some(law))].into(),
    };
    assert!(matches!(
        Controller::new(settings),
        Err(LawError::Time { .. })
    ));
}

// promise: 7.37
#[test]
fn the_entry_refuses_between_the_high_and_the_low_mark() {
    let mut direction = Direction::default();
    let mut at = |waiting: u32, cost_ns: u64| {
        let entry = Some(sample(1, 1024, 100, 0));
        direction.update(0, &[entry, None, Some(sample(2, waiting, cost_ns, 0))])
    };
    assert!(!at(768, 100_000), "three quarters are not exceeded");
    assert!(at(769, 100_000));
    assert!(at(600, 100_000), "it goes on below the mark");
    assert!(!at(512, 100_000));
    assert!(
        !at(1024, 100),
        "0.1 ms of work are gone before the next sample"
    );
    assert!(at(1024, 10_000));
    assert!(!at(1024, 1_000), "1 ms of work");
}

#[test]
fn a_full_entry_alone_is_refused_by_its_own_ring() {
    let mut direction = Direction::default();
    assert!(!direction.update(0, &[Some(sample(1, 1024, 100_000, 0))]));
    assert!(!direction.update(0, &[]));
}

#[test]
fn the_bottleneck_is_for_whom_frames_wait_longest() {
    let mut direction = Direction::default();
    assert_eq!(direction.bottleneck(), None);
    for at in 0..3000_u64 {
        direction.update(
            at * MS,
            &[Some(sample(1, 1024, 100, 0)), Some(sample(2, 900, 5000, 0))],
        );
    }
    assert_eq!(direction.bottleneck(), Some(1));
    for at in 3000..20_000_u64 {
        direction.update(at * MS, &[Some(sample(1, 3, 100, 0)), None]);
    }
    assert_eq!(direction.bottleneck(), None);
}

proptest! {
    /// Whatever an instance claims, whatever counters do: no panic, and never more frames than were delivered.
    // promise: 7.35
    #[test]
    fn no_claim_counts_a_frame_twice(samples in prop::collection::vec((0..1000_u64, any::<u32>(), any::<u64>()), 0..60)) {
        let mut meter = Meter::new(1);
        let mut delivered = 0;
        for (at, (new, claim, cpu_ns)) in samples.iter().enumerate() {
            delivered += new;
            meter.measure(at as u64 * MS, &[delivered], |waiting| {
                waiting.push(*claim);
                Some(*cpu_ns)
            });
        }
        prop_assert!(meter.ports()[0].frames <= delivered);
        prop_assert!(meter.cost_ns().is_none_or(|cost| cost >= 0.0));
    }

    /// Whatever is found: no panic, one word per ring.
    #[test]
    fn any_rings_are_survived(history in prop::collection::vec((any::<u64>(), prop::collection::vec(
        (any::<u32>(), prop::option::of(0..4_u32), any::<u32>(), any::<u32>(), any::<u64>()), 0..6)), 0..20)) {
        let mut of_core = controller(Law::default());
        let mut direction = Direction::default();
        for (now, rings) in history {
            let samples: Vec<PortSample> = rings.iter().map(|&(port, core, waiting, read_to, cost_ns)| PortSample {
                port, core, waiting, slots: 1024, read_to, cost_ns,
            }).collect();
            prop_assert_eq!(of_core.update(now, &samples).len(), samples.len());
            direction.update(now, &samples.iter().map(|sample| Some(*sample)).collect::<Vec<_>>());
            direction.bottleneck();
        }
    }
}
