//! The promise: nDPI runs in a process of its own, in a sandbox, and whatever becomes of that, packets go on and each
//! is counted once.

use nfluid_dpi::library::Library;
use nfluid_testbed::process::{is_alive, signal};
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};

use nfluid_tests::harness::within;

/// A question for the address of `example.org`.
const QUESTION: &[u8] =
    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01";
/// After more packets than nDPI is shown of a datagram's flow, it is decided.
const ENOUGH: u64 = 30;

fn document(config: &str) -> String {
    format!(
        "version: 1\ninstances:\n  dpi:\n    tier: xdp\n    nf: edpi\n    interface: client\n    \
         netns: EDGE\n    config: {{ flows: 1024, copies: 1MiB, remember: 1024{config} }}\n"
    )
}

/// A client that sends requests, always from the same port.
struct Questions {
    socket: UdpSocket,
    asked: u64,
}

impl Questions {
    fn new(platform: &Platform) -> Self {
        let socket = within(&platform.host_netns("client"), || {
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port")
        });
        Questions { socket, asked: 0 }
    }

    fn ask(&mut self, times: u64) {
        for _ in 0..times {
            let sent = self
                .socket
                .send_to(QUESTION, (Ipv4Addr::new(10, 0, 1, 2), 53));
            assert_eq!(sent.expect("there is a way"), QUESTION.len());
        }
        self.asked += times;
    }
}

fn inspection(platform: &Platform) -> Value {
    platform.instance("dpi")["fast"]["inspection"].clone()
}

fn pid(platform: &Platform) -> Option<u32> {
    let pid = inspection(platform)["pid"].as_u64()?;
    u32::try_from(pid).ok()
}

/// Packets of DNS, whichever way they took.
fn counted(platform: &Platform) -> u64 {
    let found = inspection(platform);
    // No application is known before the first flow is decided.
    let applications = found["applications"].as_array();
    let mut applications = applications.into_iter().flatten();
    let dns = applications.find(|one| one["name"] == "DNS");
    dns.map_or(0, |dns| dns["packets"].as_u64().unwrap_or(0))
}

fn all_are_counted(platform: &Platform, questions: &Questions, when: &str) {
    eventually(&format!("all questions are counted {when}"), || {
        let counted = counted(platform);
        assert!(counted <= questions.asked, "one was counted twice {when}");
        counted == questions.asked
    });
}

fn dropped(platform: &Platform) -> u64 {
    let packets = &platform.instance("dpi")["fast"]["packets"];
    packets["drop dropped"].as_u64().unwrap_or(0)
}

/// Checks the kernel's view of a process's confinement.
fn is_confined(pid: u32) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = |key: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(key));
        found.expect(key).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(line("Seccomp:"), ["2"], "a filter for system calls");
    assert_eq!(line("NoNewPrivs:"), ["1"]);
    assert_eq!(line("CapEff:"), ["0000000000000000"]);
    assert!(line("Uid:").iter().all(|uid| *uid != "0"), "{status}");
}

// promise: 15.27
#[test]
fn a_classifier_in_a_process_of_its_own_may_die_and_no_packet_is_lost_or_counted_twice() {
    let test =
        "a_classifier_in_a_process_of_its_own_may_die_and_no_packet_is_lost_or_counted_twice";
    if let Err(error) = Library::open() {
        skip(test, &error.to_string());
        return;
    }
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    let edge = platform.edge();
    for (host, subnet) in [("client", 0), ("server", 1)] {
        platform.host(host, &format!("10.0.{subnet}.2/24"));
        must(&format!(
            "ip -n {edge} address add 10.0.{subnet}.1/24 dev {host}"
        ));
        let routed = platform.on(host, &format!("ip route add default via 10.0.{subnet}.1"));
        assert!(routed.succeeded(), "{routed:?}");
    }
    must(&format!(
        "ip netns exec {edge} sysctl -qw net.ipv4.ip_forward=1"
    ));

    // Unknown or missing applications and libraries are refused before anything is made.
    for (config, why) in [
        (", applications: { Nonsense: { do: drop } }", "Nonsense"),
        (
            ", library: libndpi.so.there-is-none",
            "apt-get install libndpi",
        ),
        (", again: { look: 0 }", "again.look"),
    ] {
        let refused = platform.try_apply(&document(config));
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
    let made = platform.apply(&document(""));
    assert_eq!(made, ["created instance dpi"]);
    let first = pid(&platform).expect("it runs");
    is_confined(first);

    let mut questions = Questions::new(&platform);
    questions.ask(ENOUGH);
    all_are_counted(&platform, &questions, "at first");
    eventually("the fast path has the flow", || {
        inspection(&platform)["flows_fast"].as_u64() > Some(0)
    });

    // The process dies: packets flow, and its successor knows the same flows.
    signal(first, Signal::KILL);
    questions.ask(ENOUGH);
    eventually("another one runs", || {
        pid(&platform).is_some_and(|pid| pid != first)
    });
    let second = pid(&platform).expect("it runs");
    is_confined(second);
    assert_eq!(inspection(&platform)["deaths"], 1);
    questions.ask(ENOUGH);
    all_are_counted(&platform, &questions, "after its death");

    // Without a daemon packets flow; the next daemon takes the process over.
    platform.kill_daemon();
    questions.ask(ENOUGH);
    assert!(is_alive(second));
    platform.start();
    assert!(platform.events_of("dpi").contains(&"adopted".to_owned()));
    assert_eq!(pid(&platform), Some(second), "the same one");
    all_are_counted(&platform, &questions, "by the next daemon");

    // Another policy is in force at once, for flows that are known too.
    let unwanted = document(", applications: { DNS: { do: drop } }");
    assert_eq!(platform.apply(&unwanted), ["changed instance dpi"]);
    assert_eq!(pid(&platform), Some(second), "without a new process");
    eventually("the application is dropped", || {
        questions.ask(1);
        dropped(&platform) > 0
    });
    all_are_counted(&platform, &questions, "also those that were dropped");
    let refused = platform.try_apply(&document(", library: libndpi.so.there-is-none"));
    assert!(
        refused.stderr.contains("apt-get install libndpi"),
        "{refused:?}"
    );
    eventually("the former library classifies again", || {
        platform.instance("dpi")["state"] == "running"
    });
    let before = dropped(&platform);
    questions.ask(1);
    all_are_counted(&platform, &questions, "after a change that was refused");
    assert!(dropped(&platform) > before, "what was known is known");

    let last = pid(&platform).expect("it runs");
    let deleted = platform.nfluid(&["delete", "instance", "dpi"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    assert!(!is_alive(last));
    for folder in [
        platform.pins().join("fast"),
        platform.run_dir().join("fast"),
        platform.run_dir().join("control"),
    ] {
        let left: Vec<_> = fs::read_dir(&folder).expect("it is there").collect();
        assert!(left.is_empty(), "{left:?}");
    }
    for group in platform.cgroups() {
        assert!(!group.join("x-dpi").exists(), "{group:?}");
    }
}
