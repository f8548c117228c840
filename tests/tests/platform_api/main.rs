//! The running daemon under schemathesis: whatever the committed OpenAPI document allows or forbids is sent to it, the
//! requests that change something included.

use nfluid_tests::harness::command::must;
use nfluid_tests::harness::loopback::Loopback;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::program::find_python_program;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::two_hosts::{BRIDGE_AND_FIREWALL as CHAIN, SERVER, two_hosts};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Further inputs of the checker: other objects, no objects, and inputs that must be refused.
const OTHERS: [&str; 6] = [
    "version: 1\nflavors: { tiny: { ring: 64, memory: 8MiB } }\nswitches: { spare: {} }\ninstances: { br: { nf: bridge, flavor: tiny } }\n",
    "version: 1\n",
    "version: 1\ninstances: { br: { nf: brigde } }\n",
    "version: 1\nuplinks: { lan: { interface: missing, netns: EDGE } }\n",
    "version: 1\ninstances: { fw: { nf: firewall, config: { rules: 'allow icmp to nowhere' } } }\n",
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n",
];

const CAPTURE: &str = "/v1/ports/{name}/capture";

/// The checker's configuration for this platform.
fn configuration(platform: &Platform) -> String {
    // Most of the documents are the one that carries traffic.
    let documents: Vec<String> = [CHAIN; 4]
        .iter()
        .chain(&OTHERS)
        .map(|document| document.replace("EDGE", &platform.edge()))
        .collect();
    // JSON's strings and lists are TOML's too.
    let documents = serde_json::to_string(&documents).expect("texts");
    include_str!("schemathesis.toml").replace("DOCUMENTS", &documents)
}

/// The host's own interfaces with everything that a daemon could change about them. Others may come and go meanwhile.
fn interfaces() -> BTreeMap<String, Value> {
    let all: Value = serde_json::from_str(&must("ip -json -details link show")).expect("JSON");
    let named = |link: &Value| Some((link["ifname"].as_str()?.to_owned(), link.clone()));
    let own = |name: &String| {
        Path::new("/sys/class/net")
            .join(name)
            .join("device")
            .exists()
    };
    list(&all)
        .filter_map(named)
        .filter(|(name, _)| name == "lo" || own(name))
        .collect()
}

/// Lets the checker loose on the platform's daemon, with `selection` of the operations.
fn check(checker: &Path, platform: &Platform, selection: &[&str]) {
    let loopback = Loopback::to(&platform.socket()).expect("a port on the loopback address");
    let settings = platform.directory().join("schemathesis.toml");
    fs::write(&settings, configuration(platform)).expect("the directory is ours");
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/openapi/nfluid.json");
    let url = format!("http://{}", loopback.address());
    let mut command = Command::new(checker);
    command
        .arg("--no-color")
        .arg("--config-file")
        .arg(&settings);
    command.args(["run", document, "--checks", "all", "--url", &url]);
    command.args(selection).current_dir(platform.directory());
    let report = command.stdin(Stdio::null()).output();
    let report = report.expect("schemathesis starts");
    assert!(
        report.status.success(),
        "{}{}",
        String::from_utf8_lossy(&report.stdout),
        String::from_utf8_lossy(&report.stderr)
    );
}

// promise: 8.8
#[test]
fn whatever_the_document_allows_or_forbids_is_answered_as_it_says() {
    let test = "whatever_the_document_allows_or_forbids_is_answered_as_it_says";
    let Some(checker) = find_python_program("schemathesis") else {
        return skip(test, "no schemathesis; `cargo xtask test` installs it");
    };
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    platform.apply(CHAIN);
    let before = interfaces();

    // First what needs objects that stay, then everything; captures of ports that are there have no end.
    let objects = "^/v1/(instances|ports|switches|links|chains|uplinks)";
    let no_captures = ["--exclude-path", CAPTURE];
    let standing = [
        "--include-path-regex",
        objects,
        "--exclude-method",
        "DELETE",
    ];
    check(&checker, &platform, &[&standing[..], &no_captures].concat());
    assert_eq!(
        platform.pids().keys().collect::<Vec<_>>(),
        ["br", "fw"],
        "restarted, not removed"
    );
    for instance in ["br", "fw"] {
        let events = platform.events_of(instance);
        assert!(events.contains(&"restarting".to_owned()), "{events:?}");
    }
    check(&checker, &platform, &no_captures);
    assert!(platform.nfluid(&["delete", "--all"]).succeeded());
    check(&checker, &platform, &["--include-path", CAPTURE]);

    assert!(platform.is_up(), "it is the daemon that was asked");
    assert_eq!(interfaces(), before, "the host's own interfaces");
    // After any requests, a deployment leads exactly to its content.
    platform.apply(CHAIN);
    assert_eq!(platform.pids().keys().collect::<Vec<_>>(), ["br", "fw"]);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    assert!(platform.nfluid(&["delete", "--all"]).succeeded());
    eventually("no process is left", || {
        platform.instance_processes().is_empty()
    });
    platform.apply(CHAIN);
    eventually("a ping crosses again", || platform.pings("client", SERVER));
}
