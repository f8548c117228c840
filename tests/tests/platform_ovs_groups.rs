//! Security groups on Open vSwitch: what nfluid's firewall promises while rules change, connections run, and the agent dies.

use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::ovs::{AROUND, Firewall, OpenVSwitch};
use nfluid_tests::harness::conversation::Conversation;
use nfluid_tests::harness::skip::{is_root, skip};
use nfluid_tests::harness::two_hosts::{CLIENT, SERVER};
use serde_json::{Map, Value, json};
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

const BRIDGE: &str = "br-int";
/// The agent's user.
const AGENT: Option<&str> = Some("nobody");
/// Networks of two tenants.
const NET: u16 = 7;
const OTHER_NET: u16 = 8;

/// A host on a port of the bridge.
struct Host {
    namespace: Namespace,
    port: Value,
}

/// A bridge with its firewall, and hosts.
struct World {
    firewall: Firewall,
    switch: OpenVSwitch,
    middle: Namespace,
    hosts: Vec<Host>,
}

impl World {
    /// `None`: this host cannot.
    fn start(test: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        if let Err(why) = OpenVSwitch::find().and(Firewall::find()) {
            skip(test, &why.to_string());
            return None;
        }
        let middle = Namespace::new().expect("a namespace");
        let switch = OpenVSwitch::start(&middle, &[], None).expect("a switch");
        let control = &switch.control;
        control.make_bridge(BRIDGE).expect("a bridge");
        control.add_flows(BRIDGE, AROUND).expect("flows");
        Some(World {
            firewall: Firewall::start(&switch, BRIDGE, 1, AGENT).expect("a firewall"),
            switch,
            middle,
            hosts: Vec::new(),
        })
    }

    /// Adds a host of a network, which is in the group `all`, and returns its place.
    fn host(&mut self, net: u16, address: &str) -> usize {
        let number = self.hosts.len() + 1;
        let namespace = Namespace::new().expect("a namespace");
        let port = format!("p{number}");
        Namespace::join((&self.middle, &port), (&namespace, "eth0")).expect("a pair");
        let mac = format!("02:00:00:00:00:{number:02x}");
        for line in [
            format!("link set eth0 address {mac}"),
            format!("address add {address}/24 dev eth0"),
        ] {
            namespace.ip(&line).expect("an address");
        }
        // The switch's connection tracking looks at checksums, which the kernel leaves to a veth's other end.
        let whole = namespace.run("ethtool -K eth0 tx off");
        whole.expect("whole checksums");
        let options = format!("ofport_request={number} -- set Port {port} tag={net}");
        let added = self.switch.control.add_port(BRIDGE, &port, &options);
        added.expect("a port");
        let port = json!({ "number": number, "net": net, "mac": mac, "addresses": [[mac, address]], "groups": ["all"] });
        self.hosts.push(Host { namespace, port });
        number - 1
    }

    /// Has these rules for the group `all`, of which all hosts are, and whose members have `addresses`.
    fn set(&mut self, rules: &[Value], addresses: &[String]) {
        let ports: Map<String, Value> = (0..)
            .zip(&self.hosts)
            .map(|(at, host)| (format!("{at}"), host.port.clone()))
            .collect();
        let mut members = vec![CLIENT.to_owned(), SERVER.to_owned()];
        members.extend_from_slice(addresses);
        let change =
            json!({ "rules": { "all": rules }, "members": { "all": members }, "ports": ports });
        self.change(&change);
    }

    fn change(&mut self, change: &Value) {
        let changed = self.firewall.change(change);
        changed.unwrap_or_else(|error| panic!("{error:#}"));
    }

    fn converse(&self, client: usize, server: usize) -> Conversation {
        let of = |at: usize| self.hosts[at].namespace.path();
        Conversation::in_namespaces([of(client), of(server)])
    }

    fn pings(&self, from: usize, address: &str) -> bool {
        let ping = format!("ping -n -c 1 -W 1 {address}");
        self.hosts[from].namespace.run(&ping).is_ok()
    }

    fn flows(&self, matching: &str) -> Vec<String> {
        let flows = self.switch.control.flows(BRIDGE, matching);
        flows.expect("the bridge tells its flows")
    }
}

/// Everything out; UDP from the group's members in.
fn rules() -> Vec<Value> {
    vec![
        json!({ "direction": "egress", "ethertype": "IPv4" }),
        json!({ "direction": "ingress", "ethertype": "IPv4", "protocol": "udp", "remote_group_id": "all" }),
    ]
}

fn tcp(port: u16) -> Value {
    json!({
        "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": port, "port_range_max": port, "remote_group_id": "all",
    })
}

// promise: 35.2, 35.3
#[test]
fn changes_lose_nothing_that_stays_permitted() {
    let Some(mut world) = World::start("changes_lose_nothing_that_stays_permitted") else {
        return;
    };
    let [client, server] = [CLIENT, SERVER].map(|address| world.host(NET, address));
    world.set(&rules(), &[]);
    let conversation = world.converse(client, server);
    conversation.has_answers(100, "at first");
    let mut cookie = 1;
    for round in 0..60_u16 {
        // Other rules, and so another profile; other members; another host, which comes and goes.
        let mut found = rules();
        found.extend((0..round % 7).map(|it| tcp(1000 * it + round)));
        let others: Vec<String> = (0..round % 5).map(|it| format!("10.0.9.{it}")).collect();
        world.set(&found, &others);
        let mac = "02:00:00:00:00:7f";
        let other = json!({ "number": 99, "net": NET, "mac": mac, "addresses": [[mac, "10.0.0.99"]], "groups": ["all"] });
        world.change(&json!({ "ports": { "other": other } }));
        world.change(&json!({ "removed": ["other"] }));
        if round % 10 == 9 {
            // The agent is killed, and the next one begins on the bridge as it is. Then it takes away what is not its own.
            let earlier = format!("cookie={cookie}/-1");
            cookie += 1;
            world.firewall =
                Firewall::start(&world.switch, BRIDGE, cookie, AGENT).expect("a firewall");
            conversation.has_answers(100, "with flows of an earlier run");
            world.set(&found, &others);
            let gone = world.switch.control.delete_flows(BRIDGE, &earlier);
            gone.expect("flows go");
        }
        conversation.has_answers(20, "after a change");
    }
    let books = conversation.end();
    assert_eq!((books.lost, books.answered_twice), (0, 0), "{books:?}");
}

// promise: 35.4
#[test]
fn a_withdrawn_rule_ends_its_connections_until_it_is_back() {
    let Some(mut world) = World::start("a_withdrawn_rule_ends_its_connections_until_it_is_back")
    else {
        return;
    };
    let [client, server] = [CLIENT, SERVER].map(|address| world.host(NET, address));
    for round in 0..5 {
        world.set(&rules(), &[]);
        let conversation = world.converse(client, server);
        conversation.has_answers(100, "with the rule");
        world.set(&rules()[..1], &[]);
        // What had passed the bridge by now may still be on its way to the client.
        thread::sleep(Duration::from_millis(50));
        let answers = conversation.answers();
        thread::sleep(Duration::from_millis(300));
        assert_eq!(conversation.answers(), answers, "round {round}: it goes on");
        // The same connection, and no other one, goes on with the rule.
        world.set(&rules(), &[]);
        let others = conversation.break_off();
        assert!(others.lost > 0, "round {round}: {others:?}");
    }
    // The other side cannot go on alone with a connection whose rule is gone.
    let [asks, answers] = [(client, CLIENT), (server, SERVER)].map(|(at, address)| {
        let socket = world.hosts[at]
            .namespace
            .udp_socket(&format!("{address}:9"));
        let socket = socket.expect("a socket");
        let wait = socket.set_read_timeout(Some(Duration::from_millis(300)));
        wait.expect("a timeout");
        socket
    });
    let (to, back) = (format!("{SERVER}:9"), format!("{CLIENT}:9"));
    let passes = |from: &UdpSocket, to: &str, at: &UdpSocket| {
        from.send_to(b"?", to).expect("it is sent");
        at.recv(&mut [0; 8]).is_ok()
    };
    assert!(passes(&asks, &to, &answers) && passes(&answers, &back, &asks));
    world.set(&rules()[..1], &[]);
    assert!(!passes(&asks, &to, &answers), "the rule is gone");
    assert!(!passes(&answers, &back, &asks), "its connection is gone");
    world.set(&rules(), &[]);
    assert!(passes(&asks, &to, &answers), "the rule is back");
    assert!(passes(&answers, &back, &asks), "its connection is back");
    // A member that is none any more: its rule is there, and it is not meant.
    let conversation = world.converse(client, server);
    conversation.has_answers(100, "as a member");
    let ports = json!({ "0": world.hosts[0].port, "1": world.hosts[1].port });
    world.change(&json!({ "members": { "all": [SERVER] }, "ports": ports }));
    thread::sleep(Duration::from_millis(50));
    let answers = conversation.answers();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(conversation.answers(), answers, "no member any more");
    conversation.break_off();
}

// promise: 35.5
#[test]
fn tenants_with_equal_addresses_never_meet() {
    let Some(mut world) = World::start("tenants_with_equal_addresses_never_meet") else {
        return;
    };
    let [client, server] = [CLIENT, SERVER].map(|address| world.host(NET, address));
    let [other_client, other_server] =
        [CLIENT, SERVER].map(|address| world.host(OTHER_NET, address));
    // The other tenant's server permits nothing.
    world.hosts[other_server].port["groups"] = json!(["none"]);
    world.change(&json!({ "rules": { "none": [] } }));
    let mut found = rules();
    found.push(json!({ "direction": "ingress", "ethertype": "IPv4", "protocol": "icmp" }));
    world.set(&found, &[]);
    let conversation = world.converse(client, server);
    conversation.has_answers(100, "of the one tenant");
    assert!(
        world.pings(client, SERVER),
        "the one tenant's rules permit it"
    );
    assert!(
        !world.pings(other_client, SERVER),
        "a connection of equal addresses is another tenant's"
    );
    let [one, other] = [server, other_server].map(|at| {
        let frames = world.hosts[at].namespace.received("eth0");
        frames.expect("a counter")
    });
    assert!(
        one > 100 && other < 50,
        "the one has {one} frames, the other {other}"
    );
    assert_eq!(conversation.end().lost, 0);
}

// promise: 35.8
#[test]
fn flows_are_as_many_as_members_and_rules() {
    let Some(mut world) = World::start("flows_are_as_many_as_members_and_rules") else {
        return;
    };
    let empty = world.flows("table=82").len();
    let address = |at: usize| format!("10.1.{}.{}", at >> 8, at & 255);
    let ports: Map<String, Value> = (0..1000)
        .map(|at| {
            let mac = format!("02:00:00:01:{:02x}:{:02x}", at >> 8, at & 255);
            let port = json!({ "number": at + 1, "net": NET, "mac": mac, "addresses": [[mac, address(at)]], "groups": ["all"] });
            (at.to_string(), port)
        })
        .collect();
    let members: Vec<String> = (0..1000).map(address).collect();
    let rules: Vec<Value> = (1..=100).map(tcp).collect();
    let change =
        json!({ "rules": { "all": rules }, "members": { "all": members }, "ports": ports });
    world.change(&change);
    // The one more is what a member and a rule are together.
    assert_eq!(world.flows("table=82").len() - empty, 1000 + 100 + 1);
    world.change(&json!({ "removed": ports.keys().collect::<Vec<_>>() }));
    assert_eq!(world.flows("table=82").len(), empty);
}

// promise: 35.6
#[test]
fn a_bridge_that_is_away_is_named_and_has_the_change_later() {
    let Some(mut world) = World::start("a_bridge_that_is_away_is_named_and_has_the_change_later")
    else {
        return;
    };
    let mac = "02:00:00:00:00:01";
    let port = json!({ "number": 1, "net": NET, "mac": mac, "addresses": [[mac, CLIENT]], "groups": ["all"] });
    let socket = world.switch.bridge_socket(BRIDGE);
    let aside = socket.with_extension("aside");
    std::fs::rename(&socket, &aside).expect("a socket");
    let refused = world.firewall.change(&json!({ "ports": { "0": port } }));
    let why = format!("{:#}", refused.expect_err("the bridge is away"));
    assert!(
        why.contains("br-int.mgmt") && why.contains("is Open vSwitch running?"),
        "{why}"
    );
    std::fs::rename(&aside, &socket).expect("a socket");
    world.change(&json!({}));
    assert_eq!(world.flows("table=60,in_port=1").len(), 1);
}
