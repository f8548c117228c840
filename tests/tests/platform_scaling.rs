//! Instances of which there are several: flows are divided among them, and change hands while frames pass.

use nfluid_tests::harness::platform::{Outcome, Platform, eventually, metrics_of, must};
use nfluid_tests::harness::two_hosts::{BRIDGE_AND_FIREWALL, SERVER, two_hosts};
use std::thread;
use std::time::Duration;

const FLOWS: u32 = 12;
const PINGS: u32 = 300;

/// A firewall that lets answers pass only by the states of its clients' flows.
fn chain(replicas: u16) -> String {
    let rules = "'allow icmp from any to any'";
    let kept = "'allow icmp from any to 10.0.0.2 keep-state', states: { timeouts: { icmp: 3600 } }";
    let chain = BRIDGE_AND_FIREWALL.replace(rules, kept);
    let several = format!("nf: firewall\n    replicas: {replicas}\n");
    chain.replace("nf: firewall\n", &several)
}

fn with_clients(test: &str) -> Option<Platform> {
    let platform = two_hosts(test)?;
    let client = platform.edge().replace("-p", "-client");
    for flow in 0..FLOWS {
        let address = format!("10.0.0.{}/24", 101 + flow);
        must(&format!("ip -n {client} address add {address} dev eth0"));
    }
    platform.apply(&chain(1));
    eventually("a ping crosses", || platform.pings("client", SERVER));
    Some(platform)
}

/// The firewall's members.
fn members(platform: &Platform) -> Vec<String> {
    let names = platform.pids().into_keys();
    names.filter(|name| name.starts_with("fw")).collect()
}

/// A figure of each member.
fn figures(platform: &Platform, name: &str) -> Vec<u64> {
    let controls = platform.run_dir().join("control");
    let figure = |member: String| {
        let found = metrics_of(&controls.join(&member))["nf"][name].as_f64();
        found.unwrap_or_else(|| panic!("{member} has no {name}")) as u64
    };
    members(platform).into_iter().map(figure).collect()
}

/// Many pings from each client's address, each a flow; meanwhile `work` is done.
fn ping_meanwhile(platform: &Platform, work: impl FnOnce()) -> Vec<Outcome> {
    thread::scope(|scope| {
        let pings: Vec<_> = (0..FLOWS)
            .map(|flow| {
                let from = format!("10.0.0.{}", 101 + flow);
                let ping = format!("ping -n -c {PINGS} -i 0.005 -W 5 -I {from} {SERVER}");
                scope.spawn(move || platform.on("client", &ping))
            })
            .collect();
        work();
        let ended = pings.into_iter().map(|ping| ping.join().expect("ended"));
        ended.collect()
    })
}

/// Numbers of the answers, in the order in which they came.
fn answers(pings: &Outcome) -> Vec<u32> {
    let number = |line: &str| {
        line.split_once("icmp_seq=")?
            .1
            .split(' ')
            .next()?
            .parse()
            .ok()
    };
    pings.stdout.lines().filter_map(number).collect()
}

#[test]
fn flows_change_hands_with_their_state_and_none_of_their_frames_is_lost_or_overtaken() {
    let test = "flows_change_hands_with_their_state_and_none_of_their_frames_is_lost_or_overtaken";
    let Some(platform) = with_clients(test) else {
        return;
    };
    let first = platform.pids()["fw"];
    let before: u64 = figures(&platform, "states_created_total").iter().sum();
    let pings = ping_meanwhile(&platform, || {
        for replicas in ["3", "2", "4", "1", "3"] {
            platform.must_say(&["scale", "fw", replicas]);
            thread::sleep(Duration::from_millis(50));
        }
    });
    for ping in &pings {
        assert_eq!(answers(ping), (1..=PINGS).collect::<Vec<_>>(), "{ping:?}");
    }
    assert_eq!(members(&platform), ["fw", "fw@r1", "fw@r2"]);
    assert_eq!(platform.pids()["fw"], first, "the first one stays");
    // One for each flow, whoever has it: none was made anew.
    let created: u64 = figures(&platform, "states_created_total").iter().sum();
    assert_eq!(created - before, u64::from(FLOWS));
    let states = figures(&platform, "states");
    assert_eq!(
        states.iter().sum::<u64>(),
        u64::from(FLOWS) + before,
        "{states:?}"
    );
    assert!(states.iter().all(|states| *states > 0), "{states:?}");

    platform.must_refuse(&["pause", "fw@r1"], "one of several");
    platform.must_refuse(&["save", "fw", "/dev/null"], "one of several");
    platform.must_refuse(&["scale", "fw", "17"], "cannot be 17");
    platform.must_refuse(&["scale", "wan", "2"], "no instance");
    platform.apply(&chain(1));
    assert_eq!(members(&platform), ["fw"]);
    assert_eq!(figures(&platform, "states"), [u64::from(FLOWS) + before]);
    let nat = chain(2).replace(
        "nf: bridge",
        "nf: nat, config: { pool: [192.0.2.1] }, replicas: 2",
    );
    let refused = platform.try_apply(&nat);
    let why = "the NF 'nat' cannot be several instances: its bindings and ports are one table";
    assert!(refused.stderr.contains(why), "{refused:?}");
}

#[test]
fn members_are_adopted_and_a_daemon_killed_in_between_leaves_all_flows_with_somebody() {
    let test = "members_are_adopted_and_a_daemon_killed_in_between_leaves_all_flows_with_somebody";
    let Some(mut platform) = with_clients(test) else {
        return;
    };
    platform.apply(&chain(3));
    let before = platform.pids();
    platform.kill_daemon();
    platform.start();
    assert_eq!(platform.pids(), before);
    for (delay_ms, replicas) in [(0, "1"), (5, "3"), (15, "1"), (30, "3")] {
        let mut scale = platform.nfluid_command();
        let scale = scale.args(["scale", "fw", replicas]);
        let mut scale = scale.spawn().expect("it is built");
        thread::sleep(Duration::from_millis(delay_ms));
        platform.kill_daemon();
        // Cut off, or done before.
        let _ = scale.wait().expect("our child");
        platform.start();
        let there = members(&platform).len();
        assert!(there == 1 || there == 3, "after {delay_ms} ms: {there}");
        for flow in 0..FLOWS {
            let ping = format!("ping -n -c 1 -W 1 -I 10.0.0.{} {SERVER}", 101 + flow);
            eventually("every flow crosses", || {
                platform.on("client", &ping).succeeded()
            });
        }
    }
    platform.must_say(&["scale", "fw", "1"]);
    assert_eq!(members(&platform), ["fw"]);
    // A member that ends is started again, on the ports that its flows are led to.
    platform.must_say(&["scale", "fw", "2"]);
    platform.must_say(&["restart", "fw@r1"]);
    let pings = ping_meanwhile(&platform, || {});
    for ping in pings {
        assert!(ping.succeeded(), "{ping:?}");
    }
}
