//! Rings as the operator sees them; and ports with several queues: flows are spread among NFs of their own, and nothing
//! else changes.

use nfluid_testbed::process::signal;
use nfluid_tests::harness::command::{Outcome, must};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list, metrics_of};
use rustix::process::Signal;
use serde_json::Value;
use std::thread;

const CHAIN: &str = "
version: 1
uplinks:
  lan: { interface: client, netns: EDGE }
  wan: { interface: server, netns: EDGE }
instances:
  a: { nf: counter, ports: { in: { queues: 2 }, out: { queues: 2 } } }
  b: { nf: bridge }
chains:
  web: { from: lan, to: wan, via: [a, b] }
";

const SERVER: &str = "10.0.0.1";
const FLOWS: u32 = 12;
const PINGS: u32 = 100;

fn two_hosts(test: &str) -> Option<Platform> {
    let mut platform = Platform::new(test)?;
    platform.host("client", "10.0.0.100/24");
    platform.host("server", "10.0.0.1/24");
    let client = platform.edge().replace("-p", "-client");
    for flow in 0..FLOWS {
        must(&format!(
            "ip -n {client} address add 10.0.0.{}/24 dev eth0",
            101 + flow
        ));
    }
    Some(platform)
}

/// Returns the NF's own metrics.
fn metrics(platform: &Platform, instance: &str) -> Value {
    metrics_of(&platform.run_dir().join("control").join(instance))
}

/// Sequence numbers of the answers, in the order in which they came.
fn answers(pings: &Outcome) -> Vec<u32> {
    let lines = pings.stdout.lines();
    lines
        .filter_map(|line| {
            line.split_once("icmp_seq=")?
                .1
                .split(' ')
                .next()?
                .parse()
                .ok()
        })
        .collect()
}

/// Pings of all flows at once.
fn all_flows_keep_their_order(platform: &Platform) {
    thread::scope(|scope| {
        for flow in 0..FLOWS {
            let ping = format!(
                "ping -n -c {PINGS} -i 0.002 -I 10.0.0.{} {SERVER}",
                101 + flow
            );
            scope.spawn(move || {
                let came = answers(&platform.on("client", &ping));
                assert!(came.is_sorted(), "flow {flow}: {came:?}");
                // On a busy machine a ring may overflow; lost frames are counted below.
                assert!(!came.is_empty(), "flow {flow}");
            });
        }
    });
}

// promise: 7.21
#[test]
fn flows_are_spread_and_each_keeps_its_order() {
    let Some(platform) = two_hosts("flows_are_spread_and_each_keeps_its_order") else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    // On a busy machine a queue takes much at a time, hence as often as it takes.
    eventually("each queue has called more than ten times", || {
        all_flows_keep_their_order(&platform);
        let said = metrics(&platform, "a");
        let names = list(&said["ports"]).map(|port| port["port"].as_str().expect("a name"));
        assert!(names.eq(["in", "out", "in", "out"]), "{said}");
        list(&said["ports"]).all(|port| port["calls"].as_u64() > Some(10))
    });

    // Frames received by both queues equal frames at the ports, in the daemon's metrics and the NF's.
    eventually("all counters agree", || {
        let ports = platform.ask(&["get", "ports"]);
        let of = |name: &str| list(&ports).find(|port| port["name"] == name).cloned();
        let (input, output) = (of("a.in").expect("a port"), of("a.out").expect("a port"));
        assert_eq!(
            (&input["queues"], &output["queues"]),
            (&2.into(), &2.into())
        );
        let received = |port: &Value| port["counters"]["rx_packets"].as_u64().expect("a number");
        let all = received(&input) + received(&output);
        assert!(all >= u64::from(2 * FLOWS), "{all}");
        metrics(&platform, "a")["engine"]["received"] == all
    });
}

// promise: 7.21
#[test]
fn queues_are_adopted_and_restarted_like_any_port() {
    let Some(mut platform) = two_hosts("queues_are_adopted_and_restarted_like_any_port") else {
        return;
    };
    platform.apply(CHAIN);
    let before = platform.pids();
    let crosses = |platform: &Platform, when: &str| {
        for flow in 0..FLOWS {
            let ping = format!("ping -n -c 1 -W 1 -I 10.0.0.{} {SERVER}", 101 + flow);
            eventually(when, || platform.on("client", &ping).succeeded());
        }
    };
    crosses(&platform, "every flow crosses");
    platform.kill_daemon();
    platform.start();
    assert_eq!(platform.pids(), before);
    crosses(&platform, "every flow crosses after adoption");
    let restarted = platform.nfluid(&["restart", "a"]);
    assert!(restarted.succeeded(), "{restarted:?}");
    crosses(&platform, "every flow crosses after a restart");
    assert_eq!(
        platform
            .apply(&CHAIN.replace("queues: 2", "queues: 5"))
            .len(),
        1
    );
    crosses(&platform, "every flow crosses five queues");
}

// promise: 7.21
#[test]
fn what_cannot_be_divided_is_refused() {
    let Some(platform) = two_hosts("what_cannot_be_divided_is_refused") else {
        return;
    };
    for (instance, why) in [
        ("nf: nat, config: { pool: [192.0.2.1] }", "one table"),
        ("nf: limiter", "a bucket is for all flows"),
        (
            "nf: firewall, config: { rules: [{ action: allow, keep_state: { max_per_source: 3 } }] }",
            "a rule limits its states",
        ),
    ] {
        let refused = platform.try_apply(&CHAIN.replace("nf: counter", instance));
        assert!(!refused.succeeded(), "{instance}: {refused:?}");
        let said = refused.stderr;
        assert!(
            said.contains("cannot have several queues") && said.contains(why),
            "{said}"
        );
        assert!(platform.pids().is_empty());
    }
    // The same firewall without limits can, until it is given one.
    let firewall = "nf: firewall, config: { rules: 'allow ip from any to any', non_ip: allow }";
    platform.apply(&CHAIN.replace("nf: counter", firewall));
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let rule = "[{ action: allow, keep_state: { max: 9 } }]";
    let limited = firewall.replace("'allow ip from any to any'", rule);
    let refused = platform.try_apply(&CHAIN.replace("nf: counter", &limited));
    assert!(refused.stderr.contains("limits its states"), "{refused:?}");
    assert!(platform.reaches("client", SERVER));
}

// promise: 7.22
#[test]
fn frames_that_wait_are_seen() {
    let Some(platform) = two_hosts("frames_that_wait_are_seen") else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let used = |port: &str| {
        let stats = platform.ask(&["stats"]);
        let found = list(&stats["ports"])
            .find(|stats| stats["name"] == port)
            .cloned();
        let port = found.expect("a port");
        let figure = |key: &str| port[key].as_u64().expect("a number");
        (figure("rx_ring_used"), figure("rx_ring_size"))
    };
    eventually(
        "nothing waits, nor in two queues, nor in an uplink's ring",
        || used("b.in") == (0, 256) && used("a.in") == (0, 512) && used("lan").0 == 0,
    );

    // An NF that does not read: its ring fills up, and so do the figures.
    let stopped = platform.pids()["b"];
    signal(stopped, Signal::STOP);
    eventually("its ring is full, and no other", || {
        platform.on(
            "client",
            &format!("ping -q -n -c 400 -i 0.002 -W 1 {SERVER}"),
        );
        let stats = platform.ask(&["stats"]);
        let chain = list(&stats["chains"]).next().expect("a chain");
        used("b.in") == (256, 256) && chain["forward_waiting"] == 256
    });
    let top = platform.nfluid(&["top", "--once", "-i", "0.1"]);
    let row = top.stdout.lines().find(|line| line.starts_with("b.in"));
    let row = row.expect("a row of the port");
    assert!(row.contains("100.0%"), "{row}");

    signal(stopped, Signal::CONT);
    eventually("nothing waits any more", || used("b.in").0 == 0);
    eventually("a ping crosses again", || platform.pings("client", SERVER));
}
