//! Neutron's security groups, interfaces that come and go, and what fails.

use crate::cloud::{Cloud, HOSTS, count, instances, is_clean};
use nfluid_tests::harness::patience::eventually;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

/// Groups hold, also of a server that moves; what fails leaves nothing.
pub fn hold_and_what_fails_leaves_nothing(cloud: &mut Cloud) {
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
    assert!(!answers(cloud), "no rule permits it");
    let rule = json!({ "direction": "ingress", "ethertype": "IPv4", "protocol": "icmp", "remote_ip_prefix": "10.0.0.1/32" });
    let permitted = cloud.named_id("permit", &[json!(group)], rule);
    eventually("the rule permits it", || answers(cloud));
    cloud.ask("withdraw", &[json!(permitted)]);
    eventually("the rule is withdrawn", || !answers(cloud));

    // A group's members, as they come and go.
    let friends = cloud.id("group", &[json!("friends")]);
    let rule = json!({ "direction": "ingress", "ethertype": "IPv4", "remote_group_id": friends });
    cloud.named_id("permit", &[json!(group)], rule);
    assert!(!answers(cloud));
    let member = cloud.named_id(
        "port",
        &[json!(lan), json!("10.0.0.1")],
        json!({ "security_groups": [friends], "port_security_enabled": true }),
    );
    eventually("the client is in the group", || answers(cloud));
    let join = |cloud: &mut Cloud, groups: Value| {
        let groups = json!({ "security_groups": groups });
        cloud.named("change_port", &[json!(member)], groups);
    };

    // The server moves, live: its group is on the other host before it, holds there, and changes there.
    for (host, there) in [(1, HOSTS[1]), (0, HOSTS[0])] {
        let moved = cloud.ask("live_migrate", &[json!(server), json!(there)]);
        assert_eq!(moved["migration"], "completed", "{moved}");
        let [here, left] = match host {
            0 => [&cloud.two.a, &cloud.two.b],
            _ => [&cloud.two.b, &cloud.two.a],
        };
        assert_eq!(instances(here), [server.as_str()]);
        assert!(left.pids().is_empty(), "no guard stays behind");
        eventually("the rule holds there", || answers(cloud));
        join(cloud, json!([]));
        eventually("the client has left the group", || !answers(cloud));
        join(cloud, json!([friends]));
        eventually("the client is in the group again", || answers(cloud));
    }
    join(cloud, json!([]));
    eventually("the client has left the group", || !answers(cloud));
    cloud.named(
        "change_port",
        &[json!(port)],
        json!({ "security_groups": [], "port_security_enabled": false }),
    );
    eventually("everything passes without port security", || answers(cloud));

    // An interface more, and one less. One that the router cannot have changes nothing.
    let wan = cloud.wan.clone();
    let second = cloud.named_id("port", &[json!(wan), json!("10.0.0.78")], json!({}));
    let refused = cloud
        .openstack
        .ask("attach", &[json!(server), json!(second)]);
    refused.expect_err("two ports in one subnet");
    eventually("it goes on", || answers(cloud));
    let more = [
        json!("more"),
        Value::Null,
        json!("10.1.0.0/24"),
        json!(false),
    ];
    let more = cloud.id("network", &more);
    let third = cloud.named_id("port", &[json!(more), json!("10.1.0.1")], json!({}));
    let switches = |cloud: &Cloud| count(&cloud.two.a, "switches");
    assert_eq!(switches(cloud), 1);
    cloud.ask("attach", &[json!(server), json!(third)]);
    eventually("it goes on", || answers(cloud) && switches(cloud) == 2);
    cloud.ask("detach", &[json!(server), json!(third)]);
    eventually("it goes on", || answers(cloud) && switches(cloud) == 1);

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
        let hosts = [&cloud.two.a, &cloud.two.b];
        hosts.iter().all(|host| count(host, "security-groups") == 0)
    });
}
