//! Tests that the simulator obeys the laws that TCP and queues obey.

#![allow(clippy::unwrap_used)]

use nfluid_sim::network::{Class, Service};
use nfluid_sim::outcome::Outcome;
use nfluid_sim::plan::{Connection, Hop, Node, Plan, PlanError, Route, SECOND_NS};
use nfluid_sim::random::Random;
use nfluid_sim::simulation::run;
use nfluid_sim::tcp::{Control, Sender};
use proptest::prelude::*;
use std::collections::VecDeque;

/// A core of 10,000 packets per second.
fn core(slots: usize) -> Node {
    Node {
        classes: vec![Class {
            ring: 0,
            cost_ns: 100_000,
        }],
        slots,
        service: Service::CpuFair { quantum_ns: None },
        batch: 1,
        marking: None,
    }
}

fn sender(control: Control, station: usize) -> Connection {
    Connection {
        control,
        ecn: true,
        routes: vec![Route {
            hops: vec![Hop {
                station,
                class: 0,
                delay_ns: 5_000_000,
            }],
            return_ns: 5_000_000,
        }],
        start_ns: 0,
        stop_ns: None,
    }
}

fn plan(stations: Vec<Node>, connections: Vec<Connection>) -> Plan {
    Plan {
        stations,
        connections,
        warm_up_ns: 5 * SECOND_NS,
        measured_ns: 10 * SECOND_NS,
        trace_ns: None,
        jitter_ns: 100_000,
        seed: 1,
    }
}

fn outcome(plan: &Plan) -> Outcome {
    run(plan).unwrap()
}

#[test]
fn one_flow_fills_a_core() {
    for control in [Control::Reno, Control::Cubic, Control::Lia, Control::Olia] {
        let outcome = outcome(&plan(vec![core(200)], vec![sender(control, 0)]));
        assert!(
            outcome.rate(0) > 9_900.0,
            "{control:?}: {}",
            outcome.rate(0)
        );
        assert!(outcome.rate(0) <= 10_001.0);
    }
}

// promise: 14.2
#[test]
fn equal_flows_share_alike() {
    for control in [Control::Reno, Control::Cubic] {
        let senders = vec![sender(control, 0); 8];
        let mut plan = plan(vec![core(100)], senders);
        plan.measured_ns = 60 * SECOND_NS;
        let outcome = outcome(&plan);
        let rates: Vec<f64> = (0..8).map(|flow| outcome.rate(flow)).collect();
        // Jain's index: 1 when all are equal, 1/8 when one has everything.
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        let index = sum * sum / (8.0 * squares);
        assert!(index > 0.95, "{control:?}: {index}, {rates:?}");
    }
}

#[test]
fn a_multipath_flow_takes_at_one_core_what_one_flow_takes() {
    let mut multipath = sender(Control::Lia, 0);
    multipath.routes = vec![multipath.routes[0].clone(); 2];
    let mut plan = plan(vec![core(100)], vec![multipath, sender(Control::Reno, 0)]);
    plan.measured_ns = 120 * SECOND_NS;
    let part = outcome(&plan).rate(0) / 10_000.0;
    assert!((0.35..0.65).contains(&part), "{part}");
}

/// Packets per round trip of a sender on a path with a fixed round trip of 10 ms and signals at random.
fn window_at(probability: f64, rounds: u64, seed: u64) -> f64 {
    const ROUND_NS: u64 = 10_000_000;
    let mut sender = Sender::new(Control::Reno);
    let mut random = Random::new(seed);
    let mut on_their_way = VecDeque::new();
    let (mut now_ns, mut acknowledged) = (0, 0_u64);
    sender.start();
    while now_ns < rounds * ROUND_NS {
        while let Some(sent) = sender.transmit(now_ns) {
            on_their_way.push_back((now_ns + ROUND_NS, sent.number));
        }
        let Some((at_ns, number)) = on_their_way.pop_front() else {
            break;
        };
        now_ns = at_ns;
        let marked = f64::from(random.word()) < probability * f64::from(u32::MAX);
        let subflows = [sender.as_subflow()];
        sender.acknowledge(number, marked, now_ns, &subflows, 0);
        acknowledged += 1;
    }
    acknowledged as f64 / rounds as f64
}

// promise: 14.2
#[test]
fn reno_obeys_the_inverse_square_root_law() {
    // Mathis et al., CCR 1997: W = sqrt(3/2) / sqrt(p) for periodic signals; 1.31 / sqrt(p) for random ones.
    for probability in [0.000_1_f64, 0.001, 0.01] {
        let window = window_at(probability, 100_000, 7);
        let constant = window * probability.sqrt();
        assert!(
            (1.15..1.45).contains(&constant),
            "p {probability}: {constant}"
        );
    }
}

// promise: 14.2
#[test]
fn reno_saws_between_half_and_full() {
    let mut plan = plan(vec![core(100)], vec![sender(Control::Reno, 0)]);
    plan.trace_ns = Some(10_000_000);
    plan.measured_ns = 60 * SECOND_NS;
    let outcome = outcome(&plan);
    let windows: Vec<f64> = outcome.trace[1000..].iter().map(|m| m.flows[0].0).collect();
    let high = windows.iter().copied().fold(0.0, f64::max);
    let low = windows.iter().copied().fold(f64::INFINITY, f64::min);
    // 100 packets are on their way in 10 ms, and 100 wait.
    assert!((195.0..215.0).contains(&high), "{high}");
    assert!((low / high - 0.5).abs() < 0.03, "{low} to {high}");
    let falls = windows
        .windows(2)
        .filter(|pair| pair[1] < pair[0] * 0.6)
        .count();
    // A packet per round trip of 10 to 20 ms, from 101 to 202: about 1.5 s each.
    assert!((30..50).contains(&falls), "{falls}");
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_one_another() {
    let senders = vec![sender(Control::Cubic, 0), sender(Control::Reno, 0)];
    let mut plan = plan(vec![core(50)], senders);
    plan.measured_ns = SECOND_NS;
    let first = outcome(&plan);
    assert_eq!(first, outcome(&plan));
    plan.seed = 2;
    assert_ne!(first, outcome(&plan));
}

#[test]
fn a_sender_that_stops_leaves_the_core_to_the_other() {
    let mut first = sender(Control::Reno, 0);
    first.stop_ns = Some(5 * SECOND_NS);
    let mut plan = plan(vec![core(100)], vec![first, sender(Control::Reno, 0)]);
    plan.warm_up_ns = 10 * SECOND_NS;
    let outcome = outcome(&plan);
    assert_eq!(outcome.rate(0), 0.0);
    assert!(outcome.rate(1) > 9_900.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    // promise: 14.2
    #[test]
    fn every_packet_is_somewhere(
        seed in any::<u64>(),
        slots in 1_usize..60,
        batch in 1_usize..40,
        flows in 1_usize..6,
        hops in 1_usize..4,
        ecn in any::<bool>(),
        control in prop_oneof![Just(Control::Reno), Just(Control::Cubic), Just(Control::Olia)],
        cost_ns in 10_000_u64..1_000_000,
    ) {
        let mut node = core(slots);
        node.batch = batch;
        node.classes[0].cost_ns = cost_ns;
        let mut connection = sender(control, 0);
        connection.ecn = ecn;
        connection.routes[0].hops = (0..hops).map(|station| Hop { station, class: 0, delay_ns: 1_000_000 }).collect();
        let mut plan = plan(vec![node; hops], vec![connection; flows]);
        (plan.seed, plan.warm_up_ns, plan.measured_ns) = (seed, 0, SECOND_NS / 2);
        let outcome = outcome(&plan);
        prop_assert_eq!(outcome.books.sent, outcome.books.accounted());
        prop_assert!(outcome.books.delivered > 0);
        for counts in outcome.classes.iter().flatten() {
            prop_assert!(counts.used_ns <= outcome.measured_ns + batch as u64 * cost_ns);
        }
    }

    // promise: 14.3
    #[test]
    fn absurd_plans_are_refused_and_never_hang(
        cost_ns in prop_oneof![Just(0), Just(1), any::<u64>()],
        slots in prop_oneof![Just(0), Just(1), any::<usize>()],
        batch in prop_oneof![Just(0), Just(1), any::<usize>()],
        measured_ns in prop_oneof![Just(0), 1_u64..10_000_000, any::<u64>()],
        delay_ns in prop_oneof![Just(0), any::<u64>()],
        class in 0_usize..3,
        jitter_ns in prop_oneof![Just(0), any::<u64>()],
        trace_ns in proptest::option::of(prop_oneof![Just(0), any::<u64>()]),
    ) {
        let mut node = core(slots);
        node.batch = batch;
        node.classes[0].cost_ns = cost_ns;
        let mut connection = sender(Control::Reno, 0);
        connection.routes[0].hops[0].delay_ns = delay_ns;
        connection.routes[0].hops[0].class = class;
        let mut plan = plan(vec![node], vec![connection]);
        (plan.warm_up_ns, plan.measured_ns) = (0, measured_ns);
        (plan.jitter_ns, plan.trace_ns) = (jitter_ns, trace_ns);
        // An accepted plan is short enough to be run here, or is not run at all.
        if plan.validate().is_ok() && measured_ns < 10_000_000 {
            prop_assert!(run(&plan).is_ok());
        }
    }
}

#[test]
fn errors_say_what_is_wrong_and_what_to_do() {
    let good = plan(vec![core(10)], vec![sender(Control::Reno, 0)]);
    let mut nowhere = good.clone();
    nowhere.connections[0].routes[0].hops[0].station = 3;
    let error = nowhere.validate().unwrap_err();
    assert_eq!(
        error,
        PlanError::Nowhere {
            station: 3,
            class: 0
        }
    );
    let mut large = good.clone();
    large.stations[0].classes[0].cost_ns = 1;
    let error = large.validate().unwrap_err().to_string();
    assert!(error.contains("simulate a shorter time"), "{error}");
    let mut small = good;
    small.stations[0].slots = 0;
    let error = small.validate().unwrap_err().to_string();
    assert_eq!(
        error,
        "the slots of a ring is 0: must be within 1 and 1048576"
    );
}
