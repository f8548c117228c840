//! What engines ask a daemon: what its host has, and how its instances are.

use nfluid_testbed::program::built;
use nfluid_tests::harness::command::run_command;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use serde_json::{Value, json};

// promise: 6.13
#[test]
fn the_daemon_says_what_is_left_of_its_host() {
    let Some(mut platform) = Platform::at_rest("the_daemon_says_what_is_left_of_its_host") else {
        return;
    };
    platform.set_arguments(
        ["--label", "site=lab", "--label", "rack=7"]
            .map(str::to_owned)
            .into(),
    );
    platform.start();
    let ask = || platform.ask(&["get", "capacity"]);
    let amount = |all: &Value, what: &str| -> [u64; 3] {
        ["total", "used", "free"].map(|key| all[what][key].as_u64().expect("a number"))
    };
    let before = ask();
    assert_eq!(
        before["labels"],
        serde_json::json!({ "rack": "7", "site": "lab" })
    );
    assert!(
        list(&before["tiers"]).any(|tier| tier == "process"),
        "{before}"
    );
    assert!(list(&before["nfs"]).any(|nf| nf == "firewall"), "{before}");
    let [total, used, free] = amount(&before, "share_per_mille");
    assert_eq!((used, free), (0, total));
    platform.apply("version: 1\ninstances: { a: { nf: bridge, share: 30%, memory: 48MiB } }\n");
    let after = ask();
    assert_eq!(amount(&after, "share_per_mille"), [total, 300, total - 300]);
    assert_eq!(amount(&after, "memory_bytes")[1], 48 << 20);
    assert_eq!(amount(&after, "instances")[1], 1);
    assert_eq!(amount(&after, "ports")[1], 2);
    let table = platform.must_say(&["get", "capacity"]);
    assert!(
        table.contains("CPU shares") && table.contains("label: site=lab"),
        "{table}"
    );
    // More is promised than there is, as the document wants it.
    platform.apply("version: 1\novercommit: true\ninstances: { a: { nf: bridge, share: 90%, replicas: 16, memory: 8MiB, flavor: small } }\n");
    let [_, used, free] = amount(&ask(), "share_per_mille");
    assert_eq!((used, free), (16 * 900, 0));
    // A label without a value.
    let refused = run_command(platform.daemon_command().args(["--label", "site"]));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("KEY=VALUE"), "{refused:?}");
}

// promise: 6.15
#[test]
fn how_an_instance_ended_when_it_began_and_what_it_used_is_told_of_it_alone() {
    let test = "how_an_instance_ended_when_it_began_and_what_it_used_is_told_of_it_alone";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    let program = built("nfluid-test-hostile", "nfluid-tests").expect("it was built");
    let of = |args: &str| {
        let keys = format!("args: [{args}], restart: never, memory: 16MiB");
        format!(
            "version: 1\ninstances: {{ a: {{ program: {}, {keys} }}, b: {{ nf: bridge }} }}\n",
            program.display()
        )
    };
    let ends = [
        (
            "'report-to:2'",
            json!({ "status": 0, "out_of_memory": false }),
            "stopped",
        ),
        (
            "'no-such-attempt'",
            json!({ "status": 101, "out_of_memory": false }),
            "stopped",
        ),
        (
            "'report-to:2', 'eat-memory:100000000'",
            json!({ "signal": 9, "out_of_memory": true }),
            "stopped",
        ),
    ];
    let mut starts = Vec::new();
    for (args, exit, state) in ends {
        platform.apply(&of(args));
        eventually("it has ended", || platform.instance("a")["state"] == state);
        let ended = platform.instance("a");
        assert_eq!(ended["exit"], exit, "{ended}");
        starts.push(ended["started_ms"].as_u64().expect("a time"));
        platform.must_say(&["delete", "instance", "a", "--with-links"]);
    }
    assert!(starts.is_sorted_by(|a, b| a < b), "{starts:?}");
    let events = platform.must_say(&["events"]);
    assert!(events.contains("it reached its memory limit"), "{events}");
    // The log of one that is gone is kept, and no other file is read.
    let logs = platform.page("/v1/instances/a/logs");
    assert!(
        logs.contains("no attempt is called no-such-attempt"),
        "{logs}"
    );
    for other in ["c", "..%2F..%2Fstate", "a%00"] {
        let found = platform.page(&format!("/v1/instances/{other}/logs"));
        assert!(!found.contains("\"lines\""), "{other}: {found}");
    }

    // Another daemon and an upgrade keep the time of the start, a restart does not.
    let began = |platform: &Platform| {
        platform.instance("b")["started_ms"]
            .as_u64()
            .expect("a time")
    };
    let first = began(&platform);
    platform.must_say(&["upgrade", "b"]);
    platform.kill_daemon();
    platform.start();
    assert_eq!(began(&platform), first);
    platform.must_say(&["restart", "b"]);
    assert!(began(&platform) > first && platform.instance("b")["exit"].is_null());

    let page = platform.page("/v1/instances/b/stats");
    let alone: Value = serde_json::from_str(&page).expect("figures");
    let names = list(&alone["ports"]).map(|port| port["name"].as_str().unwrap_or_default());
    assert_eq!(names.collect::<Vec<_>>(), ["b.in", "b.out"]);
    assert!(
        alone["instance"]["cpu_ns"].as_u64() > Some(0) && alone["instance"]["name"] == "b",
        "{alone}"
    );
    assert!(
        platform
            .page("/v1/instances/c/stats")
            .contains("no instance 'c'")
    );
}
