//! Ports on Open vSwitch, wired by Neutron's agent with nfluid's firewall driver.

use crate::cloud::{HOSTS, is_clean};
use nfluid_testbed::CannotRun;
use nfluid_testbed::openstack::{OpenStack, neutron_config, nova_config, share};
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::conversation::Conversation;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::two_hosts::{CLIENT, SERVER};
use serde_json::{Value, json};

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
    // What Neutron says while an agent has no queue yet is lost, and comes with the group's next change.
    eventually("Neutron's agent hears of it again", || {
        let next = cloud.id("permit", &[json!(group)], permit("esp"));
        let next = next.expect("a rule");
        cloud.ask("withdraw", &[json!(next)]).expect("a rule goes");
        !crosses()
    });
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
