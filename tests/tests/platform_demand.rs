//! Instances on demand: who comes gets one, with its first frame; who is silent loses it; a flood takes nothing from
//! those who are there; and whatever happens to the daemon, nothing is left.

#[path = "uplink_fixture/mod.rs"]
mod uplink_fixture;

use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::within;
use serde_json::Value;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use uplink_fixture::Raw;

const SERVER: &str = "192.0.2.1";

/// The example's deployment, with interfaces in a namespace instead of the host's, and other limits.
fn example(limits: &str) -> String {
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/on-demand/deployment.yaml");
    let text = std::fs::read_to_string(example).expect("the example is there");
    let own = "most: 500\n    per_second: 200\n    idle: 2s";
    assert!(text.contains(own));
    let text = text.replace(own, limits);
    ["access", "core"].iter().fold(text, |text, name| {
        let own = format!("interface: {name}0 ");
        assert!(text.contains(&own), "{own}");
        text.replace(&own, &format!("interface: {name}, netns: EDGE "))
    })
}

const SHORT: &str = "most: 500\n    per_second: 200\n    idle: 300ms";

/// A host with some subscribers' addresses, and a server.
fn subscribers(test: &str) -> Option<Platform> {
    let mut platform = Platform::new(test)?;
    platform.host("access", "10.2.0.2/32");
    platform.host("core", "192.0.2.1/32");
    for last in 3..8 {
        on(
            &platform,
            "access",
            &format!("ip address add 10.2.0.{last}/32 dev eth0"),
        );
    }
    let mac = |host: &str| on(&platform, host, "cat /sys/class/net/eth0/address");
    let (access, core) = (mac("access"), mac("core"));
    for (host, gateway, other) in [("access", SERVER, core), ("core", "10.2.0.1", access)] {
        on(
            &platform,
            host,
            &format!("ip route add {gateway}/32 dev eth0"),
        );
        on(
            &platform,
            host,
            &format!("ip neighbour replace {gateway} lladdr {other} dev eth0 nud permanent"),
        );
    }
    on(&platform, "core", "ip route add 10.2.0.0/16 via 10.2.0.1");
    Some(platform)
}

fn on(platform: &Platform, host: &str, line: &str) -> String {
    let outcome = platform.on(host, line);
    assert!(outcome.succeeded(), "{host}: {line}: {outcome:?}");
    outcome.stdout.trim().to_owned()
}

/// Returns true if a single echo request of a subscriber is answered, however long that takes.
fn first_ping(platform: &Platform, subscriber: &str) -> bool {
    let patience = PATIENCE.as_secs();
    let line = format!("ping -n -c 1 -W {patience} -I {subscriber} {SERVER}");
    platform.on("access", &line).succeeded()
}

fn template(platform: &Platform) -> Value {
    platform.ask(&["get", "templates"])[0].clone()
}

fn on_demand(platform: &Platform) -> Vec<String> {
    let names = platform.pids().into_keys();
    names.filter(|name| name.contains('@')).collect()
}

/// Why the uplink has dropped frames of clients.
fn dropped(platform: &Platform) -> u64 {
    let stats = platform.ask(&["stats"]);
    let port = list(&stats["ports"]).find(|port| port["name"] == "access");
    let drops = port.map(|port| port["counters"]["drops"]["client"].as_u64());
    drops.flatten().unwrap_or(0)
}

// promise: 5.30
#[test]
fn a_first_ping_is_answered_by_way_of_an_instance_that_is_gone_when_it_is_silent() {
    let test = "a_first_ping_is_answered_by_way_of_an_instance_that_is_gone_when_it_is_silent";
    let Some(platform) = subscribers(test) else {
        return;
    };
    platform.apply(&example(SHORT));
    assert_eq!(template(&platform)["clients"], 0);
    for round in 1..=2 {
        for last in 2..6 {
            let subscriber = format!("10.2.0.{last}");
            assert!(
                first_ping(&platform, &subscriber),
                "{subscriber}, round {round}"
            );
        }
        assert_eq!(template(&platform)["made"], 4 * round);
        eventually("the silent are gone", || {
            on_demand(&platform).is_empty() && template(&platform)["ended"] == 4 * round
        });
    }
    // An active subscriber keeps its instance. Changed limits apply to new subscribers, another configuration applies
    // to all.
    assert!(
        [1, 4, 16, 64]
            .into_iter()
            .any(|seconds| keeps_its_instance(&platform, seconds)),
        "never did it speak often enough"
    );
    assert_eq!(dropped(&platform), 0);
    let other = example(SHORT).replace("80,443", "80");
    platform.apply(&other);
    assert_eq!(on_demand(&platform), [""; 0]);
    assert!(first_ping(&platform, "10.2.0.2"));
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    eventually("nothing is left", || {
        platform.instance_processes().is_empty()
    });
}

/// The same as the example, with a chain of a firewall and a bridge for each subscriber.
const CHAIN: &str = "
version: 1
pool:
  small: { flavor: small, size: 4 }
uplinks:
  access: { interface: access, netns: EDGE }
  core: { interface: core, netns: EDGE }
chains:
  subscriber:
    activate: on-demand
    from: access
    to: core
    match: [{ src: 10.2.0.0/16 }]
    idle: 300ms
    via:
      - instance:
          nf: firewall
          flavor: small
          config: { rules: 'allow icmp from ${client} to any keep-state', default: deny }
      - instance: { nf: bridge, flavor: small, ports: [a, b] }
        in: a
        out: b
";

// promise: 5.30
#[test]
fn a_first_ping_is_answered_by_way_of_a_chain_of_ones_own() {
    let test = "a_first_ping_is_answered_by_way_of_a_chain_of_ones_own";
    let Some(platform) = subscribers(test) else {
        return;
    };
    platform.apply(CHAIN);
    assert!(first_ping(&platform, "10.2.0.2"));
    // Both instances are made before the frame continues, and its answer came back through both.
    let made = template(&platform);
    assert_eq!(made["made"], 1, "{made}");
    eventually("the silent one's are gone", || {
        on_demand(&platform).is_empty() && template(&platform)["ended"] == 1
    });
    // A change also ends them, and so does a user's request.
    platform.apply(&CHAIN.replace("300ms", "60s"));
    assert!(first_ping(&platform, "10.2.0.3"));
    let names = ["subscriber@10-2-0-3", "subscriber@10-2-0-3@2"];
    assert_eq!(on_demand(&platform), names);
    platform.apply(
        &CHAIN
            .replace("300ms", "60s")
            .replace("nf: bridge", "nf: counter"),
    );
    assert_eq!(on_demand(&platform), [""; 0]);
    assert_eq!(dropped(&platform), 0);
}

/// A subscriber speaks for longer than one may be silent for, and has the same instance all the time. `false`: on this
/// machine it was silent for that long, and nothing can be said.
fn keeps_its_instance(platform: &Platform, idle_s: u64) -> bool {
    let idle = Duration::from_secs(idle_s);
    let own = || platform.pids().get("subscriber@10-2-0-2").copied();
    platform.apply(&example(&SHORT.replace("300ms", &format!("{idle_s}s"))));
    let start = Instant::now();
    let mut last = Instant::now();
    assert!(first_ping(platform, "10.2.0.2"));
    let mut instances = vec![own()];
    let mut silence = Duration::ZERO;
    while start.elapsed() < idle + Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(50));
        let now = Instant::now();
        assert!(first_ping(platform, "10.2.0.2"));
        silence = silence.max(last.elapsed());
        last = now;
    }
    instances.push(own());
    platform.apply(&example("most: 400\n    per_second: 200\n    idle: 10s"));
    instances.push(own());
    if silence.max(last.elapsed()) >= idle {
        return false;
    }
    assert!(instances[0].is_some(), "{:?}", platform.pids());
    assert_eq!(instances, [instances[0]; 3]);
    true
}

// promise: 5.31
#[test]
fn no_echo_is_lost_while_instances_come_and_go() {
    const ROUNDS: u32 = 10;
    let Some(platform) = subscribers("no_echo_is_lost_while_instances_come_and_go") else {
        return;
    };
    platform.apply(&example("most: 500\n    per_second: 200\n    idle: 100ms"));
    // Each pause is about as long as it takes until it is found out that nobody speaks: which of them are
    // too long depends on the machine, hence as many rounds as it takes to have seen a few instances go.
    for _ in 0..ROUNDS {
        for pause_ms in (90..250).step_by(8) {
            assert!(first_ping(&platform, "10.2.0.2"), "after {pause_ms} ms");
            thread::sleep(Duration::from_millis(pause_ms));
        }
        if template(&platform)["ended"].as_u64() > Some(2) {
            break;
        }
    }
    let status = template(&platform);
    assert!(status["ended"].as_u64() > Some(2), "{status}");
    assert_eq!(status["refused"], serde_json::json!({}));
}

/// A datagram of an invented subscriber.
fn spoofed(number: u16) -> Vec<u8> {
    let mut frame = vec![2, 0xee, 0, 0, 0, 2, 2, 0xee, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 10, 2]);
    frame.extend((number | 0x1000).to_be_bytes());
    frame.extend([192, 0, 2, 1, 3, 232, 0, 53]);
    frame.resize(60, 0);
    frame
}

// promise: 5.32
#[test]
fn a_flood_of_invented_clients_is_bounded_and_takes_nothing_from_those_who_are_there() {
    let test = "a_flood_of_invented_clients_is_bounded_and_takes_nothing_from_those_who_are_there";
    let Some(platform) = subscribers(test) else {
        return;
    };
    platform.apply(&example("most: 6\n    per_second: 3\n    idle: 60s"));
    assert!(first_ping(&platform, "10.2.0.2"));
    let netns = platform.host_netns("access");
    const FLOOD: u16 = 20_000;
    within(&netns, || {
        let raw = Raw::open("eth0").expect("a socket");
        for number in 0..FLOOD {
            raw.send(&spoofed(number % 4096));
            if number % 4_000 == 0 {
                assert!(first_ping(&platform, "10.2.0.2"), "after {number} frames");
            }
        }
    });
    for _ in 0..5 {
        assert!(first_ping(&platform, "10.2.0.2"));
    }
    let status = template(&platform);
    assert!(status["clients"].as_u64() <= Some(6), "{status}");
    assert!(on_demand(&platform).len() <= 6);
    let refused = |why: &str| template(&platform)["refused"][why].as_u64().unwrap_or(0);
    assert!(refused("per_second") + refused("most") > 0, "{status}");
    // Every frame went to an instance, or is counted: by the template, or for want of room by the uplink alone.
    eventually("everything is counted", || dropped(&platform) > 1000);
    let mut number = 0;
    eventually("the template is full", || {
        number += 1;
        within(&netns, || {
            let raw = Raw::open("eth0").expect("a socket");
            raw.send(&spoofed(number));
        });
        template(&platform)["clients"] == 6
    });
    let shown = platform.nfluid(&["get", "templates"]);
    assert!(shown.stdout.contains("per_second "), "{shown:?}");
}

// promise: 5.33
#[test]
fn a_daemon_that_is_killed_leaves_clients_served_and_the_next_one_leaves_nothing_behind() {
    let test =
        "a_daemon_that_is_killed_leaves_clients_served_and_the_next_one_leaves_nothing_behind";
    let Some(mut platform) = subscribers(test) else {
        return;
    };
    platform.apply(&example("most: 500\n    per_second: 200\n    idle: 60s"));
    for last in 2..5 {
        assert!(first_ping(&platform, &format!("10.2.0.{last}")));
    }
    let before = platform.pids();
    platform.kill_daemon();
    assert!(first_ping(&platform, "10.2.0.2"), "without a daemon");
    platform.start();
    assert_eq!(on_demand(&platform), [""; 0], "nobody desires them");
    for pid in before.values() {
        assert!(!nfluid_testbed::process::is_alive(*pid), "{before:?}");
    }
    for last in 2..7 {
        assert!(first_ping(&platform, &format!("10.2.0.{last}")));
    }
    assert_eq!(on_demand(&platform).len(), 5);
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    eventually("nothing is left", || {
        platform.instance_processes().is_empty()
    });
}
