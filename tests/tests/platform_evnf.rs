//! The promise: a network function in XDP is an instance like any other - applied, described, counted, changed, adopted,
//! deleted - and the kernel's rules are in force behind it all the time.

use nfluid_evnf::firewall::Firewall;
use nfluid_tests::harness::platform::{PATIENCE, Platform, eventually, list, must};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[path = "uplink_ground/mod.rs"]
mod uplink_ground;
use uplink_ground::within;

const FIREWALL: &str = "
version: 1
instances:
  fw: { tier: xdp, nf: efw, interface: client, netns: EDGE }
";

const RULES: &str = "table ip filter { chain forward { type filter hook forward priority 0; \
    udp dport 9 drop; ct state invalid drop; udp dport 10 accept; }; }";

/// A router between a client and servers, in the namespace of the platform's interfaces.
fn routed(platform: &mut Platform, hosts: &[(&str, &str, &str)]) {
    let edge = platform.edge();
    for (host, address, gateway) in hosts {
        platform.host(host, &format!("{address}/24"));
        must(&format!("ip -n {edge} address add {gateway}/24 dev {host}"));
        let routed = platform.on(host, &format!("ip route add default via {gateway}"));
        assert!(routed.succeeded(), "{routed:?}");
    }
    must(&format!(
        "ip netns exec {edge} sysctl -qw net.ipv4.ip_forward=1"
    ));
}

fn nft(platform: &Platform, rules: &str) {
    let file = platform.directory().join("rules.nft");
    fs::write(&file, rules).expect("the directory is ours");
    let edge = platform.edge();
    must(&format!(
        "ip netns exec {edge} nft -f {}",
        file.to_str().expect("text")
    ));
}

/// The XDP program on an interface of the edge, by its number.
fn program_on(platform: &Platform, interface: &str) -> Option<u64> {
    let edge = platform.edge();
    let links = must(&format!("ip -n {edge} -j link show {interface}"));
    let links: Value = serde_json::from_str(&links).expect("JSON was asked for");
    links[0]["xdp"]["prog"]["id"].as_u64()
}

/// A figure of an instance.
fn metric(platform: &Platform, instance: &str, name: &str) -> u64 {
    let stats = platform.ask(&["stats"]);
    let found = list(&stats["instances"]).find(|one| one["name"] == instance);
    let metrics = found.map(|one| one["metrics"].clone()).unwrap_or_default();
    metrics[name].as_f64().unwrap_or(0.0) as u64
}

fn dropped(platform: &Platform) -> u64 {
    metric(
        platform,
        "fw",
        "xdp_packets{verdict=\"drop\",reason=\"rule\"}",
    )
}

/// Sends datagrams until the fast path has dropped one more.
fn are_dropped(platform: &Platform, port: u16) {
    let before = dropped(platform);
    eventually(
        &format!("the fast path drops what is for port {port}"),
        || {
            send(platform, port);
            dropped(platform) > before
        },
    );
}

fn send(platform: &Platform, port: u16) {
    let netns = platform.host_netns("client");
    within(&netns, || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
        // Who does not listen may have said so.
        let _sent = socket.send_to(b"x", (Ipv4Addr::new(10, 0, 1, 2), port));
    });
}

#[test]
fn a_firewall_in_xdp_follows_the_hosts_rules_through_kill_and_change_and_leaves_nothing() {
    let test =
        "a_firewall_in_xdp_follows_the_hosts_rules_through_kill_and_change_and_leaves_nothing";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    routed(
        &mut platform,
        &[
            ("client", "10.0.0.2", "10.0.0.1"),
            ("server", "10.0.1.2", "10.0.1.1"),
        ],
    );
    nft(&platform, RULES);
    assert_eq!(platform.apply(FIREWALL), ["created instance fw"]);
    let fw = platform.instance("fw");
    assert_eq!(
        (&fw["state"], &fw["tier"]),
        (&"running".into(), &"xdp".into())
    );
    let rules = &fw["fast"]["rules"];
    let reasons: Vec<&Value> = list(&rules["by_kernel"]).collect();
    assert_eq!(reasons.len(), 1, "{rules}");
    assert_eq!(reasons[0]["chain"], "forward");
    assert!(reasons[0]["handle"].is_u64(), "{rules}");
    assert!(
        platform.reaches("client", "10.0.1.2"),
        "what is allowed passes"
    );
    are_dropped(&platform, 9);
    let described = platform.nfluid(&["describe", "instance", "fw"]);
    assert!(described.stdout.contains("by_kernel"), "{described:?}");
    let paused = platform.nfluid(&["pause", "fw"]);
    assert!(paused.stderr.contains("it has no process"), "{paused:?}");

    // A change of the rules is followed.
    let edge = platform.edge();
    must(&format!(
        "ip netns exec {edge} nft insert rule ip filter forward udp dport 11 drop"
    ));
    are_dropped(&platform, 11);

    // Without a daemon the fast path goes on; the next one has the rules as they are then.
    let counted = dropped(&platform);
    platform.kill_daemon();
    assert!(program_on(&platform, "client").is_some(), "it goes on");
    must(&format!("ip netns exec {edge} nft flush ruleset"));
    nft(&platform, &RULES.replace("dport 9", "dport 12"));
    platform.start();
    assert!(platform.events_of("fw").contains(&"adopted".to_owned()));
    assert!(dropped(&platform) >= counted, "it counts on");
    are_dropped(&platform, 12);
    assert!(platform.reaches("client", "10.0.1.2"));
    assert_eq!(platform.apply(FIREWALL), [""; 0], "nothing to change");

    // Who else wants the interface is told who has it.
    let refused = platform.try_apply(&format!(
        "{FIREWALL}  other: {{ tier: xdp, nf: efw, interface: client, netns: EDGE }}\n"
    ));
    assert!(
        refused.stderr.contains("'fw' has the interface"),
        "{refused:?}"
    );
    let deleted = platform.nfluid(&["delete", "instance", "fw"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    nothing_is_left(&platform, &["client"]);
}

fn nothing_is_left(platform: &Platform, interfaces: &[&str]) {
    for interface in interfaces {
        assert_eq!(program_on(platform, interface), None, "{interface}");
    }
    for folder in [
        platform.pins().join("fast"),
        platform.run_dir().join("fast"),
    ] {
        let left: Vec<_> = fs::read_dir(&folder).expect("it is there").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_fast_path_that_cannot_be_leaves_everything_as_it_was() {
    let test = "a_fast_path_that_cannot_be_leaves_everything_as_it_was";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    platform.host("client", "10.0.0.2/24");
    platform.host("taken", "10.0.1.2/24");
    platform.apply("version: 1\nuplinks:\n  up: { interface: taken, netns: EDGE }\n");
    let owner = program_on(&platform, "taken").expect("an uplink has it");
    let document = |instance: &str| {
        format!(
            "version: 1\nuplinks:\n  up: {{ interface: taken, netns: EDGE }}\ninstances:\n  \
             x: {{ tier: xdp, netns: EDGE, {instance} }}\n"
        )
    };
    let cases = [
        (
            "nf: efw, interface: nowhere",
            "there is no interface 'nowhere'",
        ),
        ("nf: efw, interface: taken", "uplink 'up' has the interface"),
        (
            "nf: efw, interface: client, config: { rules: mine }",
            "rules",
        ),
        ("nf: nat, interface: client", "has no fast path"),
        (
            "nf: elb, interface: client, config: { services: { a: { at: '10.9.9.9:80', servers: [{ at: '[::1]:80' }] } } }",
            "cannot serve",
        ),
    ];
    for (instance, why) in cases {
        let refused = platform.try_apply(&document(instance));
        assert_eq!(refused.code, Some(1), "{instance}: {refused:?}");
        assert!(refused.stderr.contains(why), "{instance}: {refused:?}");
    }
    // Found out when it is carried out: the first interface is let go again.
    platform.apply("version: 1\n");
    assert_eq!(program_on(&platform, "taken"), None);
    let mut somebody = Firewall::load(&[], &[]).expect("the kernel takes it");
    let netns = Path::new("/run/netns").join(platform.edge());
    let hold = within(&netns, || somebody.fast().attach("taken")).expect("nobody has it");
    let foreign = program_on(&platform, "taken").expect("somebody else's");
    let both = "version: 1\ninstances:\n  x: { tier: xdp, nf: efw, interface: [client, taken], netns: EDGE }\n";
    let refused = platform.try_apply(both);
    assert!(!refused.succeeded(), "{refused:?}");
    assert!(
        refused.stderr.contains(&format!("(id {foreign})")),
        "{refused:?}"
    );
    assert_eq!(program_on(&platform, "taken"), Some(foreign));
    assert_ne!(owner, foreign);
    drop(hold);
    nothing_is_left(&platform, &["client"]);
}

const VIP: (Ipv4Addr, u16) = (Ipv4Addr::new(203, 0, 113, 1), 80);

/// Two servers that say who they are, whenever they are asked.
struct Servers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    fn start(platform: &Platform, hosts: &[&'static str]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = hosts.iter().map(|host| {
            let listener = within(&platform.host_netns(host), || {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8080))
            });
            let listener = listener.expect("a port");
            listener.set_nonblocking(true).expect("it can be");
            let (host, stop) = (*host, Arc::clone(&stop));
            thread::spawn(move || serve(&listener, host, &stop))
        });
        let threads = threads.collect();
        Servers { stop, threads }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("it ends");
        }
    }
}

fn serve(listener: &TcpListener, host: &str, stop: &AtomicBool) {
    let mut clients: Vec<TcpStream> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if let Ok((client, _)) = listener.accept() {
            client.set_nonblocking(true).expect("it can be");
            clients.push(client);
        }
        for client in &mut clients {
            if client.read(&mut [0; 1]).is_ok_and(|got| got > 0) {
                // It may have gone meanwhile.
                let _sent = client.write_all(host.as_bytes());
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn connect(platform: &Platform) -> Option<TcpStream> {
    within(&platform.host_netns("client"), || {
        let at = SocketAddr::from(VIP);
        let stream = TcpStream::connect_timeout(&at, Duration::from_secs(2)).ok()?;
        let patience = Some(PATIENCE);
        stream.set_read_timeout(patience).expect("a time");
        Some(stream)
    })
}

/// Who answers on a connection.
fn who(stream: &mut TcpStream) -> String {
    let mut name = [0; 2];
    stream.write_all(b"?").expect("it is connected");
    stream.read_exact(&mut name).expect("it is answered");
    String::from_utf8_lossy(&name).into_owned()
}

/// Who answers so many new connections.
fn asked(platform: &Platform, times: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for _ in 0..times {
        if let Some(mut stream) = connect(platform) {
            found.insert(who(&mut stream));
        }
    }
    found
}

fn balancer(first: &str) -> String {
    format!(
        "version: 1\ninstances:\n  lb:\n    tier: xdp\n    nf: elb\n    interface: [client, s1, s2]\n    \
         netns: EDGE\n    config:\n      connections: 1000\n      services:\n        web:\n          \
         at: 203.0.113.1:80\n          health: {{ check: tcp, interval: 50ms, timeout: 30s }}\n          \
         servers:\n            - {{ {first} }}\n            - {{ at: 10.0.2.2:8080 }}\n"
    )
}

fn state_of(platform: &Platform, server: usize) -> String {
    let lb = platform.instance("lb");
    let state = &lb["fast"]["services"][0]["servers"][server]["state"];
    state.as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_balancer_in_xdp_keeps_connections_over_changes_and_kills_and_looks_after_its_servers() {
    let test =
        "a_balancer_in_xdp_keeps_connections_over_changes_and_kills_and_looks_after_its_servers";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    routed(
        &mut platform,
        &[
            ("client", "10.0.0.2", "10.0.0.1"),
            ("s1", "10.0.1.2", "10.0.1.1"),
            ("s2", "10.0.2.2", "10.0.2.1"),
        ],
    );
    let servers = Servers::start(&platform, &["s1", "s2"]);
    let both = balancer("at: 10.0.1.2:8080, weight: 3");
    assert_eq!(platform.apply(&both), ["created instance lb"]);
    assert_eq!(asked(&platform, 40).len(), 2, "both have connections");
    let mut kept: Vec<(TcpStream, String)> = Vec::new();
    eventually("twenty connections are there", || {
        if let Some(mut stream) = connect(&platform) {
            let name = who(&mut stream);
            kept.push((stream, name));
        }
        kept.len() >= 20
    });
    let mut all_are_kept = |when: &str| {
        for (stream, name) in &mut kept {
            assert_eq!(who(stream), *name, "{when}");
        }
    };

    let drained = balancer("at: 10.0.1.2:8080, drain: true");
    assert_eq!(platform.apply(&drained), ["changed instance lb"]);
    assert_eq!(asked(&platform, 20), BTreeSet::from(["s2".to_owned()]));
    all_are_kept("one drains");
    platform.kill_daemon();
    all_are_kept("without a daemon");
    assert_eq!(asked(&platform, 5), BTreeSet::from(["s2".to_owned()]));
    platform.start();
    assert!(platform.events_of("lb").contains(&"adopted".to_owned()));
    all_are_kept("with another daemon");
    platform.apply(&both);
    eventually("both have connections again", || {
        asked(&platform, 10).len() == 2
    });
    all_are_kept("both are there again");
    let sent = metric(
        &platform,
        "lb",
        "xdp_packets{verdict=\"send\",reason=\"sent\"}",
    );
    assert!(sent > 0);

    let refused = platform.try_apply(&both.replace("connections: 1000", "connections: 2000"));
    assert!(
        refused.stderr.contains("cannot change its size"),
        "{refused:?}"
    );
    all_are_kept("after a change that was refused");

    servers.end();
    eventually("it is seen that nobody listens", || {
        [0, 1]
            .iter()
            .all(|server| state_of(&platform, *server) == "down")
    });
    assert!(connect(&platform).is_none(), "nobody is there");
    let lost = "xdp_packets{verdict=\"drop\",reason=\"no_server\"}";
    assert!(metric(&platform, "lb", lost) > 0, "and it is counted");
    let servers = Servers::start(&platform, &["s1", "s2"]);
    eventually("they are up again", || {
        [0, 1]
            .iter()
            .all(|server| state_of(&platform, *server) == "up")
    });
    assert_eq!(asked(&platform, 40).len(), 2);
    servers.end();
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    nothing_is_left(&platform, &["client", "s1", "s2"]);
}
