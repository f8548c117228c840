//! The promise: a network function in XDP is an instance like any other - applied, described, counted, changed,
//! adopted, deleted - and the kernel's rules are in force behind it all the time.

use nfluid_evnf::firewall::Firewall;
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::Path;

#[path = "uplink_fixture/mod.rs"]
mod uplink_fixture;
use nfluid_tests::harness::within;
#[path = "platform_evnf/chain.rs"]
mod chain;
#[path = "platform_evnf/fixture.rs"]
mod fixture;
#[path = "platform_evnf/slow.rs"]
mod slow;
#[path = "platform_evnf/tc.rs"]
mod tc;
use fixture::{
    Servers, are_dropped, asked, connect, dropped, metric, nft, nothing_is_left, program_on,
    routed, who,
};

const FIREWALL: &str = "
version: 1
instances:
  fw: { tier: xdp, nf: efw, interface: client, netns: EDGE }
";

const RULES: &str = "table ip filter { chain forward { type filter hook forward priority 0; \
    udp dport 9 drop; ct state invalid drop; udp dport 10 accept; }; }";

// promise: 15.12
#[test]
fn a_firewall_in_xdp_follows_the_hosts_rules_through_kill_and_change_and_leaves_nothing() {
    let test =
        "a_firewall_in_xdp_follows_the_hosts_rules_through_kill_and_change_and_leaves_nothing";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    routed(&mut platform, &["client", "server"]);
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

    // Without a daemon the fast path keeps working; the next daemon loads the rules then in force.
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

    // An instance that also wants the interface is refused with the owner's name.
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

// promise: 15.14
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

// promise: 15.13
#[test]
fn a_balancer_in_xdp_keeps_connections_over_changes_and_kills_and_looks_after_its_servers() {
    let test =
        "a_balancer_in_xdp_keeps_connections_over_changes_and_kills_and_looks_after_its_servers";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    routed(&mut platform, &["client", "s1", "s2"]);
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
