//! Each party of a platform is killed in turn: checks the leftovers, the detection, and the operation of the others.

use nfluid_netdev::programs_at_tc;
use nfluid_testbed::process::{is_alive, signal};
use nfluid_tests::harness::command::{must, run};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, metrics_of};
use nfluid_tests::harness::two_hosts::{BRIDGES as CHAIN, SERVER, two_hosts};
use nfluid_tests::harness::within;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Two bridges between two switches: a broadcast that enters runs in circles for ever, and no uplink has a part in it.
const CIRCLE: &str = "
version: 1
switches: { front: {}, back: {} }
uplinks:
  lan: { interface: client, netns: EDGE, switch: front }
instances:
  a: { nf: bridge, cap: 10%, ports: { in: { switch: front, learn: true }, out: { switch: back, learn: true } } }
  b: { nf: bridge, cap: 10%, ports: { in: { switch: front, learn: true }, out: { switch: back, learn: true } } }
";

// promise: 7.7
#[test]
fn a_killed_instance_is_restarted_and_the_others_are_not() {
    let Some(platform) = two_hosts("a_killed_instance_is_restarted_and_the_others_are_not") else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    for round in 1..=3 {
        let before = platform.pids();
        signal(before["a"], Signal::KILL);
        eventually("it runs again", || {
            platform
                .pids()
                .get("a")
                .is_some_and(|pid| *pid != before["a"])
        });
        eventually("a ping crosses again", || platform.pings("client", SERVER));
        let after = platform.instance("a");
        assert_eq!(after["restarts"], round, "{after}");
        assert!(
            after["last_exit"]
                .as_str()
                .is_some_and(|how| how.contains('9') || how.contains("KILL")),
            "{after}"
        );
        assert_eq!(platform.pids()["b"], before["b"]);
        assert!(!is_alive(before["a"]));
    }
    let events = platform.events_of("a");
    assert_eq!(
        events.iter().filter(|kind| *kind == "crashed").count(),
        3,
        "{events:?}"
    );
}

// promise: 7.7
#[test]
fn a_policy_decides_whether_an_instance_comes_back() {
    let Some(platform) = two_hosts("a_policy_decides_whether_an_instance_comes_back") else {
        return;
    };
    let policies = CHAIN
        .replace("a: { nf: bridge }", "a: { nf: bridge, restart: never }")
        .replace(
            "b: { nf: bridge }",
            "b: { nf: bridge, restart: { policy: always, backoff: 10ms..20ms, max: 2, healthy: 1h } }",
        );
    platform.apply(&policies);
    signal(platform.pids()["a"], Signal::KILL);
    eventually("it is left alone", || {
        platform.instance("a")["state"] == "stopped"
    });

    for restarts in 1..=2 {
        let pid = platform.pids()["b"];
        signal(pid, Signal::KILL);
        eventually("it runs again", || {
            platform.pids().get("b").is_some_and(|now| *now != pid)
        });
        assert_eq!(platform.instance("b")["restarts"], restarts);
    }
    signal(platform.pids()["b"], Signal::KILL);
    eventually("it is given up", || {
        platform.instance("b")["state"] == "failed"
    });
    let events = platform.events_of("b");
    assert_eq!(
        events.iter().filter(|kind| *kind == "crash_loop").count(),
        1,
        "{events:?}"
    );
    assert!(platform.pids().is_empty());
    assert_eq!(platform.instance("a")["restarts"], 0);

    // An operator's word counts more than a policy.
    for name in ["a", "b"] {
        let restarted = platform.nfluid(&["restart", name]);
        assert!(restarted.succeeded(), "{restarted:?}");
    }
    eventually("a ping crosses", || platform.pings("client", SERVER));
}

// promise: 7.8
#[test]
fn instances_outlive_a_killed_daemon_and_the_next_one_adopts_them() {
    let Some(mut platform) =
        two_hosts("instances_outlive_a_killed_daemon_and_the_next_one_adopts_them")
    else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let before = platform.pids();
    assert_eq!(before.len(), 2);
    for _ in 0..2 {
        platform.kill_daemon();
        assert!(before.values().all(|pid| is_alive(*pid)));
        platform.start();
        assert_eq!(platform.pids(), before);
        for name in ["a", "b"] {
            assert_eq!(platform.events_of(name), ["adopted"]);
        }
        assert_eq!(platform.apply(CHAIN), [""; 0], "all is as desired");
        eventually("a ping crosses again", || platform.pings("client", SERVER));
    }
    // Adopted instances are supervised as well.
    signal(before["a"], Signal::KILL);
    eventually("it runs again", || {
        platform
            .pids()
            .get("a")
            .is_some_and(|pid| *pid != before["a"])
    });
    eventually("a ping crosses the new one", || {
        platform.pings("client", SERVER)
    });
}

// promise: 7.8
#[test]
fn an_instance_that_died_with_the_daemon_is_made_anew() {
    let Some(mut platform) = two_hosts("an_instance_that_died_with_the_daemon_is_made_anew") else {
        return;
    };
    platform.apply(CHAIN);
    let before = platform.pids();
    platform.kill_daemon();
    signal(before["a"], Signal::KILL);
    eventually("it is dead", || !is_alive(before["a"]));
    platform.start();
    eventually("it runs", || platform.pids().contains_key("a"));
    assert_ne!(platform.pids()["a"], before["a"]);
    assert_eq!(platform.pids()["b"], before["b"]);
    eventually("a ping crosses", || platform.pings("client", SERVER));
}

// promise: 7.10
#[test]
fn a_daemon_killed_while_it_applies_leaves_nothing_that_the_next_one_cannot_mend() {
    let Some(mut platform) =
        two_hosts("a_daemon_killed_while_it_applies_leaves_nothing_that_the_next_one_cannot_mend")
    else {
        return;
    };
    let deployment = CHAIN.replace("EDGE", &platform.edge());
    let path = platform.directory().join("chain.yaml");
    std::fs::write(&path, deployment).expect("the directory is ours");
    // From before the request arrives until after it is done (300 ms in a debug build).
    for delay_ms in (0..=400).step_by(50) {
        let mut applying = platform.nfluid_command();
        applying.args(["apply", "-f"]).arg(&path);
        applying.stdout(Stdio::null()).stderr(Stdio::null());
        let mut applying = applying.spawn().expect("nfluid is built");
        std::thread::sleep(Duration::from_millis(delay_ms));
        platform.kill_daemon();
        applying.wait().expect("it is our child");

        platform.start();
        platform.apply(CHAIN);
        assert_eq!(platform.apply(CHAIN), [""; 0], "after {delay_ms} ms");
        assert_eq!(platform.pids().len(), 2, "after {delay_ms} ms");
        eventually("a ping crosses", || platform.pings("client", SERVER));
        let deleted = platform.nfluid(&["delete", "--all"]);
        assert!(deleted.succeeded(), "after {delay_ms} ms: {deleted:?}");
        assert_eq!(instance_cgroups(&platform), [""; 0], "after {delay_ms} ms");
        assert_eq!(platform.instance_processes(), [0; 0], "after {delay_ms} ms");
        assert_eq!(programs_on(&platform), 0, "after {delay_ms} ms");
    }
    assert!(platform.terminate_daemon().success());
    eventually("no helper of a killed daemon is left", || {
        platform.processes().is_empty()
    });
}

// promise: 7.20
#[test]
fn an_uplink_that_is_taken_over_under_traffic_goes_on() {
    let Some(mut platform) = two_hosts("an_uplink_that_is_taken_over_under_traffic_goes_on") else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    // No unanswered ARP request holds the frames up.
    for (host, address) in [("client", SERVER), ("server", "10.0.0.1")] {
        let peer = if host == "client" { "server" } else { "client" };
        let shown = platform.on(peer, "ip -j link show eth0").stdout;
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        let mac = shown[0]["address"].as_str().expect("an address");
        let fixed = format!("ip neigh replace {address} dev eth0 lladdr {mac} nud permanent");
        assert!(platform.on(host, &fixed).succeeded());
    }
    // Frames arrive at both uplinks at any moment, also while their memory is replaced.
    let flood = |host: &str, address: &str| {
        let namespace = platform.edge().replace("-p", &format!("-{host}"));
        let ping = [
            "ip", "netns", "exec", &namespace, "ping", "-q", "-n", "-i", "0.002", address,
        ];
        let mut command = std::process::Command::new(ping[0]);
        command.args(&ping[1..]).stdout(Stdio::null());
        Ended(command.spawn().expect("ping is there"))
    };
    let floods = [flood("client", SERVER), flood("server", "10.0.0.1")];
    for round in 0..10 {
        platform.kill_daemon();
        platform.start();
        eventually(&format!("a ping crosses in round {round}"), || {
            platform.pings("client", SERVER)
        });
    }
    drop(floods);
}

/// A process that is ended when this is dropped.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

// promise: 7.9
#[test]
fn frames_run_between_instances_without_a_daemon() {
    let Some(mut platform) = two_hosts("frames_run_between_instances_without_a_daemon") else {
        return;
    };
    platform.apply(CIRCLE);
    let sockets = ["a", "b"].map(|name| platform.run_dir().join("control").join(name));
    let forwarded = || sockets.each_ref().map(|path| forwarded_by(path));
    eventually("a broadcast runs in circles", || {
        // No host has this address: the client broadcasts ARP requests.
        platform.pings("client", "10.0.0.77");
        let before = forwarded();
        std::thread::sleep(Duration::from_millis(300));
        let after = forwarded();
        (0..2).all(|number| after[number] > before[number] + 10.0)
    });
    platform.kill_daemon();
    for _ in 0..3 {
        let before = forwarded();
        eventually("both bridges forward still", || {
            let after = forwarded();
            (0..2).all(|number| after[number] > before[number] + 100.0)
        });
    }
    platform.start();
    for name in ["a", "b"] {
        assert_eq!(platform.events_of(name), ["adopted"]);
    }
}

/// Returns the number of frames that a bridge has forwarded, by its metrics.
fn forwarded_by(control: &std::path::Path) -> f64 {
    let answer = metrics_of(control);
    let metrics = answer["nf"].as_object().expect("metrics");
    metrics
        .iter()
        .filter(|(name, _)| name.starts_with("packets_forwarded_total"))
        .map(|(_, value)| value.as_f64().expect("a figure"))
        .sum()
}

// promise: 7.11
#[test]
fn a_terminated_daemon_leaves_interfaces_alone_and_instances_running() {
    let Some(mut platform) =
        two_hosts("a_terminated_daemon_leaves_interfaces_alone_and_instances_running")
    else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    assert_eq!(programs_on(&platform), 2, "one on each interface");
    let before = platform.pids();
    assert!(platform.terminate_daemon().success());
    assert_eq!(programs_on(&platform), 0);
    assert!(!platform.socket().exists());
    assert!(before.values().all(|pid| is_alive(*pid)));

    platform.start();
    assert_eq!(platform.pids(), before);
    eventually("a ping crosses again", || platform.pings("client", SERVER));
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    assert!(platform.pids().is_empty());
    assert!(before.values().all(|pid| !is_alive(*pid)));
    assert_eq!(programs_on(&platform), 0);
    assert!(platform.terminate_daemon().success());
    eventually("the daemon's helpers end with it", || {
        platform.processes().is_empty()
    });
    assert_eq!(instance_cgroups(&platform), [""; 0]);
    let places = [platform.pins(), platform.run_dir()];
    for place in places.map(|place| place.join("instances")) {
        assert_eq!(names_in(&place), [""; 0], "{}", place.display());
    }
}

/// Cgroups of instances.
fn instance_cgroups(platform: &Platform) -> Vec<String> {
    let names = platform
        .cgroups()
        .into_iter()
        .flat_map(|cgroup| names_in(&cgroup));
    names.filter(|name| name.starts_with("i-")).collect()
}

/// Names of the files and directories in a directory.
fn names_in(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("it is there");
    entries
        .map(|entry| entry.expect("it can be read").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

// promise: 7.12
#[test]
fn an_uplink_outlives_its_interface() {
    let Some(mut platform) = two_hosts("an_uplink_outlives_its_interface") else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let before = platform.pids();
    must(&format!("ip -n {} link del client", platform.edge()));
    eventually("its loss is told", || {
        platform
            .events_of("lan")
            .contains(&"uplink_down".to_owned())
    });
    must(&format!(
        "ip netns del {}",
        platform.edge().replace("-p", "-client")
    ));
    platform.host("client", "10.0.0.1/24");
    eventually("a ping crosses again", || platform.pings("client", SERVER));
    assert_eq!(platform.pids(), before);
}

/// Interfaces of the platform that have a program, at XDP, or at tc by a link or by a filter.
fn programs_on(platform: &Platform) -> usize {
    let edge = platform.edge();
    let shown = run(&format!("ip -n {edge} -j link"));
    let links: Value = serde_json::from_str(&shown.stdout).expect("JSON was asked for");
    let links = links.as_array().expect("a list");
    let namespace = Path::new("/run/netns").join(&edge);
    within(&namespace, || {
        let has_program = |link: &&Value| {
            let index = link["ifindex"].as_u64().expect("a number") as u32;
            let name = link["ifname"].as_str().expect("a name");
            link.get("xdp").is_some()
                || !programs_at_tc(index).is_empty()
                || run(&format!("tc filter show dev {name} ingress"))
                    .stdout
                    .contains("bpf")
        };
        links.iter().filter(has_program).count()
    })
}
