//! Nova and Neutron with nfluid's drivers: a whole OpenStack, two hosts, and traffic through servers whatever happens to them.

use nfluid_testbed::CannotRun;
use nfluid_testbed::openstack::{OpenStack, neutron_config, nova_config, python_of, share};
use nfluid_tests::harness::command::{must, must_run};
use nfluid_tests::harness::conversation::Conversation;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::two_hosts::{CLIENT, SERVER};
use nfluid_tests::harness::two_platforms::TwoPlatforms;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Names of the hosts in OpenStack.
const HOSTS: [&str; 2] = ["node1", "node2"];

/// Two hosts of one cloud.
struct Cloud {
    // OpenStack ends before its hosts.
    openstack: OpenStack,
    two: TwoPlatforms,
    flavor: String,
    lan: String,
    wan: String,
}

impl Cloud {
    /// Starts them; `None`: this host cannot.
    fn start(test: &str) -> Option<Self> {
        if let Err(why) = OpenStack::find() {
            skip(test, &why.to_string());
            return None;
        }
        let two = TwoPlatforms::joined(test)?;
        let sockets = [two.a.socket(), two.b.socket()];
        let interfaces = [("lan", "client"), ("wan", "server")];
        let of = |host: usize, address: &str| {
            let at_once = "network_linger=0\n";
            nova_config(HOSTS[host], &sockets[host], &interfaces, address, at_once)
        };
        let (file, mut neutron) =
            neutron_config(&[(HOSTS[0], &sockets[0]), (HOSTS[1], &sockets[1])]);
        neutron += "resync_interval=5\n";
        let config = [
            (file, neutron),
            of(0, &two.a_address),
            of(1, &two.b_address),
        ];
        let mut openstack = OpenStack::start(&HOSTS, &config).expect("OpenStack starts");
        let mut id = |method: &str, arguments: &[Value]| {
            let made = openstack.id(method, arguments, Value::Null);
            made.unwrap_or_else(|why| panic!("{why:#}"))
        };
        let flavor = id("flavor", &[json!("small"), json!(64), share(50)]);
        let mut network = |name: &str| {
            id(
                "network",
                &[json!(name), json!(name), json!("10.0.0.0/24"), json!(false)],
            )
        };
        let [lan, wan] = ["lan", "wan"].map(&mut network);
        Some(Cloud {
            openstack,
            two,
            flavor,
            lan,
            wan,
        })
    }

    fn ask(&mut self, method: &str, arguments: &[Value]) -> Value {
        self.named(method, arguments, Value::Null)
    }

    fn id(&mut self, method: &str, arguments: &[Value]) -> String {
        self.named_id(method, arguments, Value::Null)
    }

    fn named(&mut self, method: &str, arguments: &[Value], named: Value) -> Value {
        let answer = self.openstack.ask_with(method, arguments, named);
        answer.unwrap_or_else(|why| panic!("{why:#}"))
    }

    fn named_id(&mut self, method: &str, arguments: &[Value], named: Value) -> String {
        let made = self.openstack.id(method, arguments, named);
        made.unwrap_or_else(|why| panic!("{why:#}"))
    }

    fn image(&mut self, name: &str, properties: Value) -> String {
        self.id("image", &[json!(name), properties])
    }

    /// Makes a server on `host`.
    fn server(&mut self, image: &str, networks: Value, host: &str, more: Value) -> String {
        let arguments = [
            json!("s"),
            json!(image),
            json!(self.flavor),
            networks,
            json!(host),
        ];
        self.named_id("create", &arguments, more)
    }

    /// Has an action done, after which the server has this status.
    fn act(&mut self, server: &str, action: &str, detail: Value, status: &str) {
        self.ask(
            "act",
            &[json!(server), json!(action), detail, json!(status)],
        );
    }

    fn status(&mut self, server: &str) -> Value {
        self.ask("show", &[json!(server)])
    }

    fn crosses(&self) -> bool {
        self.two.a.pings("client", SERVER)
    }

    /// The same, after a move on which nobody has told the segments' bridges where the hosts are now.
    fn crosses_anew(&self) -> bool {
        self.two.forget_places();
        self.crosses()
    }
}

/// Returns the instances of a host, without guards.
fn instances(platform: &Platform) -> Vec<String> {
    let names = platform.pids().into_keys();
    names.filter(|name| !name.contains('@')).collect()
}

fn count(platform: &Platform, kind: &str) -> usize {
    let all = platform.ask(&["get", kind]);
    all.as_array().expect("a list").len()
}

/// Nothing of the cloud is left on a host.
fn is_clean(platform: &Platform) -> bool {
    ["instances", "switches", "uplinks"]
        .iter()
        .all(|kind| count(platform, kind) == 0)
}

// promise: 34.1, 34.2, 34.3, 34.4
#[test]
fn a_server_of_nova_is_what_nova_says_and_passes_traffic() {
    let test = "a_server_of_nova_is_what_nova_says_and_passes_traffic";
    let Some(mut cloud) = Cloud::start(test) else {
        return;
    };
    let firewall = cloud.image("fw", json!({ "nfluid_nf": "firewall" }));
    let networks = json!([cloud.lan, cloud.wan]);
    let rules = json!({ "user_data": "allow ip from any to any keep-state" });
    let server = cloud.server(&firewall, networks.clone(), HOSTS[0], rules);
    eventually("the first echo comes", || cloud.crosses());
    assert_eq!(instances(&cloud.two.a), [server.as_str()]);

    cloud.act(&server, "pause", Value::Null, "PAUSED");
    assert!(!cloud.crosses());
    cloud.act(&server, "unpause", Value::Null, "ACTIVE");
    eventually("it goes on", || cloud.crosses());

    cloud.act(&server, "suspend", Value::Null, "SUSPENDED");
    assert!(!cloud.crosses() && instances(&cloud.two.a).is_empty());
    cloud.act(&server, "resume", Value::Null, "ACTIVE");
    eventually("it goes on with its states", || cloud.crosses());

    for reboot in ["SOFT", "HARD"] {
        let before = cloud.two.a.pids();
        cloud.act(&server, "reboot", json!({ "type": reboot }), "ACTIVE");
        eventually("it is another process", || {
            cloud.crosses() && cloud.two.a.pids() != before
        });
    }

    cloud.act(&server, "os-stop", Value::Null, "SHUTOFF");
    assert_eq!(cloud.status(&server)["power"], 4);
    assert!(!cloud.crosses() && instances(&cloud.two.a).is_empty());
    cloud.act(&server, "os-start", Value::Null, "ACTIVE");
    eventually("it is back", || cloud.crosses());

    let console = cloud.ask("console", &[json!(server)]);
    assert!(console.as_str().is_some_and(|log| !log.is_empty()));

    // Live, to and fro: nothing is lost.
    let conversation = Conversation::unhurried(&cloud.two.a);
    conversation.has_answers(50, "before");
    for host in [HOSTS[1], HOSTS[0]] {
        let moved = cloud.ask("live_migrate", &[json!(server), json!(host)]);
        assert_eq!(moved["host"], host, "{moved}");
        assert_eq!(moved["migration"], "completed", "{moved}");
    }
    conversation.has_answers(50, "after");
    let books = conversation.end();
    assert_eq!((books.lost, books.answered_twice), (0, 0), "{books:?}");
    assert!(is_clean(&cloud.two.b), "nothing stays behind");

    // Cold, with another flavor; back, and for good.
    let large = cloud.id("flavor", &[json!("large"), json!(128), share(300)]);
    let resize = json!({ "flavorRef": large });
    cloud.act(&server, "resize", resize.clone(), "VERIFY_RESIZE");
    eventually("it passes traffic", || cloud.crosses_anew());
    cloud.act(&server, "revertResize", Value::Null, "ACTIVE");
    eventually("it is as it was", || cloud.crosses_anew());
    cloud.act(&server, "resize", resize, "VERIFY_RESIZE");
    cloud.act(&server, "confirmResize", Value::Null, "ACTIVE");
    eventually("it passes traffic", || cloud.crosses_anew());
    let host = cloud.status(&server)["host"].clone();
    let (here, there) = match host == HOSTS[0] {
        true => (&cloud.two.a, &cloud.two.b),
        false => (&cloud.two.b, &cloud.two.a),
    };
    assert_eq!(here.instance(&server)["share_percent"], 30.0);
    assert!(is_clean(there), "nothing stays behind");

    // An image of it, and a server of that.
    let image = cloud.ask("snapshot", &[json!(server), json!("saved")]);
    let other = cloud.image(
        "other",
        json!({ "nfluid_nf": "firewall", "nfluid_tier": "process" }),
    );
    cloud.act(&server, "rebuild", json!({ "imageRef": other }), "ACTIVE");
    eventually("the other image passes traffic", || cloud.crosses());
    cloud.act(&server, "rebuild", json!({ "imageRef": image }), "ACTIVE");
    eventually("the saved one passes traffic", || cloud.crosses());

    cloud.ask("delete", &[json!(server)]);
    assert!(!cloud.crosses());
    for platform in [&cloud.two.a, &cloud.two.b] {
        assert!(is_clean(platform), "nothing stays behind");
    }
}

// promise: 34.8, 34.9, 34.10
#[test]
fn neutrons_groups_hold_and_what_fails_leaves_nothing() {
    let test = "neutrons_groups_hold_and_what_fails_leaves_nothing";
    let Some(mut cloud) = Cloud::start(test) else {
        return;
    };
    // A router answers pings at its fixed address.
    let router = cloud.image(
        "router",
        json!({ "nfluid_nf": "router", "nfluid_ports": "a,b" }),
    );
    let group = cloud.id("group", &[json!("web")]);
    let address = "10.0.0.77";
    let lan = cloud.lan.clone();
    let port = cloud.named_id(
        "port",
        &[json!(lan), json!(address)],
        json!({ "security_groups": [group], "port_security_enabled": true }),
    );
    let server = cloud.server(&router, json!([{ "port": port }]), HOSTS[0], json!({}));
    assert_eq!(cloud.ask("port_status", &[json!(port)]), "ACTIVE");
    let answers = |cloud: &Cloud| cloud.two.a.pings("client", address);
    assert!(!answers(&cloud), "no rule permits it");
    let rule = json!({ "direction": "ingress", "ethertype": "IPv4", "protocol": "icmp", "remote_ip_prefix": "10.0.0.1/32" });
    let permitted = cloud.named_id("permit", &[json!(group)], rule);
    eventually("the rule permits it", || answers(&cloud));
    cloud.ask("withdraw", &[json!(permitted)]);
    eventually("the rule is withdrawn", || !answers(&cloud));

    // A group's members, as they come and go.
    let friends = cloud.id("group", &[json!("friends")]);
    let rule = json!({ "direction": "ingress", "ethertype": "IPv4", "remote_group_id": friends });
    cloud.named_id("permit", &[json!(group)], rule);
    assert!(!answers(&cloud));
    let member = cloud.named_id(
        "port",
        &[json!(lan), json!("10.0.0.1")],
        json!({ "security_groups": [friends], "port_security_enabled": true }),
    );
    eventually("the client is in the group", || answers(&cloud));
    cloud.named(
        "change_port",
        &[json!(member)],
        json!({ "security_groups": [] }),
    );
    eventually("the client has left the group", || !answers(&cloud));
    cloud.named(
        "change_port",
        &[json!(port)],
        json!({ "security_groups": [], "port_security_enabled": false }),
    );
    let live = cloud
        .openstack
        .ask("live_migrate", &[json!(server), json!(HOSTS[1])]);
    assert!(
        live.is_err() || live.is_ok_and(|it| it["host"] == HOSTS[0]),
        "it does not move from its guard"
    );

    eventually("everything passes without port security", || {
        answers(&cloud)
    });

    // An interface more, and one less. One that the router cannot have changes nothing.
    let wan = cloud.wan.clone();
    let second = cloud.named_id("port", &[json!(wan), json!("10.0.0.78")], json!({}));
    let refused = cloud
        .openstack
        .ask("attach", &[json!(server), json!(second)]);
    refused.expect_err("two ports in one subnet");
    eventually("it goes on", || answers(&cloud));
    let more = [
        json!("more"),
        Value::Null,
        json!("10.1.0.0/24"),
        json!(false),
    ];
    let more = cloud.id("network", &more);
    let third = cloud.named_id("port", &[json!(more), json!("10.1.0.1")], json!({}));
    let switches = |cloud: &Cloud| count(&cloud.two.a, "switches");
    assert_eq!(switches(&cloud), 1);
    cloud.ask("attach", &[json!(server), json!(third)]);
    eventually("it goes on", || answers(&cloud) && switches(&cloud) == 2);
    cloud.ask("detach", &[json!(server), json!(third)]);
    eventually("it goes on", || answers(&cloud) && switches(&cloud) == 1);

    // What cannot be made is a fault that says why, and nothing stays.
    for (name, image, why) in [
        (
            "foreign",
            json!({ "os_distro": "debian" }),
            "one property of",
        ),
        ("unknown", json!({ "nfluid_nf": "nothing" }), "unknown NF"),
        (
            "share",
            json!({ "nfluid_nf": "bridge", "nfluid_share": "100%" }),
            "is for flavors",
        ),
        (
            "program",
            json!({ "nfluid_program": "/bin/sh" }),
            "below no folder",
        ),
    ] {
        let image = cloud.image(name, image);
        let arguments = [
            json!(name),
            json!(image),
            json!(cloud.flavor),
            json!([lan]),
            json!(HOSTS[1]),
        ];
        let error = cloud
            .openstack
            .ask("create", &arguments)
            .expect_err(name)
            .to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
    assert!(is_clean(&cloud.two.b));

    // A nova-compute that is killed at any moment leaves nothing that does not go.
    let bridge = cloud.image("bridge", json!({ "nfluid_nf": "bridge" }));
    for after in [0, 150, 400, 800] {
        let made = cloud.ask(
            "begin",
            &[
                json!("k"),
                json!(bridge),
                json!(cloud.flavor),
                json!([lan]),
                json!(HOSTS[1]),
            ],
        );
        thread::sleep(Duration::from_millis(after));
        cloud
            .openstack
            .restart(&format!("nova-compute-{}", HOSTS[1]))
            .expect("it starts again");
        cloud.ask("settled", std::slice::from_ref(&made));
        cloud.ask("delete", &[made]);
    }
    eventually("nothing is left", || is_clean(&cloud.two.b));
    cloud.ask("delete", &[json!(server)]);
    eventually("nothing is left", || is_clean(&cloud.two.a));
    cloud.ask("drop_port", &[json!(port)]);
    eventually("nor is a group", || {
        count(&cloud.two.a, "security-groups") == 0
    });
}

/// The folder of the drivers.
/// A port of a network on Open vSwitch, in which a host is.
fn host_on_ovs(cloud: &mut OpenStack, platform: &mut Platform, host: &str, port: [&str; 3]) {
    let [network, address, group] = port;
    let more = json!({ "binding_host_id": HOSTS[0], "device_owner": "compute:test", "security_group_ids": [group] });
    let made = cloud.id("port", &[json!(network), json!(address)], more);
    let port = made.expect("a port");
    let mac = cloud.ask("port_mac", &[json!(port)]).expect("an address");
    let mac = mac.as_str().expect("an address");
    platform.host(host, &format!("{address}/24"));
    for line in [
        format!("ip link set eth0 address {mac}"),
        "ethtool -K eth0 tx off".to_owned(),
    ] {
        let outcome = platform.on(host, &line);
        assert!(outcome.succeeded(), "{outcome:?}");
    }
    let edge = platform.edge();
    must(&format!(
        "ip netns exec {edge} ovs-vsctl --db=tcp:127.0.0.1:6640 add-port br-int {host} -- set Interface {host} \
         external_ids:iface-id={port} external_ids:attached-mac={mac} external_ids:iface-status=active"
    ));
    eventually("the agent has wired the port", || {
        cloud.ask("port_status", &[json!(port)]).expect("a status") == "ACTIVE"
    });
}

// promise: 34.11, 35.7
#[test]
fn ports_on_open_vswitch_are_wired_filtered_and_go_with_their_server() {
    let test = "ports_on_open_vswitch_are_wired_filtered_and_go_with_their_server";
    if let Err(why) = OpenStack::find() {
        return skip(test, &why.to_string());
    }
    let Some(mut platform) = Platform::at_rest(test) else {
        return;
    };
    platform.run_at_edge();
    platform.start();
    let more = "network_linger=0\n[os_vif_ovs]\novsdb_connection=tcp:127.0.0.1:6640\n";
    let config = [
        neutron_config(&[]),
        nova_config(HOSTS[0], &platform.socket(), &[], "", more),
    ];
    let started = OpenStack::start_on_ovs(HOSTS[0], &config, &platform.edge());
    let mut cloud = match started {
        Err(why) if why.is::<CannotRun>() => return skip(test, &why.to_string()),
        other => other.expect("OpenStack starts"),
    };
    let mut id = |method: &str, arguments: &[Value], more: Value| {
        let made = cloud.id(method, arguments, more);
        made.unwrap_or_else(|why| panic!("{why:#}"))
    };
    let group = id("group", &[json!("hosts")], Value::Null);
    let permit = |protocol: &str| json!({ "direction": "ingress", "ethertype": "IPv4", "protocol": protocol });
    let icmp = id("permit", &[json!(group)], permit("icmp"));
    id("permit", &[json!(group)], permit("udp"));
    let flavor = id(
        "flavor",
        &[json!("small"), json!(64), share(200)],
        Value::Null,
    );
    let image = id(
        "image",
        &[json!("bridge"), json!({ "nfluid_nf": "bridge" })],
        Value::Null,
    );
    let [lan, wan] = ["lan", "wan"].map(|name| {
        let arguments = [json!(name), Value::Null, json!("10.0.0.0/24")];
        id("network", &arguments, Value::Null)
    });
    // A bridge forwards what others have sent.
    let open = json!({ "port_security_enabled": false, "security_group_ids": [] });
    let ports = [&lan, &wan].map(|network| {
        let port = id("port", &[json!(network), json!("10.0.0.9")], open.clone());
        json!({ "port": port })
    });
    host_on_ovs(&mut cloud, &mut platform, "client", [&lan, CLIENT, &group]);
    host_on_ovs(&mut cloud, &mut platform, "server", [&wan, SERVER, &group]);
    let arguments = [
        json!("s"),
        json!(image),
        json!(flavor),
        json!(ports),
        json!(HOSTS[0]),
    ];
    let server = cloud.id("create", &arguments, Value::Null);
    let server = server.unwrap_or_else(|why| panic!("{why:#}"));
    let crosses = || platform.pings("client", SERVER);
    eventually("it crosses the server", crosses);

    cloud.ask("withdraw", &[json!(icmp)]).expect("a rule goes");
    eventually("a withdrawn rule holds", || !crosses());
    let again = cloud.id("permit", &[json!(group)], permit("icmp"));
    let icmp = again.expect("a rule");
    eventually("a rule holds", crosses);

    // The agent is killed. Its flows stay, and the next one goes on with them.
    let conversation = Conversation::start(&platform);
    conversation.has_answers(100, "before");
    cloud.restart("ovs-agent").expect("another agent");
    cloud.ask("withdraw", &[json!(icmp)]).expect("a rule goes");
    eventually("a rule that was withdrawn meanwhile holds", || !crosses());
    let again = cloud.id("permit", &[json!(group)], permit("icmp"));
    let again = again.expect("a rule");
    eventually("a rule holds", crosses);
    conversation.has_answers(100, "after");

    // The message bus and the database are killed. Frames do not notice, and what is asked for later is done.
    for service in ["rabbit", "mysql"] {
        cloud.restart(service).expect("it starts again");
    }
    conversation.has_answers(100, "without them");
    eventually("Neutron has its database again", || {
        let made = cloud.id("permit", &[json!(group)], permit("sctp"));
        made.is_ok()
    });
    eventually("a rule goes", || {
        let gone = cloud.ask("withdraw", &[json!(again)]);
        gone.is_ok()
    });
    eventually("Neutron's agent hears of it again", || !crosses());
    cloud
        .id("permit", &[json!(group)], permit("icmp"))
        .expect("a rule");
    eventually("a rule holds", crosses);
    for (action, status) in [("pause", "PAUSED"), ("unpause", "ACTIVE")] {
        eventually(&format!("Nova does it again: {action}"), || {
            let acted = cloud.ask(
                "act",
                &[json!(server), json!(action), Value::Null, json!(status)],
            );
            acted.is_ok()
        });
    }
    assert_eq!(conversation.end().lost, 0);

    for (action, status) in [("os-stop", "SHUTOFF"), ("os-start", "ACTIVE")] {
        let acted = cloud.ask(
            "act",
            &[json!(server), json!(action), Value::Null, json!(status)],
        );
        acted.unwrap_or_else(|why| panic!("{why:#}"));
    }
    eventually("it crosses a server that was stopped", crosses);
    cloud
        .ask("delete", &[json!(server)])
        .expect("a server goes");
    eventually("nothing is left", || is_clean(&platform));
    let edge = platform.edge();
    let ports = must(&format!(
        "ip netns exec {edge} ovs-vsctl --db=tcp:127.0.0.1:6640 list-ports br-int"
    ));
    let mut left: Vec<&str> = ports.split_whitespace().collect();
    left.sort_unstable();
    assert_eq!(left, ["client", "server"]);
    let interfaces = must(&format!("ip -n {edge} -o link"));
    assert!(!interfaces.contains(": nf"), "{interfaces}");
}

fn drivers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../integrations/openstack")
}

/// Runs the drivers' own tests in the files of this pattern, by `python`.
fn python_tests(python: &Path, pattern: &str, environment: &[(&str, &str)]) {
    let drivers = drivers();
    let paths = ["nova", "neutron", "firewall"].map(|of| drivers.join(of).display().to_string());
    let mut command = Command::new(python);
    command
        .args([
            "-B",
            "-m",
            "unittest",
            "discover",
            "--verbose",
            "--start-directory",
        ])
        .arg(drivers.join("tests"))
        .args(["--pattern", pattern])
        .env("PYTHONPATH", paths.join(":"))
        .envs(environment.iter().copied());
    let outcome = must_run(&mut command);
    assert!(
        !outcome.stderr.contains("Ran 0 tests"),
        "{}",
        outcome.stderr
    );
}

// promise: 34.5
#[test]
fn servers_and_rules_become_documents() {
    python_tests(Path::new("python3"), "test_[dg]*[ps].py", &[]);
}

// promise: 35.8
#[test]
fn rules_become_flows() {
    python_tests(Path::new("python3"), "test_firewall.py", &[]);
}

// promise: 34.6
#[test]
fn a_daemon_is_a_node_of_nova() {
    let test = "a_daemon_is_a_node_of_nova";
    let Some(mut platform) = Platform::at_rest(test) else {
        return;
    };
    platform.run_at_edge();
    platform.host("eth1", "10.0.0.1/24");
    platform.start();
    let socket = platform.socket();
    let socket = socket.to_str().expect("a path that is text");
    python_tests(
        Path::new("python3"),
        "test_host.py",
        &[("NFLUID_SOCKET", socket), ("NFLUID_INTERFACE", "eth1")],
    );
}

// promise: 34.7
#[test]
fn nova_finds_that_the_driver_is_a_driver() {
    let test = "nova_finds_that_the_driver_is_a_driver";
    let venv = match OpenStack::find() {
        Ok(venv) => venv,
        Err(why) => {
            skip(test, &why.to_string());
            return;
        }
    };
    let python = python_of(venv.as_deref());
    let fixtures = Command::new(&python)
        .args(["-c", "import nova.test, oslotest"])
        .output();
    if !fixtures.is_ok_and(|it| it.status.success()) {
        skip(test, "Nova's fixtures need the Python package oslotest");
        return;
    }
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    platform.start();
    let socket = platform.socket();
    let socket = socket.to_str().expect("a path that is text");
    let environment = [("NFLUID_SOCKET", socket)];
    python_tests(&python, "test_driver.py", &environment);
}
