//! Instances of which there are several: flows are divided among them, and change hands while frames pass.

#[path = "platform_scaling/ambush.rs"]
mod ambush;

use ambush::{Ambush, Moment};
use nfluid_tests::harness::command::{Outcome, must};
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::{Platform, metrics_of};
use nfluid_tests::harness::two_hosts::{BRIDGE_AND_FIREWALL, SERVER, two_hosts};
use std::thread;
use std::time::Duration;

const FLOWS: u32 = 12;
/// Fewer of all flows together than a ring has slots: none is lost for want of room, whoever has no core meanwhile.
const PINGS: u32 = 85;

/// A firewall that lets answers pass only by the states of its clients' flows.
fn chain(replicas: u16) -> String {
    let rules = "'allow icmp from any to any'";
    let kept = "'allow icmp from any to 10.0.0.2 keep-state', states: { timeouts: { icmp: 3600 } }";
    let chain = BRIDGE_AND_FIREWALL.replace(rules, kept);
    let several = format!("nf: firewall\n    replicas: {replicas}\n    flavor: large\n");
    let chain = chain.replace("nf: firewall\n", &several);
    let chain = chain.replace("netns: EDGE }", "netns: EDGE, ring: 1024 }");
    chain.replace("nf: bridge }", "nf: bridge, flavor: large }")
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
                // With -w, ping waits for so many answers, and asks again meanwhile. Without, the last answer would have two
                // round trips to come.
                let patience = PATIENCE.as_secs();
                let ping = format!("ping -n -c {PINGS} -i 0.01 -w {patience} -I {from} {SERVER}");
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

/// Frames that came back into the chain, whichever member got them.
fn returned(platform: &Platform) -> u64 {
    let stats = platform.ask(&["stats"]);
    let chain = &stats["chains"][0];
    chain["return_packets"].as_u64().expect("a chain")
}

/// All drops of all ports, by reason, and the daemon's events.
fn what_happened(platform: &Platform) -> String {
    let page = platform.page("/metrics");
    let counted = page
        .lines()
        .filter(|line| line.contains("drop") && !line.ends_with(" 0"));
    let counted = counted.filter(|line| !line.starts_with('#'));
    let counted: Vec<&str> = counted.collect();
    format!("{} {}", counted.join("; "), platform.ask(&["events"]))
}

// promise: 7.39, 7.40
#[test]
fn flows_change_hands_with_their_state_and_none_of_their_frames_is_lost_or_overtaken() {
    let test = "flows_change_hands_with_their_state_and_none_of_their_frames_is_lost_or_overtaken";
    let Some(platform) = with_clients(test) else {
        return;
    };
    let first = platform.pids()["fw"];
    let before: u64 = figures(&platform, "states_created_total").iter().sum();
    let rounds = [&["3", "2"][..], &["4", "1"], &["3"]];
    for steps in rounds {
        let pings = ping_meanwhile(&platform, || {
            for replicas in steps {
                platform.must_say(&["scale", "fw", replicas]);
                thread::sleep(Duration::from_millis(50));
            }
        });
        for ping in &pings {
            let answers = answers(ping);
            let asked = PINGS.max(answers.len() as u32);
            let all: Vec<u32> = (1..=asked).collect();
            assert!(answers == all, "{} {ping:?}", what_happened(&platform));
        }
    }
    assert_eq!(members(&platform), ["fw", "fw@r1", "fw@r2"]);
    assert_eq!(platform.pids()["fw"], first, "the first one stays");
    // One state per flow, in any member: no state was made anew.
    let flows = rounds.len() as u64 * u64::from(FLOWS);
    let created: u64 = figures(&platform, "states_created_total").iter().sum();
    assert_eq!(created - before, flows);
    let states = figures(&platform, "states");
    assert_eq!(states.iter().sum::<u64>(), flows + before, "{states:?}");
    assert!(states.iter().all(|states| *states > 0), "{states:?}");

    // All that crossed is counted, also what crossed members that have gone.
    let crossed = returned(&platform);
    assert!(crossed >= flows * u64::from(PINGS), "{crossed}");

    platform.must_refuse(&["pause", "fw@r1"], "one of several");
    platform.must_refuse(&["save", "fw", "/dev/null"], "one of several");
    platform.must_refuse(&["scale", "fw", "17"], "cannot be 17");
    platform.must_refuse(&["scale", "wan", "2"], "no instance");
    platform.apply(&chain(1));
    assert_eq!(members(&platform), ["fw"]);
    assert_eq!(figures(&platform, "states"), [flows + before]);
    assert!(returned(&platform) >= crossed);
    // A paused instance is not scaled, not even by an apply that has already made the other member.
    platform.must_say(&["pause", "fw"]);
    platform.must_refuse(&["scale", "fw", "2"], "is paused");
    let refused = platform.try_apply(&chain(2));
    assert!(refused.stderr.contains("is paused"), "{refused:?}");
    assert_eq!(members(&platform), ["fw"]);
    platform.must_say(&["unpause", "fw"]);
    let nat = chain(2).replace(
        "nf: bridge",
        "nf: nat, config: { pool: [192.0.2.1] }, replicas: 2",
    );
    let refused = platform.try_apply(&nat);
    let why = "the NF 'nat' cannot be several instances: its bindings and ports are one table";
    assert!(refused.stderr.contains(why), "{refused:?}");
}

/// Pings from each client's address, with one number for all of its pings: they are one flow.
fn ping_each(platform: &Platform) {
    for flow in 0..FLOWS {
        let (from, id) = (101 + flow, 4000 + flow);
        let ping = format!("ping -n -e {id} -c 1 -W 1 -I 10.0.0.{from} {SERVER}");
        eventually("every flow crosses", || {
            platform.on("client", &ping).succeeded()
        });
    }
}

/// Every flow passes, with its former state: no state is made anew.
fn all_flows_go_on(platform: &Platform, created: u64, what: &str) {
    ping_each(platform);
    let now: u64 = figures(platform, "states_created_total").iter().sum();
    assert_eq!(now, created, "{what}");
    let states: u64 = figures(platform, "states").iter().sum();
    assert_eq!(states, created, "{what}");
}

/// Asks for a number of members; the daemon is killed at that request to that member, and another daemon is started.
/// The members are then `left`, and every flow continues.
fn strike(
    platform: &mut Platform,
    replicas: &str,
    (member, request, moment): (&str, &str, Moment),
    left: &[&str],
) {
    let what = format!("to {replicas}, {moment:?} {request} of {member}");
    let created: u64 = figures(platform, "states_created_total").iter().sum();
    let first = platform.pids()["fw"];
    let control = platform.run_dir().join("control").join(member);
    let ambush = Ambush::lay(&control, platform.daemon_pid(), request, moment);
    let mut scale = platform.nfluid_command();
    let scale = scale.args(["scale", "fw", replicas]);
    let mut scale = scale.spawn().expect("it is built");
    ambush.end();
    assert!(!scale.wait().expect("our child").success(), "{what}");
    platform.kill_daemon();
    platform.start();
    assert_eq!(members(platform), left, "{what}");
    assert_eq!(platform.pids()["fw"], first, "{what}");
    all_flows_go_on(platform, created, &what);
}

// promise: 7.39
#[test]
fn a_daemon_killed_in_the_midst_of_a_division_leaves_every_flow_with_its_state() {
    let test = "a_daemon_killed_in_the_midst_of_a_division_leaves_every_flow_with_its_state";
    let Some(mut platform) = with_clients(test) else {
        return;
    };
    platform.apply(&chain(3));
    ping_each(&platform);
    let created: u64 = figures(&platform, "states_created_total").iter().sum();
    assert_eq!(created, u64::from(FLOWS) + 1, "and that of the first ping");
    // The decision holds after the restart: three members, and one.
    let three = ["fw", "fw@r1", "fw@r2"];
    // Frames are sent to the first member, which has not received the flows.
    let led = ("fw@r1", "drain", Moment::Before);
    strike(&mut platform, "1", led, &three);
    // The member had the request already, and gets it again.
    let told = ("fw", "import", Moment::After);
    strike(&mut platform, "1", told, &three);
    platform.must_say(&["scale", "fw", "1"]);
    strike(&mut platform, "3", ("fw", "drain", Moment::After), &["fw"]);
    // All is done, and not kept yet: the first one has forgotten what goes with the others.
    let parted = ("fw", "part_with", Moment::After);
    strike(&mut platform, "3", parted, &["fw"]);
    platform.must_say(&["scale", "fw", "2"]);
    let there = platform.pids();
    platform.kill_daemon();
    platform.start();
    assert_eq!(platform.pids(), there, "members are adopted");
    all_flows_go_on(&platform, created, "adopted");
    // A member that ends is started again, on the ports that its flows are led to.
    platform.must_say(&["restart", "fw@r1"]);
    for ping in ping_meanwhile(&platform, || {}) {
        assert!(ping.succeeded(), "{ping:?}");
    }
}
