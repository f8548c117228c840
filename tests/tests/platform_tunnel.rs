//! Tunnels between two hosts: two daemons, each in a network namespace of its own, joined by a wire.

use nfluid_testbed::process::signal;
use nfluid_tests::harness::command::{must, run};
use nfluid_tests::harness::conversation::Conversation;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::soak::choose;
use nfluid_tests::harness::transfer::stream_between;
use nfluid_tests::harness::two_daemons::{TwoDaemons, WIRE};
use nfluid_tests::harness::two_hosts::SERVER;
use rustix::process::Signal;
use serde_json::Value;
use std::thread;
use std::time::Duration;

/// Two hosts with a wire between them.
struct Hosts {
    a: Platform,
    b: Platform,
}

impl Hosts {
    fn new(test: &str) -> Option<Self> {
        let TwoDaemons { a, b } = TwoDaemons::wired(test)?;
        Some(Hosts { a, b })
    }

    /// A link of the host's interface, through an instance, into a tunnel to the other host with these keys.
    fn document(local: &str, tunnel: &str) -> String {
        format!(
            "version: 1\nuplinks:\n  own: {{ interface: {local} }}\n  far: {{ interface: far0, tunnel: {{ {tunnel} }} }}\n\
             instances:\n  fw: {{ nf: bridge }}\nchains:\n  way: {{ from: own, to: far, via: [fw] }}\n"
        )
    }

    fn apply(&self, wire: [&str; 2], keys: &str) {
        let [at_a, at_b] = wire;
        let tunnel = |remote: &str| format!("remote: '{remote}', {keys}");
        self.a.apply(&Self::document("client", &tunnel(at_b)));
        self.b.apply(&Self::document("server", &tunnel(at_a)));
    }

    fn crosses(&self) -> bool {
        self.a.pings("client", SERVER)
    }

    fn stream(&self) {
        let (from, to) = (self.a.host_netns("client"), self.b.host_netns("server"));
        let address = format!("{SERVER}:7000").parse().expect("an address");
        stream_between([&from, &to], address, 4 << 20);
    }
}

/// What `ip` says of an interface of the platform's namespace; `None`: there is none.
fn interface(platform: &Platform, name: &str) -> Option<Value> {
    let edge = platform.edge();
    let shown = run(&format!(
        "ip -n {edge} -details -statistics -json link show {name}"
    ));
    let all: Value = serde_json::from_str(&shown.stdout).ok()?;
    list(&all).next().cloned()
}

fn index(platform: &Platform) -> u64 {
    let found = interface(platform, "far0").expect("the tunnel is there");
    found["ifindex"].as_u64().expect("a number")
}

// promise: 23.1
#[test]
fn a_tunnel_joins_chains_of_two_hosts() {
    let Some(hosts) = Hosts::new("a_tunnel_joins_chains_of_two_hosts") else {
        return;
    };
    for (kind, wire) in WIRE.into_iter().enumerate() {
        hosts.apply(wire, "vni: 77");
        eventually("frames cross", || hosts.crosses());
        hosts.stream();
        let tunnel = interface(&hosts.a, "far0").expect("the tunnel");
        let mtu = [1550, 1530][kind];
        assert_eq!(tunnel["mtu"], mtu, "what the wire leaves: {tunnel}");
        let status = hosts.a.uplink("far");
        assert_eq!(status["kind"], "tunnel", "{status}");
    }
    // A tunnel with another number at the other end is another tunnel.
    hosts.a.apply(&Hosts::document(
        "client",
        "remote: 192.0.2.2, vni: 78, mtu: 1400",
    ));
    eventually("nothing crosses", || !hosts.crosses());
    hosts.b.apply(&Hosts::document(
        "server",
        "remote: 192.0.2.1, vni: 78, mtu: 1400",
    ));
    eventually("frames cross", || hosts.crosses());
    assert_eq!(
        interface(&hosts.a, "far0").expect("the tunnel")["mtu"],
        1400
    );
    // What is longer than the tunnel takes is counted.
    let too_long = format!("ping -n -c 3 -i 0.2 -W 1 -s 1440 {SERVER}");
    assert!(!hosts.a.on("client", &too_long).succeeded());
    eventually("they are counted", || {
        let drops = hosts.a.uplink("far")["counters"]["drops"].clone();
        drops
            .as_object()
            .is_some_and(|drops| drops.values().any(|count| count.as_u64() >= Some(3)))
    });
}

// promise: 23.2
#[test]
fn frames_go_to_the_named_host_alone_and_the_hosts_own_stack_sends_none() {
    let Some(hosts) = Hosts::new("frames_go_to_the_named_host_alone") else {
        return;
    };
    hosts.apply(WIRE[0], "vni: 77");
    eventually("frames cross", || hosts.crosses());
    // Routes and neighbours of the host's own would make it speak.
    let edge = hosts.a.edge();
    let before =
        interface(&hosts.a, "far0").expect("the tunnel")["stats64"]["tx"]["packets"].clone();
    thread::sleep(Duration::from_secs(2));
    let after =
        interface(&hosts.a, "far0").expect("the tunnel")["stats64"]["tx"]["packets"].clone();
    assert_eq!(before, after, "nobody has sent");
    let known = run(&format!("bridge -n {edge} fdb show dev far0")).stdout;
    let places: Vec<&str> = known.lines().filter(|line| line.contains("dst")).collect();
    assert!(
        !places.is_empty() && places.iter().all(|place| place.contains("dst 192.0.2.2")),
        "{known}"
    );
}

// promise: 23.3
#[test]
fn a_tunnel_outlives_its_daemon_and_goes_with_its_uplink() {
    let Some(mut hosts) = Hosts::new("a_tunnel_outlives_its_daemon") else {
        return;
    };
    hosts.apply(WIRE[0], "vni: 77");
    eventually("frames cross", || hosts.crosses());
    let made = index(&hosts.a);
    hosts.a.kill_daemon();
    assert!(hosts.crosses(), "it needs no daemon");
    hosts.a.start();
    assert!(hosts.crosses());
    // Its process ends; the tunnel stays the same.
    let pid =
        |platform: &Platform| platform.uplink("far")["pid"].as_u64().expect("its process") as u32;
    let process = pid(&hosts.a);
    signal(process, Signal::KILL);
    eventually("another process runs", || {
        hosts.a.uplink("far")["pid"]
            .as_u64()
            .is_some_and(|now| now != u64::from(process))
    });
    eventually("frames cross again", || hosts.crosses());
    assert_eq!(index(&hosts.a), made);
    // Somebody removes it: it is made again.
    must(&format!("ip -n {} link delete far0", hosts.a.edge()));
    eventually("it is there again", || {
        interface(&hosts.a, "far0").is_some()
    });
    eventually("frames cross again", || hosts.crosses());
    hosts.stream();
    // Both are killed: the next daemon knows its own.
    let process = pid(&hosts.a);
    hosts.a.kill_daemon();
    signal(process, Signal::KILL);
    hosts.a.start();
    eventually("frames cross again", || hosts.crosses());
    hosts.a.must_say(&["delete", "--all"]);
    assert!(
        interface(&hosts.a, "far0").is_none(),
        "it goes with its uplink"
    );
    hosts.b.terminate_daemon();
    assert!(
        interface(&hosts.b, "far0").is_none(),
        "it goes with a daemon that is stopped"
    );
}

// promise: 23.4
#[test]
fn a_tunnel_that_cannot_be_is_refused_and_leaves_nothing() {
    let Some(hosts) = Hosts::new("a_tunnel_that_cannot_be_is_refused") else {
        return;
    };
    let edge = hosts.a.edge();
    must(&format!(
        "ip -n {edge} link add mine type vxlan id 9 remote 192.0.2.9 dstport 4789"
    ));
    let uplinks = |uplinks: &str| format!("version: 1\nuplinks: {{ {uplinks} }}\n");
    let one = |keys: &str| uplinks(&format!("far: {{ interface: far0, tunnel: {{ {keys} }} }}"));
    let good = "remote: 192.0.2.2, vni: 7";
    for (document, why) in [
        (one("vni: 7"), "the tunnel has no 'remote'"),
        (one("remote: 192.0.2.2"), "the tunnel has no 'vni'"),
        (one("remote: 192.0.2.2, vni: 0"), "vni"),
        (one("remote: 192.0.2.2, vni: 16777216"), "vni"),
        (one("remote: 239.0.0.1, vni: 7"), "is no address of a host"),
        (
            one("remote: 192.0.2.2, local: 'fd00:2::1', vni: 7"),
            "IPv4 address, the other one IPv6",
        ),
        (one("remote: 192.0.2.2, vni: 7, mtu: 100"), "mtu"),
        (one("remote: 192.0.2.2, vni: 7, ttl: 3"), "ttl"),
        (
            uplinks(&format!("far: {{ interface: mine, tunnel: {{ {good} }} }}")),
            "there is an interface 'mine' already",
        ),
        (
            uplinks(&format!(
                "far: {{ interface: far0, kind: tap, tunnel: {{ {good} }} }}"
            )),
            "a tap is no tunnel",
        ),
        (
            uplinks(&format!(
                "far: {{ interface: far0, netns: none, tunnel: {{ {good} }} }}"
            )),
            "there is no network namespace",
        ),
        (
            uplinks(&format!(
                "far: {{ interface: far0, tunnel: {{ {good} }} }}, also: {{ interface: far1, tunnel: {{ {good} }} }}"
            )),
            "has the number 7 already",
        ),
        // Only the kernel knows that the number is taken.
        (one("remote: 192.0.2.2, vni: 9"), "making the tunnel far0"),
        (
            one("remote: 198.51.100.7, local: 192.0.2.77, vni: 7, mtu: 9216"),
            "",
        ),
    ] {
        let outcome = hosts.a.try_apply(&document);
        if why.is_empty() {
            // Whether the other host can be reached is known when frames go there.
            assert!(outcome.succeeded(), "{document}: {outcome:?}");
            hosts.a.must_say(&["delete", "--all"]);
        } else {
            assert!(!outcome.succeeded(), "{document}");
            let said = format!("{}{}", outcome.stdout, outcome.stderr);
            assert!(said.contains(why), "{document}: {said}");
        }
        assert!(interface(&hosts.a, "far0").is_none(), "{document}");
    }
    assert!(
        interface(&hosts.a, "mine").is_some(),
        "another's interface stays"
    );
}

// promise: 7.46
#[test]
fn a_function_moves_to_the_other_host_without_loss() {
    let Some(hosts) = Hosts::new("a_function_moves_to_the_other_host_without_loss") else {
        return;
    };
    let document = |local: &str, remote: &str, functions: &[&str]| {
        let instances: String = functions
            .iter()
            .map(|name| format!("  {name}: {{ nf: bridge }}\n"))
            .collect();
        format!(
            "version: 1\nuplinks:\n  own: {{ interface: {local} }}\n  far: {{ interface: far0, tunnel: {{ remote: {remote}, vni: 77 }} }}\n\
             instances:\n{instances}chains:\n  way: {{ from: own, to: far, via: [{}] }}\n",
            functions.join(", ")
        )
    };
    let at_a = |functions: &[&str]| hosts.a.apply(&document("client", WIRE[0][1], functions));
    let at_b = |functions: &[&str]| hosts.b.apply(&document("server", WIRE[0][0], functions));
    at_a(&["own-a", "fw"]);
    at_b(&["own-b"]);
    eventually("frames cross", || hosts.crosses());
    let talk = Conversation::between(&hosts.a, &hosts.b);
    for turn in 0..choose(2, 50) {
        // The other host has it before this one has it no longer.
        at_b(&["own-b", "fw"]);
        at_a(&["own-a"]);
        talk.has_answers(300, &format!("there, turn {turn}"));
        at_a(&["own-a", "fw"]);
        at_b(&["own-b"]);
        talk.has_answers(300, &format!("here again, turn {turn}"));
    }
    let books = talk.end();
    assert_eq!((books.lost, books.answered_twice), (0, 0), "{books:?}");
}
