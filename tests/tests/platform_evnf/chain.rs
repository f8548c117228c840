//! Several fast paths on one interface: members come, change, move and go while packets pass, with and without a
//! daemon.

use crate::fixture::{
    Servers, are_dropped, asked, connect, connect_to, dropped, metric, nft, nothing_is_left,
    program_on, routed, who,
};
use nfluid_tests::harness::command::{must, run};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

/// No rule that only the kernel can decide: packets that are not dropped go to the balancer.
const RULES: &str =
    "table ip filter { chain forward { type filter hook forward priority 0; udp dport 9 drop; }; }";
/// A rule that only the kernel can evaluate, and that a balancer's packets would bypass.
const BEHIND: &str = "table ip behind { chain out { type filter hook postrouting priority 0; udp dport 12 drop; }; }";

fn firewall(order: u16) -> String {
    format!("  fw: {{ tier: xdp, nf: efw, interface: client, netns: EDGE, order: {order} }}\n")
}

fn balancer(more: &str, first: &str) -> String {
    format!(
        "  lb:\n    tier: xdp\n    nf: elb\n    interface: [client, s1, s2]\n    netns: EDGE\n{more}    \
         config:\n      connections: 1000\n      services:\n        web:\n          at: 203.0.113.1:80\n          \
         servers:\n            - {{ at: 10.0.1.2:8080{first} }}\n            - {{ at: 10.0.2.2:8080 }}\n"
    )
}

fn document(instances: &[&str]) -> String {
    format!("version: 1\ninstances:\n{}", instances.concat())
}

/// Returns the fast paths on the client's interface.
fn at_client(platform: &Platform) -> Value {
    platform.instance("lb")["fast"]["interfaces"][0].clone()
}

fn chain(platform: &Platform) -> Vec<String> {
    let at_client = at_client(platform);
    let names = at_client["chain"].as_array().into_iter().flatten();
    names
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

fn sent(platform: &Platform) -> u64 {
    let name = "xdp_packets{verdict=\"send\",reason=\"sent\"}";
    metric(platform, "lb", name)
}

fn passed(platform: &Platform) -> u64 {
    let name = "xdp_packets{verdict=\"pass\",reason=\"accept\"}";
    metric(platform, "fw", name)
}

/// Has the client's interface get another name, and its own again.
fn rename_and_back(platform: &Platform) {
    let edge = platform.edge();
    let rename = |from: &str, to: &str| {
        must(&format!("ip -n {edge} link set {from} down"));
        must(&format!("ip -n {edge} link set {from} name {to}"));
        must(&format!("ip -n {edge} link set {to} up"));
    };
    rename("client", "other");
    eventually("it is seen that nothing has its name", || {
        at_client(platform)["mode"].is_null()
    });
    assert_eq!(platform.instance("fw")["state"], "unhealthy");
    assert_eq!(program_on(platform, "other"), None, "it is another one");
    rename("other", "client");
    eventually("it has its name again", || {
        !at_client(platform)["mode"].is_null()
    });
}

/// Has the client's interface vanish and come back.
fn pull_and_plug(platform: &Platform) {
    let edge = platform.edge();
    let client = platform.host_netns("client");
    let client = client.file_name().expect("a name").to_string_lossy();
    must(&format!("ip -n {edge} link del client"));
    eventually("it is seen that the interface is gone", || {
        at_client(platform)["mode"].is_null()
    });
    assert_eq!(platform.instance("fw")["state"], "unhealthy");
    must(&format!(
        "ip -n {edge} link add client type veth peer name eth0 netns {client}"
    ));
    must(&format!("ip -n {edge} link set client up"));
    must(&format!("ip -n {edge} address add 10.0.0.1/24 dev client"));
    must(&format!("ip -n {client} address add 10.0.0.2/24 dev eth0"));
    must(&format!("ip -n {client} link set eth0 up"));
    must(&format!(
        "ip -n {client} route add default via 10.0.0.1 dev eth0"
    ));
}

// promise: 15.16, 15.17
#[test]
fn members_of_a_chain_come_change_move_and_go_while_connections_are_kept() {
    let test = "members_of_a_chain_come_change_move_and_go_while_connections_are_kept";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    routed(&mut platform, &["client", "s1", "s2"]);
    nft(&platform, RULES);
    let servers = Servers::start(&platform, &["s1", "s2"]);
    platform.apply(&document(&[&balancer("", "")]));
    let mut kept: Vec<(TcpStream, String)> = Vec::new();
    eventually("connections to both servers are there", || {
        if let Some(mut stream) = connect(&platform) {
            let name = who(&mut stream);
            kept.push((stream, name));
        }
        let names: BTreeSet<&String> = kept.iter().map(|(_, name)| name).collect();
        names.len() == 2
    });
    let mut all_are_kept = |when: &str| {
        for (stream, name) in &mut kept {
            assert_eq!(who(stream), *name, "{when}");
        }
    };

    // One is placed before the existing one, which stays.
    let lb = balancer("    order: 20\n", "");
    let both = document(&[&firewall(10), &lb]);
    assert_eq!(
        platform.apply(&both),
        ["changed instance lb", "created instance fw"]
    );
    assert_eq!(chain(&platform), ["fw", "lb"]);
    let before = (passed(&platform), sent(&platform));
    all_are_kept("a firewall is before the balancer");
    assert!(passed(&platform) > before.0, "each counts what it has met");
    assert!(sent(&platform) > before.1, "each counts what it has met");
    are_dropped(&platform, 9);

    // The order changes: by itself, and by the deployment.
    let edge = platform.edge();
    must(&format!(
        "ip netns exec {edge} nft insert rule ip filter forward udp dport 11 drop"
    ));
    are_dropped(&platform, 11);
    all_are_kept("the firewall's rules have changed");
    let drained = document(&[&firewall(10), &balancer("    order: 20\n", ", drain: true")]);
    assert_eq!(platform.apply(&drained), ["changed instance lb"]);
    all_are_kept("a server drains");

    // A change that cannot be recorded is not made: after a crash, numbers would be assigned twice.
    let record = platform.run_dir().join("fast/lb.json");
    let text = fs::read(&record).expect("it is there");
    fs::remove_file(&record).expect("it is ours");
    fs::create_dir(&record).expect("it is ours");
    let refused = platform.try_apply(&both);
    assert!(!refused.succeeded(), "{refused:?}");
    assert_eq!(asked(&platform, 10), BTreeSet::from(["s2".to_owned()]));
    fs::remove_dir(&record).expect("it is ours");
    fs::write(&record, text).expect("it is ours");

    // All of it needs no daemon.
    let counted = dropped(&platform);
    platform.kill_daemon();
    all_are_kept("without a daemon");
    assert_eq!(asked(&platform, 5), BTreeSet::from(["s2".to_owned()]));
    platform.start();
    for name in ["fw", "lb"] {
        let events = platform.events_of(name);
        assert!(events.contains(&"adopted".to_owned()), "{name}: {events:?}");
    }
    assert_eq!(chain(&platform), ["fw", "lb"]);
    assert!(dropped(&platform) >= counted, "it counts on");
    all_are_kept("with another daemon");
    are_dropped(&platform, 11);

    // Packets that only the kernel can drop do not go to the balancer, which would forward them.
    let held_back = |platform: &Platform| {
        let fw = platform.instance("fw");
        fw["fast"]["rules"]["held_back"].is_string()
    };
    nft(&platform, BEHIND);
    eventually("the firewall leaves all to the kernel", || {
        held_back(&platform)
    });
    must(&format!("ip netns exec {edge} nft delete table ip behind"));
    eventually("the firewall decides again", || !held_back(&platform));
    all_are_kept("a rule behind the balancer came and went");

    // Places change, and one that cannot be among them is refused.
    let swapped = document(&[&firewall(30), &lb]);
    assert_eq!(
        platform.apply(&swapped),
        ["changed instance fw", "changed instance lb"]
    );
    assert_eq!(chain(&platform), ["lb", "fw"]);
    all_are_kept("the firewall is behind the balancer");
    are_dropped(&platform, 9);
    let refused = platform.try_apply(&document(&[&firewall(20), &lb]));
    assert!(refused.stderr.contains("fw.order") || refused.stderr.contains("lb.order"));
    platform.apply(&both);

    // Fast paths are removed in any order, the others stay.
    assert_eq!(platform.apply(&document(&[&lb])), ["removed instance fw"]);
    assert_eq!(asked(&platform, 10).len(), 2, "the balancer is alone again");
    assert!(chain(&platform).is_empty());
    platform.apply(&both);

    // The interface is called otherwise for a while, then vanishes and comes back.
    rename_and_back(&platform);
    all_are_kept("the interface was called otherwise");
    pull_and_plug(&platform);
    eventually("both are on the interface again, and serve", || {
        !at_client(&platform)["mode"].is_null()
            && platform.instance("fw")["state"] == "running"
            && connect(&platform).is_some()
    });
    assert_eq!(chain(&platform), ["fw", "lb"]);
    are_dropped(&platform, 9);
    platform.apply(&document(&[&firewall(10)]));
    are_dropped(&platform, 9);

    // Tables that nobody announces, and which stay as long as the namespace.
    platform.apply(&both);
    if run(&format!("ip netns exec {edge} iptables-legacy -nL")).succeeded() {
        eventually("tables of iptables-legacy are seen", || {
            held_back(&platform)
        });
    } else {
        skip(test, "its last part: iptables-legacy is not here");
    }
    servers.end();
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    nothing_is_left(&platform, &["client", "s1", "s2"]);
}

// promise: 15.18
#[test]
fn a_direct_server_answers_by_itself_and_an_interface_without_native_xdp_is_told() {
    let test = "a_direct_server_answers_by_itself_and_an_interface_without_native_xdp_is_told";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    routed(&mut platform, &["client", "s1"]);
    let edge = platform.edge();
    // Replies have the service's address, to which the router has no route.
    must(&format!(
        "ip netns exec {edge} sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.s1.rp_filter=0"
    ));
    let own = platform.on("s1", "ip address add 203.0.113.1/32 dev lo");
    assert!(own.succeeded(), "{own:?}");
    // Frames that native XDP on the other end of the pair cannot take.
    let long = platform.on("client", "ip link set eth0 mtu 9000");
    assert!(long.succeeded(), "{long:?}");
    let servers = Servers::start(&platform, &["s1"]);
    let document = |mode: &str| {
        format!(
            "version: 1\ninstances:\n  lb:\n    tier: xdp\n    nf: elb\n    interface: [client, s1]\n    netns: EDGE\n    \
             mode: {mode}\n    config:\n      services:\n        web:\n          at: 203.0.113.1:8080\n          mode: dsr\n          \
             health: {{ check: tcp, interval: 50ms, timeout: 5s }}\n          servers: [{{ at: 10.0.1.2:8080 }}]\n"
        )
    };
    let refused = platform.try_apply(&document("native"));
    assert!(
        refused
            .stderr
            .contains("interface client takes no XDP program"),
        "{refused:?}"
    );
    nothing_is_left(&platform, &["client", "s1"]);
    platform.apply(&document("auto"));
    let interfaces = platform.instance("lb")["fast"]["interfaces"].clone();
    assert_eq!(interfaces[0]["mode"], "generic", "{interfaces}");
    assert!(interfaces[0]["reason"].is_string(), "{interfaces}");
    assert_eq!(interfaces[1]["mode"], "native", "{interfaces}");
    let told = interfaces[1]["reason"].as_str();
    assert!(
        told.is_some_and(|why| why.contains("'mode: tc'")),
        "{interfaces}"
    );

    let at = SocketAddr::from((Ipv4Addr::new(203, 0, 113, 1), 8080));
    let mut stream = None;
    eventually("the server has a connection", || {
        stream = connect_to(&platform, at);
        stream.is_some()
    });
    let mut stream = stream.expect("it is there");
    assert_eq!(who(&mut stream), "s1");
    assert!(sent(&platform) > 0);
    let returned = "xdp_packets{verdict=\"send\",reason=\"returned\"}";
    assert_eq!(metric(&platform, "lb", returned), 0, "it answers by itself");
    platform.kill_daemon();
    assert_eq!(who(&mut stream), "s1", "without a daemon");
    platform.start();
    assert_eq!(who(&mut stream), "s1", "with another daemon");
    servers.end();
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    nothing_is_left(&platform, &["client", "s1"]);
}
