//! Chains that are re-wired: pause with bypass, upgrade, members, instances on demand.

mod plane;

use nfluid_control::template::ClientBy;
use nfluid_control::wiring::{Classified, Clients, Destination, SwitchPort};
use nfluid_wiring::{BypassError, Change, Operation, Wires, WiringError};
use plane::{Plane, Way, port};

/// Numbers of templates are below this.
const TEMPLATES: u32 = 4;

/// Returns true if the switch wakes the owner of this port.
fn switch_wakes(plane: &Plane, name: &str) -> bool {
    plane.woken_by_switch.contains(&plane.numbers[&port(name)])
}

/// The ports through which a frame goes that enters here, as `fw.in`: an instance sends it on by its other port.
fn path(plane: &Plane, from: &str) -> Vec<String> {
    let mut path = Vec::new();
    let mut at = port(from);
    while let Some(Way::Link(next)) = plane.ways.get(&plane.numbers[&at]) {
        let mut found = plane.numbers.iter();
        let (next, _) = found.find(|(_, number)| *number == next).expect("a port");
        path.push(next.to_string());
        let Some(owner) = next.owner() else {
            break;
        };
        let mut own = plane.numbers.keys().filter(|it| it.owner() == Some(owner));
        match own.find(|other| *other != next) {
            Some(other) if path.len() < 100 => at = other.clone(),
            _ => break,
        }
    }
    path
}

/// Connects ports one after the other; each instance was given the doorbells of its peers, as when it is started with a plan.
fn wire(plane: &mut Plane, wires: &mut Wires, table: &[(&str, &str)]) {
    for (from, end) in table {
        let (from, end) = (port(from), port(end));
        if from.owner().is_some() {
            plane.doorbells.insert(from.clone(), end.doorbell());
        }
        let change = wires.connect(plane, &from, Some(&Destination::Port(end)));
        bring_about(plane, change);
    }
}

fn to(name: &str) -> Destination {
    Destination::Port(port(name))
}

/// Carries out a change that cannot be refused.
fn bring_about(plane: &mut Plane, change: Result<Change, WiringError>) {
    let change = change.expect("all ports are there");
    plane.carry_out(&change.operations);
}

/// The chain lan - a - b - wan.
fn chain() -> (Plane, Wires) {
    let mut plane = Plane::default()
        .with_uplinks(&["lan", "wan"])
        .with_instances(&["a", "b", "c"]);
    plane.switches.insert("office".to_owned(), 7);
    let mut wires = Wires::new(TEMPLATES);
    let table = [
        ("lan", "a.in"),
        ("a.out", "b.in"),
        ("b.out", "wan"),
        ("wan", "b.out"),
        ("b.in", "a.out"),
        ("a.in", "lan"),
    ];
    wire(&mut plane, &mut wires, &table);
    (plane, wires)
}

fn begin(plane: &mut Plane, wires: &mut Wires, instance: &str) {
    let change = wires.begin_bypass(plane, instance);
    bring_about(plane, change);
}

fn end(plane: &mut Plane, wires: &mut Wires, instance: &str) {
    let operations = wires.end_bypass(plane, instance);
    plane.carry_out(&operations);
}

/// Catches: a pause with bypass that leads frames to the paused instance, to the wrong side, or past others; an end of a pause
/// that leaves frames on the way around.
#[test]
fn frames_are_led_past_instances_and_to_them_again() {
    let (mut plane, mut wires) = chain();
    let all = ["a.in", "b.in", "wan"];
    let all_back = ["b.out", "a.out", "lan"];
    // Begins and ends of bypasses, and the ways forth and back after each.
    type Step<'a> = (&'a str, bool, &'a [&'a str], &'a [&'a str]);
    let table: &[Step<'_>] = &[
        ("a", true, &["b.in", "wan"], &["b.out", "lan"]),
        ("b", true, &["wan"], &["lan"]),
        ("a", false, &["a.in", "wan"], &["a.out", "lan"]),
        ("b", false, &all, &all_back),
        ("b", true, &["a.in", "wan"], &["a.out", "lan"]),
        ("a", true, &["wan"], &["lan"]),
        ("b", false, &["b.in", "wan"], &["b.out", "lan"]),
        ("a", false, &all, &all_back),
        // Twice is as once.
        ("a", false, &all, &all_back),
    ];
    assert_eq!(path(&plane, "lan"), all);
    for (instance, begins, forth, back) in table {
        if *begins {
            begin(&mut plane, &mut wires, instance);
        } else {
            end(&mut plane, &mut wires, instance);
        }
        assert_eq!(path(&plane, "lan"), *forth, "{instance} {begins}");
        assert_eq!(path(&plane, "wan"), *back, "{instance} {begins}");
    }
}

/// Catches: a receiver that is never woken, as its frames come from a sender that has not its doorbell.
#[test]
fn a_receiver_is_woken_by_whoever_sends_there() {
    let (mut plane, mut wires) = chain();
    // Uplinks have nobody's doorbell; `a` and `b` have each other's, and those of the uplinks.
    assert!(switch_wakes(&plane, "a.in") && switch_wakes(&plane, "b.out"));
    assert!(!switch_wakes(&plane, "b.in") && !switch_wakes(&plane, "a.out"));
    assert!(!switch_wakes(&plane, "lan") && !switch_wakes(&plane, "wan"));
    begin(&mut plane, &mut wires, "a");
    assert!(
        switch_wakes(&plane, "b.in"),
        "from lan, which has no doorbell"
    );
    assert!(switch_wakes(&plane, "lan"), "from b, which has that of a");
    end(&mut plane, &mut wires, "a");
    assert!(!switch_wakes(&plane, "b.in"), "a rings itself again");
    assert!(!switch_wakes(&plane, "lan"), "as for the uplink");

    // A successor of `a` that was started without the doorbell of `b`.
    plane.doorbells.remove(&port("a.out"));
    let operations = wires.doorbells_of_peers(&plane, "a");
    plane.carry_out(&operations);
    assert!(switch_wakes(&plane, "b.in"));
    plane.doorbells.insert(port("a.out"), "b".to_owned());
    let operations = wires.doorbells_of_peers(&plane, "a");
    plane.carry_out(&operations);
    assert!(!switch_wakes(&plane, "b.in"));

    // Each of several members has a doorbell of its own.
    plane.members.insert("b".to_owned());
    let operations = wires.own_doorbells(&plane, "b");
    plane.carry_out(&operations);
    assert!(switch_wakes(&plane, "b.in") && switch_wakes(&plane, "b.out"));
    plane.members.clear();
    let operations = wires.own_doorbells(&plane, "b");
    plane.carry_out(&operations);
    assert!(!switch_wakes(&plane, "b.in") && switch_wakes(&plane, "b.out"));
}

#[test]
fn a_second_sender_without_the_doorbell_has_the_switch_ring() {
    let (mut plane, mut wires) = chain();
    let change = wires.connect(&plane, &port("c.out"), Some(&to("b.in")));
    bring_about(&mut plane, change);
    assert!(switch_wakes(&plane, "b.in"));
    let senders: Vec<String> = wires
        .senders_of(&port("b.in"))
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    assert_eq!(senders, ["a.out", "c.out"]);
    let change = wires.connect(&plane, &port("c.out"), None);
    bring_about(&mut plane, change);
    assert!(!switch_wakes(&plane, "b.in"));
    assert!(path(&plane, "c.out").is_empty());
}

#[test]
fn wires_that_change_during_a_bypass_are_led_past_as_well() {
    let (mut plane, mut wires) = chain();
    begin(&mut plane, &mut wires, "a");
    wire(
        &mut plane,
        &mut wires,
        &[("a.out", "c.in"), ("c.in", "a.out"), ("c.out", "wan")],
    );
    assert_eq!(path(&plane, "lan"), ["c.in", "wan"]);
    end(&mut plane, &mut wires, "a");
    assert_eq!(path(&plane, "lan"), ["a.in", "c.in", "wan"]);
}

#[test]
fn a_bypass_may_be_there_before_the_wires() {
    let mut plane = Plane::default()
        .with_uplinks(&["lan", "wan"])
        .with_instances(&["a"]);
    let mut wires = Wires::new(TEMPLATES);
    begin(&mut plane, &mut wires, "a");
    let table = [
        ("lan", "a.in"),
        ("a.out", "wan"),
        ("wan", "a.out"),
        ("a.in", "lan"),
    ];
    wire(&mut plane, &mut wires, &table);
    assert_eq!(path(&plane, "lan"), ["wan"]);
    assert_eq!(path(&plane, "wan"), ["lan"]);
}

/// Catches: a ring of bypassed instances in which the planner goes round for ever.
#[test]
fn a_ring_of_bypassed_instances_leads_nowhere() {
    let mut plane = Plane::default()
        .with_uplinks(&["lan"])
        .with_instances(&["a", "b"]);
    let mut wires = Wires::new(TEMPLATES);
    wire(
        &mut plane,
        &mut wires,
        &[("lan", "a.in"), ("a.out", "b.in"), ("b.out", "a.in")],
    );
    begin(&mut plane, &mut wires, "a");
    begin(&mut plane, &mut wires, "b");
    assert!(path(&plane, "lan").is_empty());
    end(&mut plane, &mut wires, "a");
    assert_eq!(path(&plane, "lan")[0], "a.in");
}

#[test]
fn frames_are_led_past_an_instance_with_one_way_through_it_only() {
    let (mut plane, mut wires) = chain();
    assert_eq!(wires.check_bypass(&plane, "a"), Ok(()));
    let unknown = wires.check_bypass(&plane, "nobody");
    assert_eq!(unknown, Err(BypassError::NoInstance("nobody".to_owned())));
    plane.add(port("b.third"));
    let three = wires.check_bypass(&plane, "b");
    assert!(matches!(three, Err(BypassError::Ports { ports: 3, .. })));
    let unconnected = wires.check_bypass(&plane, "c");
    assert!(matches!(unconnected, Err(BypassError::NoSinglePort { .. })));
    let place = Destination::Switch(SwitchPort {
        switch: "office".to_owned(),
        vlan: None,
        learn: false,
    });
    let change = wires.connect(&plane, &port("a.in"), Some(&place));
    bring_about(&mut plane, change);
    let on_switch = wires.check_bypass(&plane, "a");
    assert!(matches!(on_switch, Err(BypassError::OnSwitch { .. })));
}

#[test]
fn a_port_on_a_switch_has_its_address_there() {
    let (mut plane, mut wires) = chain();
    let place = |vlan| {
        Destination::Switch(SwitchPort {
            switch: "office".to_owned(),
            vlan,
            learn: true,
        })
    };
    let change = wires.connect(&plane, &port("c.in"), Some(&place(None)));
    bring_about(&mut plane, change);
    let joined = plane.ways.values().find_map(|way| match way {
        Way::Join(join) => Some(join.clone()),
        _ => None,
    });
    let joined = joined.expect("it is on the switch");
    assert!(joined.address.is_some() && joined.learn && joined.switch == 7);
    let members: Vec<String> = wires.on_switch("office").map(ToString::to_string).collect();
    assert_eq!(members, ["c.in"]);
    let refused = wires.connect(&plane, &port("c.in"), Some(&place(Some(5))));
    assert_eq!(
        refused.expect_err("there are no access VLANs"),
        WiringError::AccessVlan(port("c.in"))
    );
    assert_eq!(wires.get(&port("c.in")), Some(&place(None)), "as before");
}

/// The wire of an uplink to the clients of a template, or to a port for all other frames.
fn classifier(template: &str, by: ClientBy) -> Destination {
    let entry = |to, clients| Classified {
        chain: template.to_owned(),
        rules: Vec::new(),
        to,
        clients,
    };
    let clients = Clients {
        template: template.to_owned(),
        by,
        back: false,
    };
    Destination::Classify(vec![
        entry(None, Some(clients)),
        entry(Some(port("a.in")), None),
    ])
}

/// Catches: a template that takes over the number, and so the waiting frames, of another.
#[test]
fn templates_have_numbers_that_are_never_used_again() {
    let (mut plane, mut wires) = chain();
    let number = |plane: &mut Plane, wires: &mut Wires, name: &str, by| {
        let change = wires.connect(plane, &port("lan"), Some(&classifier(name, by)));
        bring_about(plane, change);
        let entries = &plane.steered["lan"];
        entries[0].clients.map(|clients| clients.template)
    };
    let by_address = ClientBy::Address;
    assert_eq!(number(&mut plane, &mut wires, "x", by_address), Some(1));
    assert_eq!(number(&mut plane, &mut wires, "y", by_address), Some(2));
    assert_eq!(number(&mut plane, &mut wires, "x", by_address), Some(1));
    assert_eq!(
        number(&mut plane, &mut wires, "x", ClientBy::Vlan),
        Some(3),
        "other clients"
    );
    let named = wires.templates().template_of(3);
    assert_eq!(named, Some(("x".to_owned(), ClientBy::Vlan)));
    assert_eq!(number(&mut plane, &mut wires, "z", by_address), None);
}

/// Catches: an uplink's classifier, or its NIC, that goes on to send frames to an instance that is paused.
#[test]
fn classifiers_lead_past_instances_too() {
    let (mut plane, mut wires) = chain();
    let change = wires.connect(
        &plane,
        &port("lan"),
        Some(&classifier("x", ClientBy::Address)),
    );
    bring_about(&mut plane, change);
    let target = |plane: &Plane| plane.steered["lan"][1].to;
    let before = target(&plane);
    begin(&mut plane, &mut wires, "a");
    assert_ne!(target(&plane), before);
    let classified = plane.ways.values().any(|way| match way {
        Way::Classify(entries) => entries[1].to == target(&plane),
        _ => false,
    });
    assert!(classified, "the switch and the NIC agree");
    end(&mut plane, &mut wires, "a");
    assert_eq!(target(&plane), before);
}

/// Catches: a record that says what the data plane has refused.
#[test]
fn a_change_that_fails_leaves_no_trace() {
    let (mut plane, mut wires) = chain();
    let refused = wires.connect(&plane, &port("lan"), Some(&to("nobody.in")));
    assert_eq!(
        refused.expect_err("there is no such port"),
        WiringError::NoPort(port("nobody.in"))
    );
    assert_eq!(wires.get(&port("lan")), Some(&to("a.in")));
    // The switch refuses: nothing was carried out.
    let change = wires.begin_bypass(&plane, "a").expect("it can be");
    assert!(!change.operations.is_empty());
    let operations = wires.undo(&plane, change);
    plane.carry_out(&operations);
    assert_eq!(path(&plane, "lan"), ["a.in", "b.in", "wan"]);
    let change = wires.connect(&plane, &port("a.out"), Some(&to("c.in")));
    let change = change.expect("it can be");
    // The switch has carried out a part.
    plane.carry_out(&change.operations[..1]);
    assert_eq!(path(&plane, "lan")[1], "c.in");
    let operations = wires.undo(&plane, change);
    plane.carry_out(&operations);
    assert_eq!(path(&plane, "lan"), ["a.in", "b.in", "wan"]);
    assert_eq!(wires.get(&port("a.out")), Some(&to("b.in")));
    let senders = wires.senders_of(&port("b.in")).map(|senders| senders.len());
    assert_eq!(senders, Some(1));
    assert!(wires.senders_of(&port("c.in")).is_none());
    // Connecting once more gives the orders that are in force already.
    let change = wires.connect(&plane, &port("lan"), Some(&to("a.in")));
    bring_about(&mut plane, change);
    assert_eq!(path(&plane, "lan"), ["a.in", "b.in", "wan"]);
}

#[test]
fn peers_of_a_plan_are_known_before_it_is_carried_out() {
    let (plane, mut wires) = chain();
    let peer = |wires: &Wires| wires.link_peer(&port("a.out"));
    assert_eq!(peer(&wires).as_deref(), Some("b"));
    wires.plan(&port("a.out"), &to("c.in"));
    assert_eq!(peer(&wires).as_deref(), Some("c"));
    wires.end_plan();
    assert_eq!(peer(&wires).as_deref(), Some("b"));
    assert_eq!(wires.link_peer(&port("b.out")).as_deref(), Some("+wan"));
    let none = wires.own_doorbells(&plane, "nobody");
    assert_eq!(none, Vec::<Operation>::new());
}

/// Catches: a firewall that frames are led past for good, because its pause could not be ended in full; one that inherits a
/// bypass from another of its name.
#[test]
fn an_instance_that_goes_on_is_never_bypassed() {
    let (mut plane, mut wires) = chain();
    begin(&mut plane, &mut wires, "a");
    // The switch refuses all of it.
    let _refused = wires.end_bypass(&plane, "a");
    let change = wires.connect(&plane, &port("lan"), Some(&to("a.in")));
    bring_about(&mut plane, change);
    assert_eq!(path(&plane, "lan")[0], "a.in", "the next change mends it");

    // A sender that is gone holds up no other sender.
    begin(&mut plane, &mut wires, "a");
    let removed = plane.numbers.remove(&port("b.in"));
    end(&mut plane, &mut wires, "a");
    plane
        .numbers
        .extend(removed.map(|number| (port("b.in"), number)));
    assert_eq!(path(&plane, "lan")[0], "a.in");

    begin(&mut plane, &mut wires, "a");
    wires.forget_bypass("a");
    let change = wires.connect(&plane, &port("lan"), Some(&to("a.in")));
    bring_about(&mut plane, change);
    assert_eq!(path(&plane, "lan")[0], "a.in");
}

/// Catches: a NIC that is asked for the same rules again when it has refused them.
#[test]
fn a_nic_that_refuses_keeps_its_former_rules() {
    let (mut plane, mut wires) = chain();
    let clients = classifier("x", ClientBy::Address);
    let change = wires.connect(&plane, &port("lan"), Some(&clients));
    bring_about(&mut plane, change);
    let told = plane.steered["lan"].clone();
    let change = wires.begin_bypass(&plane, "a").expect("it can be");
    let steer = change.operations.iter().find_map(|one| match one {
        Operation::Steer {
            entries, before, ..
        } => Some((entries, before)),
        _ => None,
    });
    let (entries, before) = steer.expect("lan is classified by its NIC");
    assert_eq!(*before, told);
    assert_ne!(*entries, told);
    let operations = wires.undo(&plane, change);
    plane.carry_out(&operations);
    assert_eq!(plane.steered["lan"], told);
}
