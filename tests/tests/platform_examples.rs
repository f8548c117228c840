//! Examples, applied or run as they are printed.

use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::program::program;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The example's deployment, with interfaces in a namespace instead of the host's.
fn deployment() -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/groups/deployment.yaml");
    let text = std::fs::read_to_string(example).expect("the example is there");
    ["access", "core"].iter().fold(text, |text, name| {
        let own = format!("interface: {name}0 ");
        assert!(text.contains(&own), "{own}");
        text.replace(&own, &format!("interface: {name}, netns: EDGE "))
    })
}

fn named(all: &Value, name: &str) -> Value {
    let found = list(all).find(|one| one["name"] == name);
    found.cloned().unwrap_or(Value::Null)
}

// promise: 7.26
#[test]
fn nested_groups_placement_and_congestion_work_as_they_are_printed() {
    let test = "nested_groups_placement_and_congestion_work_as_they_are_printed";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    platform.host("access", "10.2.0.2/32");
    platform.host("core", "192.0.2.1/32");
    for host in ["access", "core"] {
        let outcome = platform.on(host, "ip route add default dev eth0");
        assert!(outcome.succeeded(), "{outcome:?}");
    }
    let deployment = deployment();
    platform.apply(&deployment);
    let groups = platform.ask(&["get", "groups"]);
    assert_eq!(named(&groups, "acme-voice")["group"], "acme");
    assert_eq!(named(&groups, "acme-web")["group"], "acme");
    for name in ["voice-fw", "web-fw", "web-scan", "bolt-count"] {
        let instance = platform.instance(name);
        assert!(instance["core"].is_u64(), "on one core: {instance}");
    }
    eventually("bolt's traffic crosses its counter", || {
        platform.pings("access", "192.0.2.1")
    });
    let counted = |port: &str| {
        let stats = platform.ask(&["stats"]);
        named(&stats["ports"], port)["counters"]["rx_packets"].as_u64()
    };
    assert!(counted("bolt-count.in") > Some(0));
    assert_eq!(counted("web-fw.in"), Some(0), "another customer's");
    assert_eq!(platform.apply(&deployment), [""; 0], "nothing to change");
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    assert_eq!(platform.instance_processes(), [0; 0]);
}

// promise: 7.26
#[test]
fn tenants_are_served_over_tls_as_the_example_shows() {
    // Checks that platforms can run here at all.
    let Some(_platform) = Platform::at_rest("tenants_are_served_over_tls_as_the_example_shows")
    else {
        return;
    };
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tls/run");
    let programs = program("nfluidd");
    let folder = programs.parent().expect("it is in one");
    let ran = Command::new(example).env("NFLUID_BIN_DIR", folder).output();
    let ran = ran.expect("it is there");
    let said = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{errors}");
    assert_eq!(said.matches("a page over plain HTTP").count(), 4, "{said}");
}
