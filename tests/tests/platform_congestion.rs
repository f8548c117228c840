//! Cost of packets, congestion signals to senders, and refusal by chains: the real daemon, flooded.

use nfluid_tests::harness::measure::one_holds;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::program::program;
use serde_json::Value;
use std::thread;
use std::time::Duration;

/// ECN-capable transport (RFC 3168): such packets can be marked.
const ECT0: u8 = 2;
/// Two instances side by side on a core, each between two hosts; `RATIO` times dearer, the second.
const BESIDE: &str = "
version: 1
CONGESTION
uplinks:
  left: { interface: left, netns: EDGE }
  right: { interface: right, netns: EDGE }
  west: { interface: west, netns: EDGE }
  east: { interface: east, netns: EDGE }
instances:
  cheap: { nf: signature, cpus: [0], config: { rounds: 500 } }
  dear: { nf: signature, cpus: [0], config: { rounds: 2000 } }
chains:
  x: { from: left, to: right, via: [cheap] }
  y: { from: west, to: east, via: [dear] }
";
/// Thresholds that the rings of two instances cannot pass: p depends on what waits, and stays small.
const THRESHOLDS: &str = "congestion: { law: red4, min: 8, max: 4096, probability: 5% }";
/// A cheap instance that hands on to a dear one on the same core.
const IN_TURN: &str = "
version: 1
CONGESTION
uplinks:
  left: { interface: left, netns: EDGE }
  right: { interface: right, netns: EDGE }
instances:
  first: { nf: bridge, cpus: [0] }
  second: { nf: signature, cpus: [0], config: { rounds: 5000 } }
chains:
  x: { from: left, to: right, via: [first, second] }
";

/// An instance that lies in its ring, flooded, and an honest neighbour on its core.
const LIAR: &str = "
version: 1
congestion: on
uplinks:
  left: { interface: left, netns: EDGE }
  right: { interface: right, netns: EDGE }
  west: { interface: west, netns: EDGE }
  east: { interface: east, netns: EDGE }
instances:
  liar: { program: PROGRAM, args: ['lie:WAY'], ports: [in, out], cpus: [0] }
  honest: { nf: signature, cpus: [0], config: { rounds: 500 } }
chains:
  x: { from: left, to: right, via: [liar] }
  y: { from: west, to: east, via: [honest] }
";

fn stats(platform: &Platform) -> Value {
    platform.ask(&["stats"])
}

fn named(figures: &Value, kind: &str, name: &str) -> Value {
    let found = list(&figures[kind]).find(|one| one["name"] == name);
    found.cloned().unwrap_or(Value::Null)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn four_hosts(test: &str) -> Option<Platform> {
    let mut platform = Platform::new(test)?;
    for (host, address) in [
        ("left", "10.1.0.1/24"),
        ("right", "10.1.0.2/24"),
        ("west", "10.2.0.1/24"),
        ("east", "10.2.0.2/24"),
    ] {
        platform.host(host, address);
    }
    Some(platform)
}

fn with(deployment: &str, congestion: &str) -> String {
    deployment.replace("CONGESTION", congestion)
}

// promise: 7.35
#[test]
fn what_a_packet_costs_is_measured_where_the_nf_has_no_say() {
    let Some(platform) = four_hosts("what_a_packet_costs_is_measured_where_the_nf_has_no_say")
    else {
        return;
    };
    platform.apply(&with(BESIDE, ""));
    let _floods = [
        platform.flood("left", "10.1.0.2", 0),
        platform.flood("west", "10.2.0.2", 0),
    ];
    let cost = |name: &str| number(&named(&stats(&platform), "instances", name)["cost_ns"]);
    eventually(
        "both costs are known, the dear one's is several times the other's",
        || {
            let ratio = cost("dear") / cost("cheap");
            (2.0..8.0).contains(&ratio)
        },
    );
    let now = stats(&platform);
    let (port, instance) = (
        named(&now, "ports", "dear.in"),
        named(&now, "instances", "dear"),
    );
    let (of_port, of_instance) = (number(&port["cpu_ns"]), number(&instance["cpu_ns"]));
    assert!(of_port > 0.0 && of_port <= of_instance, "{port} {instance}");
    assert!(
        now["congestion"]["cpu_ns"]
            .as_u64()
            .is_some_and(|ns| ns > 0)
    );
    assert_eq!(
        number(&port["counters"]["marked_packets"]),
        0.0,
        "nobody asked for marks"
    );
    assert_eq!(port["signal"], Value::Null);
}

// promise: 7.36
#[test]
fn dear_frames_are_marked_by_the_square_of_their_cost_until_marks_are_off() {
    let test = "dear_frames_are_marked_by_the_square_of_their_cost_until_marks_are_off";
    let Some(platform) = four_hosts(test) else {
        return;
    };
    platform.apply(&with(BESIDE, THRESHOLDS));
    let _floods = [
        platform.flood("left", "10.1.0.2", ECT0),
        platform.flood("west", "10.2.0.2", ECT0),
    ];
    let marked =
        |name: &str| number(&named(&stats(&platform), "ports", name)["counters"]["marked_packets"]);
    let figures = |now: &Value, name: &str| {
        let counters = &named(now, "ports", name)["counters"];
        ["marked_packets", "rx_packets"].map(|key| number(&counters[key]))
    };
    one_holds(
        "how much more often the dear one's are marked, and the square of how much dearer they are",
        || {
            let before = stats(&platform);
            let since = |now: &Value, name: &str| {
                let [marked, received] = figures(now, name);
                let [marked_before, received_before] = figures(&before, name);
                [marked - marked_before, received - received_before]
            };
            eventually("frames of both are marked", || {
                let now = stats(&platform);
                since(&now, "cheap.in")[0] > 20.0 && since(&now, "dear.in")[0] > 200.0
            });
            let now = stats(&platform);
            let part = |name: &str| {
                let [marked, received] = since(&now, name);
                marked / received
            };
            let cost = |name: &str| number(&named(&now, "instances", name)["cost_ns"]);
            let dearer = cost("dear") / cost("cheap");
            (part("dear.in") / part("cheap.in"), dearer.powi(2))
        },
        |(found, wanted)| (wanted / 4.0..wanted * 4.0).contains(found),
    );
    let now = stats(&platform);
    let probability = list(&now["congestion"]["cores"]).find(|core| core["core"] == 0);
    assert!(probability.is_some(), "{now}");

    assert_eq!(platform.apply(&with(BESIDE, "")).len(), 1, "one change");
    eventually("nothing is said of a port any more", || {
        let now = stats(&platform);
        list(&now["ports"]).all(|port| port["signal"] == Value::Null)
    });
    let before = marked("dear.in");
    let received =
        || number(&named(&stats(&platform), "ports", "dear.in")["counters"]["rx_packets"]);
    let start = received();
    eventually("frames come as before", || received() > start + 500.0);
    assert_eq!(marked("dear.in"), before, "marks go on");
}

// promise: 7.37
#[test]
fn a_chain_refuses_at_its_entry_what_has_no_room_further_on() {
    let Some(platform) = four_hosts("a_chain_refuses_at_its_entry_what_has_no_room_further_on")
    else {
        return;
    };
    platform.apply(&with(IN_TURN, "congestion: { law: off }"));
    let flood = platform.flood("left", "10.1.0.2", 0);
    let refused = |now: &Value| number(&named(now, "chains", "x")["forward"]["refused_packets"]);
    eventually("frames are refused at the entry", || {
        refused(&stats(&platform)) > 1000.0
    });
    eventually("the bottleneck is told", || {
        named(&stats(&platform), "chains", "x")["forward"]["bottleneck"] == "second"
    });
    let drops =
        |now: &Value| named(now, "ports", "first.in")["counters"]["drops"]["refused"].clone();
    assert!(number(&drops(&stats(&platform))) > 0.0);
    platform.apply(&with(IN_TURN, ""));
    eventually("nothing is refused any more", || {
        let before = refused(&stats(&platform));
        thread::sleep(Duration::from_millis(300));
        refused(&stats(&platform)) <= before
    });
    drop(flood);
    eventually("a ping crosses", || platform.pings("left", "10.1.0.2"));
}

// promise: 7.38
#[test]
fn congestion_that_cannot_be_is_refused_and_nothing_changes() {
    let Some(platform) = four_hosts("congestion_that_cannot_be_is_refused_and_nothing_changes")
    else {
        return;
    };
    platform.apply(&with(BESIDE, THRESHOLDS));
    let before = platform.ask(&["get", "deployment"]);
    for (wrong, said) in [
        (
            "congestion: { law: red4, min: 300, max: 100 }",
            "lower threshold",
        ),
        ("congestion: { cores: { 4711: on } }", "no CPU 4711"),
        ("congestion: { target: 3us }", "cannot be aimed at"),
        ("congestion: { target: 3h }", "length of time"),
        ("congestion: red5", "no law"),
    ] {
        let outcome = platform.try_apply(&with(BESIDE, wrong));
        assert!(!outcome.succeeded(), "{wrong}");
        let told = outcome.stdout + &outcome.stderr;
        assert!(told.contains(said), "{wrong}: {told}");
        assert_eq!(platform.ask(&["get", "deployment"]), before, "{wrong}");
    }
}

// promise: 7.35
#[test]
fn an_nf_that_lies_in_its_ring_changes_neither_its_cost_nor_its_neighbours_signals() {
    let test = "an_nf_that_lies_in_its_ring_changes_neither_its_cost_nor_its_neighbours_signals";
    let Some(mut platform) = four_hosts(test) else {
        return;
    };
    let liar = program("nfluid-test-hostile");
    let liar = LIAR.replace("PROGRAM", liar.to_str().expect("a path in text"));
    for way in ["honest", "ahead", "back", "flipping", "random"] {
        platform.apply(&liar.replace("WAY", way));
        // Its hosts do not find each other through it: it forwards nothing.
        for host in ["left", "right"] {
            let other = if host == "left" {
                "10.1.0.2"
            } else {
                "10.1.0.1"
            };
            let known = format!("ip neigh replace {other} lladdr 02:00:00:00:00:01 dev eth0");
            let outcome = platform.on(host, &known);
            assert!(outcome.succeeded(), "{outcome:?}");
        }
        let flood = platform.flood("left", "10.1.0.2", ECT0);
        eventually(&format!("{way}: its cost is what the kernel says"), || {
            costs_what_the_kernel_says(&platform, "liar", way != "honest")
        });
        let before = stats(&platform);
        // Hardly ever more than one at a time: a neighbour that is not behind.
        let pings = platform.on("west", "ping -n -q -c 20 -i 0.2 -W 5 10.2.0.2");
        let after = stats(&platform);
        let received = pings.stdout.split(", ").find_map(|part| {
            let (count, _) = part.split_once(" received")?;
            count.parse::<u32>().ok()
        });
        assert!(received >= Some(10), "{way}: {pings:?}");
        for core in list(&after["congestion"]["cores"]) {
            let p = number(&core["probability"]);
            assert!((0.0..=1.0).contains(&p), "{way}: {core}");
        }
        let used = named(&after, "ports", "liar.in");
        assert!(
            number(&used["rx_ring_used"]) <= number(&used["rx_ring_size"]),
            "{way}: {used}"
        );
        let spent = |of: fn(&Value) -> &Value| number(of(&after)) - number(of(&before));
        let thread = spent(|now| &now["congestion"]["cpu_ns"]);
        let elapsed = spent(|now| &now["time_ns"]);
        assert!(thread < elapsed / 4.0, "{way}: {thread} of {elapsed} ns");
        assert!(platform.is_up(), "{way}");
        drop(flood);
    }
}

/// Returns true if the recent cost of an instance is its CPU time divided by the frames that the switch delivered to
/// it. With `lies`, an instance may have lied until no frame fits into its ring: then it gets none, and its cost does
/// not change.
fn costs_what_the_kernel_says(platform: &Platform, name: &str, lies: bool) -> bool {
    let read = || {
        let now = stats(platform);
        let (instance, port) = (
            named(&now, "instances", name),
            named(&now, "ports", &format!("{name}.in")),
        );
        let frames = number(&port["counters"]["rx_packets"]);
        (
            number(&instance["cpu_ns"]),
            frames,
            number(&instance["cost_ns"]),
        )
    };
    let before = read();
    // Longer where frames are few.
    for _ in 0..10 {
        thread::sleep(Duration::from_secs(2));
        let after = read();
        let frames = after.1 - before.1;
        let by_kernel = (after.0 - before.0) / frames;
        if lies && frames == 0.0 {
            return after.1 > 0.0 && after.2 == before.2;
        }
        // More than its rings hold: what waits does not count.
        if frames > 5_000.0 {
            return (by_kernel / 1.5..by_kernel * 1.5).contains(&after.2);
        }
    }
    false
}
