//! A row of fast paths in libxdp's dispatcher, beside programs of other tools: on Debian's stock kernel with Debian's libxdp.

use nfluid_tests::harness::command::{Outcome, must, run};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::skip::skip;
use serde_json::Value;
use std::fs;

const GUARD: &str = "  g: { tier: xdp, nf: guard, interface: client, netns: EDGE, order: 10, beside: libxdp, \
    config: { limits: { destination: { packets: 1000000 } } } }\n";
const FIREWALL: &str =
    "  fw: { tier: xdp, nf: efw, interface: client, netns: EDGE, order: 20, beside: libxdp }\n";
/// The reasons where the dispatcher cannot be used, by Debian kernel with Debian 12's libxdp.
const REASONS: [&str; 2] = ["libxdp 1.5.5 or later", "BPF_PROG_TYPE_EXT"];

fn document(instances: &[&str]) -> String {
    format!("version: 1\ninstances:\n{}", instances.concat())
}

/// Runs another tool, where the interface is. Not 'ip netns exec', which hides mounts below /sys.
fn tool(platform: &Platform, line: &str) -> Outcome {
    run(&format!(
        "nsenter --net=/run/netns/{} {line}",
        platform.edge()
    ))
}

/// The number of what is on the interface, which is another dispatcher whenever a program comes or goes.
fn dispatcher(platform: &Platform) -> Option<u64> {
    let links = must(&format!("ip -n {} -j link show client", platform.edge()));
    let links: Value = serde_json::from_str(&links).expect("JSON was asked for");
    links[0]["xdp"]["prog"]["id"].as_u64()
}

/// Returns the daemon's description of an instance.
fn described(platform: &Platform, name: &str) -> Value {
    let answer = platform.page("/v1/instances");
    let all: Value = serde_json::from_str(&answer).expect("it speaks JSON");
    let found = list(&all).find(|one| one["name"] == name);
    found.cloned().expect("it is there")
}

/// Packets that an instance has met.
fn met(platform: &Platform, name: &str) -> u64 {
    let instance = described(platform, name);
    let packets = instance["fast"]["packets"].as_object();
    let each = packets.into_iter().flatten();
    each.filter_map(|(_, packets)| packets.as_u64()).sum()
}

/// Packets that the other tool's program has passed.
fn filtered(platform: &Platform) -> u64 {
    let status = tool(platform, "xdp-filter status").stdout;
    let line = status.lines().find(|line| line.contains("XDP_PASS"));
    let count = line.and_then(|line| line.split_whitespace().nth(1));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn do_all_meet(platform: &Platform, names: &[&str], when: &str) {
    let before: Vec<u64> = names.iter().map(|name| met(platform, name)).collect();
    let others = filtered(platform);
    assert!(platform.reaches("client", "10.0.0.1"), "{when}");
    for (name, before) in names.iter().zip(before) {
        assert!(met(platform, name) > before, "{when}: {name}");
    }
    assert!(filtered(platform) > others, "{when}: the other tool");
}

fn nothing_is_left(platform: &Platform) {
    assert_eq!(dispatcher(platform), None);
    let rows = fs::read_dir(platform.pins().join("rows")).expect("it is there");
    assert_eq!(rows.count(), 0);
}

// promise: 15.69
#[test]
fn a_row_is_in_libxdps_dispatcher_beside_programs_of_other_tools() {
    let test = "a_row_is_in_libxdps_dispatcher_beside_programs_of_other_tools";
    if run("xdp-filter --version").code.is_none() {
        skip(
            test,
            "xdp-filter is not installed (apt-get install xdp-tools)",
        );
        return;
    }
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    platform.host("client", "10.0.0.2/24");
    must(&format!(
        "ip -n {} address add 10.0.0.1/24 dev client",
        platform.edge()
    ));
    let applied = platform.try_apply(&document(&[GUARD]));
    if !applied.succeeded() {
        let reason = REASONS.iter().find(|why| applied.stderr.contains(**why));
        let reason = reason.unwrap_or_else(|| panic!("{applied:?}"));
        nothing_is_left(&platform);
        let of_debian_12 = std::env::var("NFLUID_GUEST_KERNEL").is_ok_and(|kernel| kernel == "6.1");
        assert!(!of_debian_12, "{applied:?}");
        skip(
            test,
            &format!("it was refused, as it has to be here: {reason}"),
        );
        return;
    }
    let first = described(&platform, "g")["fast"]["interfaces"][0].clone();
    assert_eq!(first["mode"], "native");
    assert!(
        first["reason"]
            .as_str()
            .is_some_and(|why| why.contains("dispatcher")),
        "{first}"
    );

    // Another tool's program comes behind the instance's; the two do not affect each other.
    let loaded = tool(&platform, "xdp-filter load -m native client");
    assert!(loaded.succeeded(), "{loaded:?}");
    do_all_meet(&platform, &["g"], "another came");
    let there = dispatcher(&platform);
    assert!(there.is_some());
    platform.apply(&document(&[GUARD, FIREWALL]));
    do_all_meet(&platform, &["g", "fw"], "an instance came");
    platform.kill_daemon();
    assert!(platform.reaches("client", "10.0.0.1"));
    platform.start();
    do_all_meet(&platform, &["g", "fw"], "with another daemon");
    platform.apply(&document(&[FIREWALL]));
    do_all_meet(&platform, &["fw"], "an instance left");
    assert_eq!(
        dispatcher(&platform),
        there,
        "for that nothing was attached"
    );

    // The row goes, the other stays; the row comes again.
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    assert!(dispatcher(&platform).is_some(), "the other is there");
    do_all_meet(&platform, &[], "the row is gone");
    let silent = document(&[&GUARD.replace(", beside: libxdp", "")]);
    let refused = platform.try_apply(&silent);
    assert!(refused.stderr.contains("'beside: libxdp'"), "{refused:?}");
    platform.apply(&document(&[GUARD]));
    do_all_meet(&platform, &["g"], "it came to the other");

    // The other goes, then all do: it is seen, and the row is there again.
    let unloaded = tool(&platform, "xdp-filter unload client");
    assert!(unloaded.succeeded(), "{unloaded:?}");
    let alone = dispatcher(&platform).expect("the row is there");
    let unloaded = tool(&platform, "xdp-loader unload client --all");
    assert!(unloaded.succeeded(), "{unloaded:?}");
    eventually("it is in a dispatcher again", || {
        dispatcher(&platform).is_some_and(|now| now != alone)
    });
    eventually("that is told", || {
        platform.events_of("g").contains(&"warning".to_owned())
    });
    let before = met(&platform, "g");
    assert!(platform.reaches("client", "10.0.0.1"));
    assert!(met(&platform, "g") > before, "again");
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    nothing_is_left(&platform);
}
