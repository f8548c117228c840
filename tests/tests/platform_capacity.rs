//! What a host has, as engines ask for it.

use nfluid_tests::harness::command::run_command;
use nfluid_tests::harness::platform::{Platform, list};
use serde_json::Value;

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
