//! Any history of changes leads to the data plane that has these wires and bypasses from the start.

mod plane;

use nfluid_control::wiring::Destination;
use nfluid_wiring::Wires;
use plane::{Plane, port};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const INSTANCES: [&str; 4] = ["a", "b", "c", "d"];
const PORTS: [&str; 10] = [
    "lan", "wan", "a.in", "a.out", "b.in", "b.out", "c.in", "c.out", "d.in", "d.out",
];

#[derive(Clone, Debug)]
enum Step {
    Connect(usize, Option<usize>),
    Begin(usize),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let any_port = 0..PORTS.len();
    prop_oneof![
        4 => (any_port.clone(), prop::option::weighted(0.9, any_port))
            .prop_map(|(from, to)| Step::Connect(from, to)),
        1 => (0..INSTANCES.len()).prop_map(Step::Begin),
        1 => (0..INSTANCES.len()).prop_map(Step::End),
    ]
}

fn plane() -> Plane {
    let mut plane = Plane::default()
        .with_uplinks(&["lan", "wan"])
        .with_instances(&INSTANCES);
    // Some instances have the doorbells of some others.
    for (from, peer) in [
        ("a.out", "b"),
        ("b.in", "a"),
        ("b.out", "c"),
        ("c.out", "d"),
    ] {
        plane.doorbells.insert(port(from), peer.to_owned());
    }
    plane
}

proptest! {
    /// Catches: a change that forgets a port on the way around a bypass, or a receiver that is woken otherwise than at first.
    #[test]
    fn every_history_leads_where_a_fresh_start_does(steps in prop::collection::vec(step(), 0..40)) {
        let (mut used, mut wires) = (plane(), Wires::new(2));
        let mut wanted: BTreeMap<&str, &str> = BTreeMap::new();
        let mut bypassed: BTreeSet<&str> = BTreeSet::new();
        for step in steps {
            let change = match step {
                Step::Connect(from, end) => {
                    let (from, end) = (PORTS[from], end.map(|end| PORTS[end]));
                    match end {
                        Some(end) => wanted.insert(from, end),
                        None => wanted.remove(from),
                    };
                    let end = end.map(|end| Destination::Port(port(end)));
                    wires.connect(&used, &port(from), end.as_ref())
                }
                Step::Begin(instance) => {
                    bypassed.insert(INSTANCES[instance]);
                    wires.begin_bypass(&used, INSTANCES[instance])
                }
                Step::End(instance) => {
                    bypassed.remove(INSTANCES[instance]);
                    wires.end_bypass(&used, INSTANCES[instance])
                }
            };
            used.bring_about(change);
        }
        let (mut fresh, mut wires) = (plane(), Wires::new(2));
        for instance in bypassed {
            let change = wires.begin_bypass(&fresh, instance);
            fresh.bring_about(change);
        }
        for (from, end) in wanted {
            let change = wires.connect(&fresh, &port(from), Some(&Destination::Port(port(end))));
            fresh.bring_about(change);
        }
        prop_assert_eq!(&used.ways, &fresh.ways);
        prop_assert_eq!(&used.woken_by_switch, &fresh.woken_by_switch);
    }

    /// Catches: a change that is refused and leaves the record between the two states.
    #[test]
    fn a_change_that_is_undone_leaves_the_record_as_it_was(
        steps in prop::collection::vec(step(), 0..20),
        last in step(),
    ) {
        let (mut used, mut wires) = (plane(), Wires::new(2));
        let make = |wires: &mut Wires, plane: &Plane, step: &Step| match *step {
            Step::Connect(from, end) => {
                let end = end.map(|end| Destination::Port(port(PORTS[end])));
                wires.connect(plane, &port(PORTS[from]), end.as_ref())
            }
            Step::Begin(instance) => wires.begin_bypass(plane, INSTANCES[instance]),
            Step::End(instance) => wires.end_bypass(plane, INSTANCES[instance]),
        };
        for step in &steps {
            let change = make(&mut wires, &used, step);
            used.bring_about(change);
        }
        let before = format!("{wires:?}");
        let refused = make(&mut wires, &used, &last).expect("all ports are there");
        wires.undo(refused);
        prop_assert_eq!(before, format!("{wires:?}"));
    }
}
