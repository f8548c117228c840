//! Any history of changes leads to the data plane that has these wires and bypasses from the start.

mod plane;

use nfluid_control::wiring::Destination;
use nfluid_wiring::{Change, Wires};
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
        ("d.out", "+wan"),
        ("a.in", "+lan"),
    ] {
        plane.doorbells.insert(port(from), peer.to_owned());
    }
    plane
}

/// Makes a change that cannot be refused.
fn make(plane: &mut Plane, wires: &mut Wires, step: &Step) {
    match step {
        Step::End(instance) => {
            let operations = wires.end_bypass(plane, INSTANCES[*instance]);
            plane.carry_out(&operations);
        }
        step => {
            let change = begin(plane, wires, step);
            plane.carry_out(&change.operations);
        }
    }
}

fn begin(plane: &Plane, wires: &mut Wires, step: &Step) -> Change {
    let change = match *step {
        Step::Connect(from, end) => {
            let end = end.map(|end| Destination::Port(port(PORTS[end])));
            wires.connect(plane, &port(PORTS[from]), end.as_ref())
        }
        Step::Begin(instance) | Step::End(instance) => {
            wires.begin_bypass(plane, INSTANCES[instance])
        }
    };
    change.expect("all ports are there")
}

/// All that the record says of wires.
fn record(wires: &Wires) -> Vec<String> {
    let senders = |name: &&str| format!("{name}: {:?}", wires.senders_of(&port(name)));
    let lines = wires.iter().map(|(port, to)| format!("{port}: {to}"));
    lines.chain(PORTS.iter().map(senders)).collect()
}

proptest! {
    /// Catches: a change that forgets a port on the way around a bypass, or a receiver that is woken otherwise than at first.
    #[test]
    fn every_history_leads_where_a_fresh_start_does(steps in prop::collection::vec(step(), 0..40)) {
        let (mut used, mut wires) = (plane(), Wires::new(2));
        let mut wanted: BTreeMap<usize, usize> = BTreeMap::new();
        let mut bypassed: BTreeSet<usize> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Connect(from, Some(end)) => drop(wanted.insert(from, end)),
                Step::Connect(from, None) => drop(wanted.remove(&from)),
                Step::Begin(instance) => drop(bypassed.insert(instance)),
                Step::End(instance) => drop(bypassed.remove(&instance)),
            }
            make(&mut used, &mut wires, &step);
        }
        let (mut fresh, mut wires) = (plane(), Wires::new(2));
        for instance in bypassed {
            make(&mut fresh, &mut wires, &Step::Begin(instance));
        }
        for (from, end) in wanted {
            make(&mut fresh, &mut wires, &Step::Connect(from, Some(end)));
        }
        prop_assert_eq!(&used.ways, &fresh.ways);
        prop_assert_eq!(&used.woken_by_switch, &fresh.woken_by_switch);
    }

    /// Catches: a change that the data plane refuses half way, and that leaves it, or the record, between the two states.
    #[test]
    fn a_change_that_is_refused_half_way_leaves_all_as_it_was(
        steps in prop::collection::vec(step(), 0..20),
        last in step(),
        carried_out in any::<prop::sample::Index>(),
    ) {
        let (mut used, mut wires) = (plane(), Wires::new(2));
        for step in &steps {
            make(&mut used, &mut wires, step);
        }
        let before = (record(&wires), used.ways.clone(), used.woken_by_switch.clone());
        let refused = begin(&used, &mut wires, &last);
        let part = carried_out.index(refused.operations.len() + 1);
        used.carry_out(&refused.operations[..part]);
        let operations = wires.undo(&used, refused);
        used.carry_out(&operations);
        let after = (record(&wires), used.ways.clone(), used.woken_by_switch.clone());
        prop_assert_eq!(before, after);
    }
}
