//! The promise: traffic crosses the platform from interface to interface while the daemon is killed,
//! replaced or away, and an uplink's process that dies comes back with what waited for it.

use nfluid_sandbox::ProcessIdentity;
use nfluid_testbed::process::{is_alive, signal};
use nfluid_testbed::scratch::Scratch;
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::conversation::Conversation;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::two_hosts::{SERVER, two_hosts};
use nfluid_tests::harness::within;
use nfluid_uplink::{Uplink, UplinkSpec};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

const CHAIN: &str = "
version: 1
uplinks:
  lan: { interface: client, netns: EDGE }
  wan: { interface: server, netns: EDGE }
instances:
  a: { nf: bridge }
chains:
  web: { from: lan, to: wan, via: [a] }
";

/// The bridge connects two switches.
const SWITCHES: &str = "
version: 1
switches: { front: {}, back: {} }
uplinks:
  lan: { interface: client, netns: EDGE, switch: front }
  wan: { interface: server, netns: EDGE, switch: back }
instances:
  a: { nf: bridge, ports: { in: { switch: front, learn: true }, out: { switch: back, learn: true } } }
";

const ONE_SWITCH: &str = "
version: 1
switches: { z: {} }
uplinks:
  lan: { interface: client, netns: EDGE, switch: z }
  wan: { interface: server, netns: EDGE, switch: z }
";

/// Slots of the uplinks' rings: the default flavor's.
const RING: u64 = 256;

/// The process of an uplink.
fn pid(platform: &Platform, name: &str) -> u32 {
    let pid = platform.uplink(name)["pid"].as_u64();
    u32::try_from(pid.expect("it runs")).expect("a process id")
}

/// Processes of uplinks that are left of the platform.
fn uplink_processes(platform: &Platform) -> Vec<u32> {
    let mut all = platform.processes();
    all.retain(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"nfluidd\0uplink\0")
    });
    all
}

fn count(events: &[String], kind: &str) -> usize {
    events.iter().filter(|event| *event == kind).count()
}

// promise: 7.13
#[test]
fn no_frame_is_lost_while_the_daemon_is_killed_replaced_or_away() {
    for (layout, deployment) in [("chain", CHAIN), ("switches", SWITCHES)] {
        let test = "no_frame_is_lost_while_the_daemon_is_killed_replaced_or_away";
        let Some(mut platform) = two_hosts(test) else {
            return;
        };
        platform.apply(deployment);
        eventually("a ping crosses", || platform.pings("client", SERVER));
        let before = ["lan", "wan"].map(|name| pid(&platform, name));
        let conversation = Conversation::start(&platform);
        conversation.has_answers(1000, "with a daemon");
        for round in 0..3 {
            if round == 2 {
                assert!(platform.hand_over().success());
            } else {
                platform.kill_daemon();
            }
            conversation.has_answers(1000, "without a daemon");
            platform.start();
            conversation.has_answers(1000, "with another daemon");
            let now = ["lan", "wan"].map(|name| pid(&platform, name));
            assert_eq!(now, before, "{layout}");
            for name in ["lan", "wan", "a"] {
                assert_eq!(platform.events_of(name), ["adopted"], "{layout}");
            }
            assert_eq!(platform.apply(deployment), [""; 0], "all is as desired");
        }
        let books = conversation.end();
        assert_eq!((books.lost, books.answered_twice), (0, 0), "{layout}");
    }
}

// promise: 7.13
#[test]
fn learned_addresses_outlive_the_daemon() {
    let Some(mut platform) = two_hosts("learned_addresses_outlive_the_daemon") else {
        return;
    };
    platform.apply(ONE_SWITCH);
    // A second switch, which comes first by name but not by age.
    platform.apply(&ONE_SWITCH.replace("{ z: {} }", "{ z: {}, a: {} }"));
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let learned = |platform: &Platform| {
        let all = platform.ask(&["get", "switches"]);
        let found = list(&all).find(|switch| switch["name"] == "z");
        found.expect("it is there")["addresses"].clone()
    };
    assert_eq!(learned(&platform), 2);
    for _ in 0..2 {
        platform.kill_daemon();
        platform.start();
        assert_eq!(learned(&platform), 2);
    }
}

// promise: 7.14
#[test]
fn an_uplink_whose_process_is_killed_goes_on_with_what_waited() {
    let test = "an_uplink_whose_process_is_killed_goes_on_with_what_waited";
    let Some(platform) = two_hosts(test) else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let conversation = Conversation::start(&platform);
    for round in 1..=3 {
        for name in ["lan", "wan"] {
            conversation.has_answers(1000, "as before");
            let before = pid(&platform, name);
            signal(before, Signal::KILL);
            eventually("it sends again", || {
                let now = platform.uplink(name)["pid"].as_u64();
                now.is_some_and(|now| now != u64::from(before))
            });
            conversation.has_answers(1000, "with its successor");
            eventually("its end and its return are told", || {
                let events = platform.events_of(name);
                (count(&events, "crashed"), count(&events, "uplink_up")) == (round, round + 1)
            });
        }
    }
    let books = conversation.end();
    assert_eq!(books.lost, 0);
    // Frames in flight when the process was killed, at most a ring of them.
    assert!(books.answered_twice <= 6 * RING, "{books:?}");
}

/// The pipes of doorbells that a process has open, by name.
fn bells_of(pid: u32, run: &Path) -> Vec<String> {
    let id = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    let open = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let open: Vec<_> = open.filter_map(|entry| id(&entry.ok()?.path())).collect();
    let folders = ["bells", "uplink-bells"].into_iter();
    let bells = folders.flat_map(|folder| fs::read_dir(run.join(folder)).expect("doorbells"));
    let held = bells.filter_map(|bell| {
        let bell = bell.ok()?;
        let is_open = open.contains(&id(&bell.path())?);
        is_open.then(|| bell.file_name().to_string_lossy().into_owned())
    });
    let mut held: Vec<String> = held.collect();
    held.sort();
    held
}

// promise: 7.45
#[test]
fn an_instance_and_the_uplink_behind_its_link_have_the_same_doorbell() {
    let test = "an_instance_and_the_uplink_behind_its_link_have_the_same_doorbell";
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    platform.apply(CHAIN);
    let check = |platform: &Platform, what: &str| {
        let run = platform.run_dir();
        eventually(what, || {
            let uplinks = ["lan", "wan"].map(|name| {
                let pid = platform.uplink(name)["pid"].as_u64().unwrap_or(0);
                bells_of(pid as u32, &run)
            });
            let instance = platform.pids().get("a").map(|pid| bells_of(*pid, &run));
            uplinks == [["lan"], ["wan"]]
                && instance.is_some_and(|held| held == ["a", "lan", "wan"])
        });
        assert!(platform.pings("client", SERVER), "{what}");
    };
    eventually("a ping crosses", || platform.pings("client", SERVER));
    check(&platform, "at first");
    signal(pid(&platform, "wan"), Signal::KILL);
    check(&platform, "another process of the uplink");
    signal(platform.pids()["a"], Signal::KILL);
    check(&platform, "another process of the instance");
    platform.kill_daemon();
    platform.start();
    check(&platform, "by another daemon");
    platform.apply("version: 1\n");
    platform.apply(CHAIN);
    check(&platform, "made anew");
    platform.must_say(&["delete", "--all"]);
    platform.kill_daemon();
    platform.start();
    let left = fs::read_dir(platform.run_dir().join("uplink-bells")).expect("the folder");
    assert_eq!(left.count(), 0, "a later daemon has removed them");
}

// promise: 7.15
#[test]
fn what_an_interface_receives_needs_neither_daemon_nor_process() {
    let test = "what_an_interface_receives_needs_neither_daemon_nor_process";
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let lan = pid(&platform, "lan");
    let wan = pid(&platform, "wan");
    platform.kill_daemon();
    signal(lan, Signal::KILL);
    eventually("it is dead", || !is_alive(lan));
    let client = platform.host_netns("client");
    let server = platform.host_netns("server");
    let receiver = within(&server, || UdpSocket::bind("10.0.0.2:7")).expect("bind");
    receiver
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout");
    let sender = within(&client, || UdpSocket::bind("10.0.0.1:0")).expect("bind");
    sender.connect("10.0.0.2:7").expect("an address");
    // No reply reaches the client: no host answers if it asks for the server's address again.
    let client_name = client.file_name().expect("a name").to_string_lossy();
    let server_name = server.file_name().expect("a name").to_string_lossy();
    let shown = must(&format!("ip -n {server_name} -j link show eth0"));
    let shown: Value = serde_json::from_str(&shown).expect("JSON was asked for");
    let address = shown[0]["address"].as_str().expect("an address");
    must(&format!(
        "ip -n {client_name} neigh replace {SERVER} lladdr {address} dev eth0 nud permanent"
    ));
    for number in 0..2000u64 {
        sender.send(&number.to_be_bytes()).expect("it is sent");
        let mut bytes = [0u8; 8];
        receiver.recv(&mut bytes).expect("it arrives");
        assert_eq!(u64::from_be_bytes(bytes), number);
    }
    platform.start();
    eventually("a ping crosses", || platform.pings("client", SERVER));
    assert_eq!(pid(&platform, "wan"), wan);
    assert_eq!(platform.events_of("wan"), ["adopted"]);
    assert_eq!(platform.events_of("lan"), ["warning", "uplink_up"]);
}

// promise: 7.16
#[test]
fn an_interface_that_vanishes_without_a_daemon_is_found_again() {
    let test = "an_interface_that_vanishes_without_a_daemon_is_found_again";
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let before = pid(&platform, "lan");
    platform.kill_daemon();
    must(&format!("ip -n {} link del client", platform.edge()));
    let gone = platform.host_netns("client");
    let gone = gone.file_name().expect("a name").to_string_lossy();
    must(&format!("ip netns del {gone}"));
    platform.host("client", "10.0.0.1/24");
    eventually("a ping crosses", || platform.pings("client", SERVER));
    // And once more while the next daemon starts.
    must(&format!("ip -n {} link del client", platform.edge()));
    platform.start();
    assert_eq!(pid(&platform, "lan"), before);
    eventually("its loss is told", || {
        platform.uplink("lan")["state"] == "down"
    });
    must(&format!("ip netns del {gone}"));
    platform.host("client", "10.0.0.1/24");
    eventually("a ping crosses again", || platform.pings("client", SERVER));
    eventually("its return is told", || {
        platform.events_of("lan").contains(&"uplink_up".to_owned())
    });
    // Everything is gone: the daemon, the process, the interface.
    platform.kill_daemon();
    signal(before, Signal::KILL);
    eventually("it is dead", || !is_alive(before));
    must(&format!("ip -n {} link del client", platform.edge()));
    platform.start();
    let told = platform.uplink("lan");
    assert_eq!(told["state"], "down");
    let reason = told["reason"].as_str().expect("a reason");
    assert!(reason.contains("no interface client"), "{reason}");
    must(&format!("ip netns del {gone}"));
    platform.host("client", "10.0.0.1/24");
    eventually("a ping crosses once more", || {
        platform.pings("client", SERVER)
    });
    assert_eq!(platform.apply(CHAIN), [""; 0], "all is as desired");
}

// promise: 7.17
#[test]
fn a_process_of_another_version_is_replaced() {
    let test = "a_process_of_another_version_is_replaced";
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let real = pid(&platform, "lan");
    platform.kill_daemon();
    signal(real, Signal::KILL);
    eventually("it is dead", || !is_alive(real));

    // A process that reports another version.
    let mut other = Command::new("sleep")
        .arg("1000")
        .stdin(Stdio::null())
        .spawn()
        .expect("sleep is there");
    let identity = ProcessIdentity::of(other.id()).expect("it runs");
    let directory = platform.run_dir().join("uplink-processes");
    let record = directory.join("lan.json");
    let text = std::fs::read_to_string(&record).expect("the record is there");
    let mut known: Value = serde_json::from_str(&text).expect("JSON");
    known["process"] = serde_json::to_value(&identity).expect("plain data");
    std::fs::write(&record, known.to_string()).expect("the directory is ours");
    let socket = directory.join("lan.sock");
    std::fs::remove_file(&socket).expect("it was left");
    let listener = UnixListener::bind(&socket).expect("the directory is ours");
    let served = thread::spawn(move || {
        let mut requests = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().expect("the daemon asks");
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
            reader.read_line(&mut line).expect("a request");
            requests.push(line.trim().to_owned());
            let hello =
                json!({ "hello": { "protocol": 0, "abi": 0, "version": "0.0.1", "status": {} } });
            writeln!(stream, "{hello}").expect("it listens");
        }
        requests
    });
    platform.start();
    assert_eq!(served.join().expect("served"), ["\"follow\"", "\"leave\""]);
    other.wait().expect("it was killed");
    assert!(is_alive(pid(&platform, "lan")));
    assert_eq!(platform.events_of("lan"), ["warning", "uplink_up"]);
    eventually("a ping crosses", || platform.pings("client", SERVER));
}

// promise: 7.18
#[test]
fn errors_of_an_uplink_come_through_its_process_and_nothing_is_left() {
    let test = "errors_of_an_uplink_come_through_its_process_and_nothing_is_left";
    let Some(platform) = two_hosts(test) else {
        return;
    };
    let scratch = Scratch::new("taken").expect("a platform");
    let mut spec = UplinkSpec::new("taken", "server", 1, 1);
    spec.netns = Some(Path::new("/run/netns").join(platform.edge()));
    let taken = Uplink::open(&scratch.switch, spec).expect("an uplink");
    let refused = platform.try_apply(CHAIN);
    assert!(!refused.succeeded());
    assert!(
        refused
            .stderr
            .contains("interface server has an XDP program already: 'uplink_"),
        "{refused:?}"
    );
    assert_eq!(uplink_processes(&platform), [0; 0]);
    taken.close(&scratch.switch).expect("close");
    drop(scratch);

    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    assert_eq!(uplink_processes(&platform).len(), 2);
    signal(pid(&platform, "lan"), Signal::STOP);
    // A program that ignores the request to end is killed, and its changes are undone.
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    assert_eq!(uplink_processes(&platform), [0; 0]);
    let shown = must(&format!("ip -n {} -j link", platform.edge()));
    assert!(!shown.contains("\"xdp\""), "{shown}");
    for place in ["uplinks", "uplink-processes"] {
        let left = std::fs::read_dir(platform.run_dir().join(place)).expect("it is there");
        assert_eq!(left.count(), 0, "{place}");
    }
    let pins = std::fs::read_dir(platform.pins().join("uplinks")).expect("it is there");
    assert_eq!(pins.count(), 0);
}

// promise: 2.15
#[test]
fn a_nic_that_cannot_classify_is_refused_and_what_runs_goes_on() {
    let test = "a_nic_that_cannot_classify_is_refused_and_what_runs_goes_on";
    let Some(platform) = two_hosts(test) else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let before = (pid(&platform, "lan"), uplink_processes(&platform));
    for steering in ["nic", "hybrid"] {
        let asked = CHAIN.replace(
            "interface: client,",
            &format!("interface: client, steering: {steering},"),
        );
        let refused = platform.try_apply(&asked);
        assert!(!refused.succeeded());
        for part in [
            "uplinks.lan.steering",
            "client cannot steer flows",
            "'steering: xdp'",
        ] {
            assert!(refused.stderr.contains(part), "{part}: {refused:?}");
        }
    }
    assert_eq!((pid(&platform, "lan"), uplink_processes(&platform)), before);
    assert!(platform.reaches("client", SERVER));
    // An uplink that classifies by XDP reports no NIC.
    assert_eq!(platform.uplink("lan")["steering"], Value::Null);
}
