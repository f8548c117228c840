//! Interfaces of containers by CNI: containers here are network namespaces, the runtime is the test; or cnitool, which is not in
//! Debian: `CNITOOL` names it.

use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::program::find_built;
use nfluid_tests::harness::command::{must, run};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::skip::skip;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// The folder of Debian's plugins.
const PLUGINS: &str = "/usr/lib/cni";
const SWITCH: &str = "version: 1\nuplinks:\n  out: { interface: far, netns: EDGE, switch: lan }\nswitches: { lan: {} }\n";

/// A container runtime on the platform's host.
struct Runtime<'a> {
    platform: &'a Platform,
    /// The network, as its administrator has written it.
    network: Value,
}

/// What a plugin has said, or the number and the reason of its refusal.
type Said = Result<Value, (u64, String)>;

impl<'a> Runtime<'a> {
    fn new(platform: &'a Platform, keys: Value) -> Self {
        let mut network = json!({
            "cniVersion": "1.1.0", "name": platform.name(), "type": "nfluid-cni", "socket": platform.socket()
        });
        let (Some(all), Value::Object(keys)) = (network.as_object_mut(), keys) else {
            panic!("a network has keys");
        };
        all.extend(keys);
        Runtime { platform, network }
    }

    /// Starts the plugin for `container`, whose namespace is `namespace`; none: it is gone.
    fn ask(&self, command: &str, container: &str, namespace: Option<&Path>, more: Value) -> Said {
        let mut network = self.network.clone();
        if let (Some(all), Value::Object(more)) = (network.as_object_mut(), more) {
            all.extend(more);
        }
        let program = find_built("nfluid-cni").expect("it was built");
        let folder = program.parent().expect("a folder").display().to_string();
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.platform.edge()])
            .arg(program)
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", container)
            .env("CNI_IFNAME", "eth0")
            .env(
                "CNI_NETNS",
                namespace.map_or(String::new(), |it| it.display().to_string()),
            )
            .env("CNI_PATH", format!("{folder}:{PLUGINS}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("it starts");
        let mut input = child.stdin.take().expect("its input");
        input
            .write_all(network.to_string().as_bytes())
            .expect("it reads");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        let said: Value = match output.stdout.as_slice() {
            [] => Value::Null,
            text => serde_json::from_slice(text).expect("JSON"),
        };
        if output.status.success() {
            return Ok(said);
        }
        let code = said["code"].as_u64().expect("a number");
        Err((code, said["msg"].as_str().unwrap_or_default().to_owned()))
    }

    fn add(&self, container: &str) -> Said {
        let namespace = self.platform.namespace_path(container);
        self.ask("ADD", container, Some(&namespace), json!({}))
    }

    fn delete(&self, container: &str) -> Said {
        let namespace = self.platform.namespace_path(container);
        self.ask("DEL", container, Some(&namespace), json!({}))
    }

    fn check(&self, container: &str, before: &Value) -> Said {
        let namespace = self.platform.namespace_path(container);
        self.ask(
            "CHECK",
            container,
            Some(&namespace),
            json!({ "prevResult": before }),
        )
    }
}

fn platform(test: &str, containers: &[&str]) -> Option<Platform> {
    let mut platform = Platform::at_rest(test)?;
    platform.run_at_edge();
    platform.host("far", "10.0.0.9/24");
    for container in containers {
        platform.add_namespace(container).expect("a namespace");
    }
    platform.start();
    Some(platform)
}

/// Addresses of Debian's host-local plugin, kept in the platform's folder.
fn addresses(platform: &Platform) -> Value {
    json!({
        "type": "host-local", "dataDir": platform.directory().join("addresses"),
        "ranges": [[{ "subnet": "10.0.0.0/24", "rangeStart": "10.0.0.100", "rangeEnd": "10.0.0.101", "gateway": "10.0.0.9" }],
                   [{ "subnet": "fd00::/64", "gateway": "fd00::9" }]],
        "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "fd00:9::/32" }]
    })
}

/// Nothing is left on the host or at the daemon.
fn is_clean(platform: &Platform) -> bool {
    let links = must(&format!("ip -n {} -json link show", platform.edge()));
    let uplinks = platform.ask(&["get", "uplinks"]);
    let is_leg = |it: &Value| {
        it["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("cni"))
    };
    !links.contains("\"ifname\":\"cni") && !list(&uplinks).any(is_leg)
}

// promise: 27.1
#[test]
fn containers_are_ports_of_a_switch() {
    let test = "containers_are_ports_of_a_switch";
    if !Path::new(PLUGINS).join("host-local").exists() {
        return skip(test, "it needs containernetworking-plugins");
    }
    let Some(mut platform) = platform(test, &["one", "two", "three"]) else {
        return;
    };
    platform.apply(SWITCH);
    let keys = json!({ "cniVersion": "1.0.0", "switch": "lan", "ipam": addresses(&platform), "mtu": 1400 });
    {
        let runtime = Runtime::new(&platform, keys.clone());
        let one = runtime.add("one").expect("added");
        let two = runtime.add("two").expect("added");
        assert_eq!(one["ips"][0]["address"], "10.0.0.100/24");
        assert_eq!(one["ips"][1]["address"], "fd00::1/64", "{one}");
        assert_eq!(one["interfaces"][1]["name"], "eth0");
        assert!(platform.reaches("one", "10.0.0.101") && platform.reaches("two", "10.0.0.9"));
        let route = platform.on("one", "ip -json route show default").stdout;
        assert!(route.contains("10.0.0.9"), "{route}");
        assert!(
            platform
                .on("one", "ip link show eth0")
                .stdout
                .contains("mtu 1400")
        );
        for (container, made) in [("one", &one), ("two", &two)] {
            runtime.check(container, made).expect(container);
        }

        // There are two addresses: the third container gets none, and keeps nothing.
        let (code, why) = runtime.add("three").expect_err("the range is full");
        assert!(code >= 5 && why.starts_with("host-local: "), "{code} {why}");
        let none = platform.on("three", "ip -json link show").stdout;
        assert!(!none.contains("eth0"), "{none}");

        // A document of the operator's leaves them where they are.
        platform.apply(SWITCH);
        assert!(platform.reaches("one", "10.0.0.101"));

        // Each of these is something that CHECK finds.
        for (damage, repair, part) in [
            ("link set eth0 down", "link set eth0 up", "is down"),
            (
                "address del 10.0.0.100/24 dev eth0",
                "address add 10.0.0.100/24 dev eth0",
                "10.0.0.100 is gone",
            ),
            (
                "link set eth0 mtu 1300",
                "link set eth0 mtu 1400",
                "MTU 1300",
            ),
        ] {
            must(&format!(
                "ip -n {} {damage}",
                platform.namespace_name("one")
            ));
            let (code, why) = runtime.check("one", &one).expect_err(damage);
            assert_eq!(code, 101);
            assert!(why.contains(part), "{why}");
            must(&format!(
                "ip -n {} {repair}",
                platform.namespace_name("one")
            ));
        }
    }
    // The daemon ends and comes again, as after a crash.
    platform.kill_daemon();
    assert!(
        platform.reaches("one", "10.0.0.101"),
        "frames need no daemon"
    );
    {
        let runtime = Runtime::new(&platform, keys.clone());
        // Without a daemon nothing is added; what can go, goes.
        let (code, why) = runtime.delete("two").expect_err("the daemon is away");
        assert_eq!(code, 50, "{why}");
        assert!(
            !platform
                .on("two", "ip -json link show")
                .stdout
                .contains("eth0")
        );
        assert_eq!(runtime.add("three").map_err(|it| it.0), Err(50));
        let (code, _) = runtime
            .ask("STATUS", "", None, json!({}))
            .expect_err("it is away");
        assert_eq!(code, 50);
    }
    platform.start();
    let runtime = Runtime::new(&platform, keys);
    assert!(platform.reaches("one", "10.0.0.9"));
    runtime
        .ask("STATUS", "", None, json!({}))
        .expect("it is there");
    for container in ["one", "two", "three", "one"] {
        runtime.delete(container).expect(container);
    }
    assert!(is_clean(&platform));
    // All addresses are free again.
    runtime.add("three").expect("added");
    runtime.add("two").expect("added");
    must(&format!(
        "ip netns delete {}",
        platform.namespace_name("two")
    ));
    runtime
        .ask("DEL", "two", None, json!({}))
        .expect("it is gone");
    // What the runtime no longer knows goes as well.
    runtime
        .ask("GC", "", None, json!({ "cni.dev/valid-attachments": [] }))
        .expect("clean");
    assert!(is_clean(&platform));
}

// A container that sends with another's address is cut off, and counted; with 'spoofCheck: false' it may be a bridge.
// promise: 27.2
#[test]
fn a_container_has_its_own_address_alone() {
    let Some(platform) = platform("a_container_has_its_own_address_alone", &["one"]) else {
        return;
    };
    platform.apply(SWITCH);
    let try_another = |keys: Value| {
        let runtime = Runtime::new(&platform, keys);
        let made = runtime.add("one").expect("added");
        let inside = |line: &str| must(&format!("ip -n {} {line}", platform.namespace_name("one")));
        inside("address add 10.0.0.1/24 dev eth0");
        assert!(platform.reaches("one", "10.0.0.9"));
        inside("link set eth0 address 02:00:00:00:0b:ad");
        let outer = made["interfaces"][0]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        (runtime, outer)
    };
    let (runtime, outer) = try_another(json!({ "switch": "lan" }));
    assert!(!platform.pings("one", "10.0.0.9"));
    eventually("they are counted", || {
        let drops = platform.uplink(&outer)["counters"]["drops"].clone();
        drops["foreign_mac"].as_u64() >= Some(1)
    });
    runtime.delete("one").expect("gone");
    let (runtime, _) = try_another(json!({ "switch": "lan", "spoofCheck": false }));
    eventually("it may", || platform.pings("one", "10.0.0.9"));
    runtime.delete("one").expect("gone");
    assert!(is_clean(&platform));
}

// promise: 27.1
#[test]
fn a_container_is_the_end_of_a_chain() {
    let Some(platform) = platform("a_container_is_the_end_of_a_chain", &["one"]) else {
        return;
    };
    let chain = "version: 1\nuplinks: { out: { interface: far, netns: EDGE } }\n\
                 instances: { fw: { nf: firewall, config: { rules: 'allow ip from any to any' } } }\nlinks: [[fw.out, out]]\n";
    platform.apply(chain);
    let mac = "02:00:00:00:00:77";
    let runtime = Runtime::new(
        &platform,
        json!({ "link": "fw.in", "interface": "nf0", "capabilities": { "mac": true }, "runtimeConfig": { "mac": mac } }),
    );
    // It comes after another plugin, and adds to what that one has made.
    let before = json!({
        "cniVersion": "1.1.0", "interfaces": [{ "name": "eth0", "sandbox": "/x", "mtu": 9000 }],
        "ips": [{ "address": "192.0.2.7/24", "interface": 0 }]
    });
    let namespace = platform.namespace_path("one");
    let more = json!({ "prevResult": before });
    let made = runtime
        .ask("ADD", "one", Some(&namespace), more)
        .expect("added");
    assert_eq!(made["interfaces"][0]["mtu"], 9000, "{made}");
    assert_eq!(made["interfaces"][2]["name"], "nf0");
    assert_eq!(made["interfaces"][2]["mac"], mac);
    assert_eq!(made["ips"], before["ips"]);
    must(&format!(
        "ip -n {} address add 10.0.0.1/24 dev nf0",
        platform.namespace_name("one")
    ));
    assert!(platform.reaches("one", "10.0.0.9"));
    runtime.check("one", &made).expect("as it was made");
    // The instance goes, and its links with it: CHECK finds that.
    assert!(platform.requests("DELETE", "/v1/instances/fw?with_links=true", &Value::Null));
    let (code, why) = runtime.check("one", &made).expect_err("it leads nowhere");
    assert_eq!(code, 101, "{why}");
    let (code, why) = runtime.add("one").expect_err("there is no such port");
    assert_eq!(code, 100);
    assert!(why.contains("fw"), "{why}");
    let left = platform.on("one", "ip -json link show").stdout;
    assert!(!left.contains("nf0"), "{left}");
    assert!(is_clean(&platform));
}

// promise: 27.3
#[test]
fn what_is_impossible_is_refused_and_leaves_nothing() {
    let Some(platform) = platform("what_is_impossible_is_refused", &["one"]) else {
        return;
    };
    platform.apply(SWITCH);
    let own = platform.namespace_path("one");
    let edge = platform.namespace_path("p");
    let with = |keys: Value| Runtime::new(&platform, keys);
    let lan = || json!({ "switch": "lan" });
    for (keys, namespace, code, part) in [
        (json!({ "switch": "none" }), own.clone(), 100, "none"),
        (json!({ "link": "out" }), own.clone(), 100, "out"),
        (
            json!({ "switch": "lan", "uplink": { "ring": 3 } }),
            own.clone(),
            100,
            "ring",
        ),
        (
            json!({ "switch": "lan", "uplink": { "rings": 1 } }),
            own.clone(),
            100,
            "rings",
        ),
        (
            json!({ "switch": "lan", "ipam": { "type": "no-such" } }),
            own.clone(),
            7,
            "no-such",
        ),
        (
            json!({ "switch": "lan", "ipam": { "type": "../x" } }),
            own.clone(),
            7,
            "../x",
        ),
        (
            json!({ "switch": "lan", "interface": "lo" }),
            own.clone(),
            5,
            "lo",
        ),
        (
            json!({ "switch": "lan", "cniVersion": "0.2.0" }),
            own.clone(),
            1,
            "0.2.0",
        ),
        (
            json!({ "switch": "lan", "socket": "/nowhere" }),
            own.clone(),
            50,
            "/nowhere",
        ),
        (lan(), edge, 4, "the host's own"),
        (lan(), PathBuf::from("/nowhere"), 4, "/nowhere"),
        (lan(), PathBuf::from("/etc/passwd"), 4, "not a namespace"),
    ] {
        let refused = with(keys.clone()).ask("ADD", "one", Some(&namespace), json!({}));
        let (found, why) = refused.expect_err(&keys.to_string());
        assert_eq!(found, code, "{keys}: {why}");
        assert!(why.contains(part), "{keys}: {why}");
        let left = platform.on("one", "ip -json link show").stdout;
        assert!(!left.contains("eth0"), "{keys}: {left}");
        assert!(is_clean(&platform), "{keys}");
    }
    let version = with(lan())
        .ask("VERSION", "", None, json!({}))
        .expect("a list");
    assert_eq!(version["supportedVersions"][4], "1.1.0");

    // An uplink that has the name, and is the operator's, stays.
    let made = with(lan()).add("one").expect("added");
    let outer = made["interfaces"][0]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    with(lan()).delete("one").expect("gone");
    let edge = platform.edge();
    must(&format!(
        "ip -n {edge} link add {outer} type veth peer name other"
    ));
    let theirs = format!("uplinks:\n  {outer}: {{ interface: {outer}, netns: EDGE }}\n");
    platform.apply(&SWITCH.replace("uplinks:\n", &theirs));
    let (code, why) = with(lan()).add("one").expect_err("it is another's");
    assert_eq!(code, 5, "{why}");
    with(lan()).delete("one").expect("nothing to do");
    with(lan())
        .ask("GC", "", None, json!({ "cni.dev/valid-attachments": [] }))
        .expect("clean");
    assert!(run(&format!("ip -n {edge} link show {outer}")).succeeded());
    assert_eq!(platform.uplink(&outer)["name"], outer.as_str());
}

// Containers come and go at the same time, some without a word; what stays is reached all along, and nothing is left of the others.
// promise: 27.4
#[test]
fn containers_come_and_go_at_once() {
    let names = ["a", "b", "c", "d", "stays"];
    let Some(mut platform) = platform("containers_come_and_go_at_once", &names) else {
        return;
    };
    platform.apply(SWITCH);
    Runtime::new(&platform, json!({ "switch": "lan" }))
        .add("stays")
        .expect("added");
    must(&format!(
        "ip -n {} address add 10.0.0.1/24 dev eth0",
        platform.namespace_name("stays")
    ));
    for turn in 0..3 {
        {
            let runtime = Runtime::new(&platform, json!({ "switch": "lan" }));
            let runtime = &runtime;
            thread::scope(|scope| {
                for (number, name) in names[..4].iter().enumerate() {
                    scope.spawn(move || {
                        for again in 0..4 {
                            runtime.add(name).expect("added");
                            if (number + again) % 3 > 0 {
                                runtime.delete(name).expect("gone");
                            }
                        }
                    });
                }
                for _ in 0..5 {
                    assert!(runtime.platform.reaches("stays", "10.0.0.9"));
                }
            });
        }
        if turn == 1 {
            platform.kill_daemon();
            platform.start();
        }
        let runtime = Runtime::new(&platform, json!({ "switch": "lan" }));
        let valid = json!([{ "containerID": "stays", "ifname": "eth0" }]);
        runtime
            .ask(
                "GC",
                "",
                None,
                json!({ "cni.dev/valid-attachments": valid }),
            )
            .expect("clean");
        let uplinks = platform.ask(&["get", "uplinks"]);
        assert_eq!(list(&uplinks).count(), 2, "{uplinks}");
        assert!(platform.reaches("stays", "10.0.0.9"));
    }
}

// promise: 27.4
#[test]
fn own_cnitool_adds_checks_and_deletes() {
    let test = "own_cnitool_adds_checks_and_deletes";
    let Some(tool) = std::env::var_os("CNITOOL") else {
        return skip(
            test,
            "set CNITOOL to cnitool, 1.3 or later: docs/guide/cni.md",
        );
    };
    let Some(platform) = platform(test, &["one"]) else {
        return;
    };
    platform.apply(SWITCH);
    let folder = ScratchDirectory::new().expect("a folder");
    let network = Runtime::new(&platform, json!({ "switch": "lan" })).network;
    let list = json!({ "cniVersion": "1.1.0", "name": network["name"], "plugins": [network] });
    folder
        .write("1.conflist", &list.to_string())
        .expect("written");
    let program = find_built("nfluid-cni").expect("it was built");
    let does = |command: &str| {
        let outcome = Command::new("ip")
            .args(["netns", "exec", &platform.edge()])
            .arg(&tool)
            .args([command, platform.name()])
            .arg(platform.namespace_path("one"))
            .env("NETCONFPATH", folder.path(""))
            .env("CNI_PATH", program.parent().expect("a folder"))
            .output()
            .expect("it runs");
        assert!(outcome.status.success(), "{command}: {outcome:?}");
    };
    for command in ["add", "check", "status", "del", "del", "add", "gc"] {
        does(command);
    }
    // Its 'gc' names no valid attachment.
    assert!(is_clean(&platform));
}
