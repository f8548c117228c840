//! The promise: what no security group of a port permits does not pass it, whatever the instance, its host and the daemon do; and what
//! is permitted is not disturbed.

use nfluid_testbed::process::signal;
use nfluid_tests::harness::conversation::Conversation;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::two_hosts::{CLIENT, SERVER, two_hosts};
use rustix::process::Signal;
use serde_json::json;
use std::thread::sleep;
use std::time::Duration;

/// The guard of port `in` of instance `a`.
const GUARD: &str = "a@guard-in";
/// An address that no host has at first.
const FOREIGN: &str = "10.0.0.9";

/// Everything about the client's pings, and nothing else.
const PINGS: &str = "{ direction: in, protocol: icmp, icmp: 8 }";
/// The conversation's requests.
const TALK: &str = "{ direction: in, protocol: udp, ports: 7, remote: 10.0.0.0/24 }";

/// The server is behind instance `a`, whose port on the client's switch is in the groups `web` and `talk`.
fn deployment(web: &str, talk: &str) -> String {
    format!(
        "
version: 1
switches: {{ front: {{}}, back: {{}} }}
uplinks:
  lan: {{ interface: client, netns: EDGE, switch: front }}
  wan: {{ interface: server, netns: EDGE, switch: back }}
security_groups:
  web: {{ rules: [{web}] }}
  talk: {{ rules: [{talk}] }}
instances:
  a:
    nf: bridge
    ports:
      in: {{ switch: front, learn: true, security_groups: [web, talk], allowed_addresses: [{SERVER}] }}
      out: {{ switch: back, learn: true }}
"
    )
}

fn dropped(platform: &Platform, reason: &str) -> u64 {
    let stats = platform.ask(&["stats"]);
    let guard = list(&stats["instances"]).find(|one| one["name"] == GUARD);
    let metrics = guard.and_then(|guard| guard["metrics"].as_object());
    let metrics = metrics.unwrap_or_else(|| panic!("the guard tells nothing: {stats}"));
    let is_it = |name: &str| name.starts_with("packets_dropped_total") && name.contains(reason);
    let found = metrics.iter().find(|(name, _)| is_it(name));
    let (_, value) = found.unwrap_or_else(|| panic!("no counter of {reason}: {metrics:?}"));
    value.as_f64().expect("a figure") as u64
}

/// Datagrams that the server has got, for a socket or for none.
fn datagrams(platform: &Platform) -> [u64; 2] {
    ["InDatagrams", "NoPorts"].map(|name| platform.snmp("server", "Udp", name))
}

/// Waits until no more answers come, and stays so.
fn falls_silent(conversation: &Conversation, when: &str) {
    eventually(&format!("the conversation falls silent {when}"), || {
        let before = conversation.answers();
        sleep(Duration::from_millis(300));
        conversation.answers() == before
    });
}

// promise: 33.2
#[test]
fn a_ports_groups_decide_what_passes_and_say_who_is_in_them() {
    let Some(platform) = two_hosts("a_ports_groups_decide_what_passes_and_say_who_is_in_them")
    else {
        return;
    };
    let changes = platform.apply(&deployment(PINGS, ""));
    assert!(
        changes.contains(&"created security_group web".to_owned()),
        "{changes:?}"
    );
    assert!(platform.reaches("client", SERVER));
    assert!(
        !platform.pings("server", CLIENT),
        "nothing permits the server to ask"
    );
    let refused = Conversation::start(&platform);
    eventually("requests are dropped", || {
        dropped(&platform, "default") > 10
    });
    assert_eq!(refused.answers(), 0);
    refused.break_off();
    let changes = platform.apply(&deployment(PINGS, TALK));
    assert_eq!(changes, ["changed security_group talk"]);
    let conversation = Conversation::start(&platform);
    conversation.has_answers(100, "with a rule for it");
    conversation.end();
    assert_eq!(
        platform.apply(&deployment(PINGS, TALK)),
        [""; 0],
        "all is as desired"
    );

    let groups = platform.ask(&["get", "security-groups"]);
    let web = list(&groups)
        .find(|group| group["name"] == "web")
        .expect("a group");
    assert_eq!(web["ports"], json!(["a.in"]));
    assert_eq!(web["addresses"], json!([format!("{SERVER}/32")]));
    platform.must_refuse(
        &["delete", "security-group", "web"],
        "there is no security group 'web'",
    );
    platform.must_refuse(&["delete", "instance", GUARD], "the guard of port 'a.in'");
    let described = platform.must_say(&["describe", "security-group", "web"]);
    assert!(described.contains("a.in"), "{described}");

    platform.must_say(&["delete", "instance", "a"]);
    let left = platform.ask(&["get", "instances"]);
    assert_eq!(
        list(&left).count(),
        0,
        "the guard goes with its instance: {left}"
    );
    eventually("no process is left", || {
        platform.instance_processes().is_empty()
    });
    platform.must_say(&["delete", "security-group", "web"]);
}

// promise: 33.4
#[test]
fn rules_change_under_traffic_without_loss_and_a_withdrawn_one_ends_its_connections() {
    let test = "rules_change_under_traffic_without_loss_and_a_withdrawn_one_ends_its_connections";
    let Some(platform) = two_hosts(test) else {
        return;
    };
    platform.apply(&deployment(PINGS, TALK));
    assert!(platform.reaches("client", SERVER));
    let conversation = Conversation::start(&platform);
    conversation.has_answers(100, "before any change");
    for round in 0..40 {
        let other = format!(
            "{{ direction: in, protocol: tcp, ports: {} }}",
            1000 + round
        );
        let web = [PINGS, &other][..1 + round % 2].join(", ");
        platform.apply(&deployment(&web, TALK));
        conversation.has_answers(20, "after a change of other rules");
    }
    let books = conversation.end();
    assert_eq!((books.lost, books.answered_twice), (0, 0));

    let conversation = Conversation::start(&platform);
    conversation.has_answers(100, "with its rule");
    platform.apply(&deployment(PINGS, ""));
    falls_silent(&conversation, "without its rule");
    conversation.break_off();
    assert!(
        platform.reaches("client", SERVER),
        "what is still permitted goes on"
    );
    platform.apply(&deployment(PINGS, TALK));
    let conversation = Conversation::start(&platform);
    conversation.has_answers(100, "with its rule again");
    conversation.end();
}

// promise: 33.3
#[test]
fn a_port_cannot_speak_for_addresses_that_are_not_its_own() {
    let Some(platform) = two_hosts("a_port_cannot_speak_for_addresses_that_are_not_its_own") else {
        return;
    };
    let everything = "{ direction: in }, { direction: out }";
    platform.apply(&deployment(everything, ""));
    assert!(platform.reaches("server", CLIENT));
    let add = format!("ip address add {FOREIGN}/24 dev eth0");
    assert!(platform.on("server", &add).succeeded());
    let from_foreign = format!("ping -n -c 1 -W 1 -I {FOREIGN} {CLIENT}");
    assert!(
        !platform.on("server", &from_foreign).succeeded(),
        "a foreign source"
    );
    assert!(dropped(&platform, "rule") > 0);
    assert!(
        !platform.pings("client", FOREIGN),
        "its ARP replies do not pass"
    );
    assert!(dropped(&platform, "foreign_address") > 0);
    assert!(
        platform.reaches("server", CLIENT),
        "its own address goes on"
    );

    let more = deployment(everything, "").replace(
        &format!("allowed_addresses: [{SERVER}]"),
        &format!("allowed_addresses: [{SERVER}, {FOREIGN}]"),
    );
    platform.apply(&more);
    assert!(platform.reaches("client", FOREIGN), "it is the port's now");
}

// promise: 33.6
#[test]
fn nothing_passes_while_a_guard_is_away_and_a_daemon_finds_it_again() {
    let test = "nothing_passes_while_a_guard_is_away_and_a_daemon_finds_it_again";
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    platform.apply(&deployment(PINGS, ""));
    assert!(platform.reaches("client", SERVER));
    let received = datagrams(&platform);
    let flood = platform.flood("client", SERVER, 0);
    for _ in 0..5 {
        let pid = platform.pids()[GUARD];
        signal(pid, Signal::KILL);
        eventually("the guard is started again", || {
            platform.pids().get(GUARD).is_some_and(|now| *now != pid)
        });
        eventually("pings pass again", || platform.pings("client", SERVER));
    }
    let before = platform.pids();
    platform.kill_daemon();
    sleep(Duration::from_millis(300));
    platform.start();
    assert_eq!(platform.pids(), before, "instance and guard are adopted");
    assert_eq!(
        platform.apply(&deployment(PINGS, "")),
        [""; 0],
        "all is as desired"
    );
    // Rings are full of the flood: one ping may find no room.
    eventually("pings pass", || platform.pings("client", SERVER));
    drop(flood);
    assert!(dropped(&platform, "default") > 0, "the flood has come");
    assert_eq!(
        datagrams(&platform),
        received,
        "not one has slipped through"
    );
}

// promise: 33.1
#[test]
fn long_names_have_guards_and_what_makes_no_sense_is_refused_with_its_place() {
    let test = "long_names_have_guards_and_what_makes_no_sense_is_refused_with_its_place";
    let Some(platform) = two_hosts(test) else {
        return;
    };
    let named = |instance: &str, port: &str| {
        deployment(PINGS, "")
            .replace("  a:\n", &format!("  {instance}:\n"))
            .replace("      in: ", &format!("      {port}: "))
    };
    let (instance, port) = ("i".repeat(10), "p".repeat(31));
    let refused = platform.try_apply(&named(&"i".repeat(26), &port));
    assert!(refused.stderr.contains("at most 63 fit"), "{refused:?}");
    platform.apply(&named(&instance, &port));
    assert!(platform.reaches("client", SERVER));
    let guard = format!("{instance}@guard-{port}");
    assert_eq!(platform.instance(&guard)["state"], "running", "{guard}");
    platform.apply(&deployment(PINGS, ""));

    for (rule, path, why) in [
        ("{ protocol: tcp }", "rules[0]", "no direction"),
        (
            "{ direction: in, ports: 80 }",
            "rules[0].ports",
            "only TCP, UDP and SCTP",
        ),
        (
            "{ direction: in, protocol: tcp, ports: 90-80 }",
            "rules[0].ports",
            "empty",
        ),
        (
            "{ direction: in, protocol: tcp, icmp: 8 }",
            "rules[0].icmp",
            "only ICMP",
        ),
        (
            "{ direction: in, remote_group: nobody }",
            "rules[0].remote_group",
            "no security group",
        ),
        (
            "{ direction: in, remote: 10.0.0.1/8 }",
            "rules[0].remote",
            "bits set",
        ),
        (
            "{ direction: in, family: ipv6, remote: 10.0.0.0/8 }",
            "rules[0]",
            "at once",
        ),
        (
            "{ direction: in, protocol: icmpv6, remote: 10.0.0.0/8 }",
            "rules[0]",
            "at once",
        ),
        (
            "{ direction: up }",
            "rules[0].direction",
            "no direction 'up'",
        ),
        (
            "{ direction: in, remote_groups: web }",
            "rules[0].remote_groups",
            "unknown key",
        ),
    ] {
        let refused = platform.try_apply(&deployment(rule, ""));
        let said = &refused.stderr;
        assert!(!refused.succeeded(), "{rule}");
        assert!(
            said.contains(&format!("security_groups.web.{path}")),
            "{rule}: {said}"
        );
        assert!(said.contains(why), "{rule}: {said}");
    }
    for (ports, why) in [
        ("in: { security_groups: [] }", "ports on a switch"),
        (
            "in: { allowed_addresses: [10.0.0.1] }",
            "may use any address",
        ),
        ("in: { security_groups: [x] }", "no security group 'x'"),
    ] {
        platform.must_refuse_instance(
            &format!("{{ nf: bridge, ports: {{ {ports}, out: {{}} }} }}"),
            why,
        );
    }
    assert!(
        platform.reaches("client", SERVER),
        "what was refused has changed nothing"
    );
}
