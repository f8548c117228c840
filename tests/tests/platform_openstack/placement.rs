//! Where servers are: what hosts say of themselves, groups of servers, zones; and what becomes of a server that ends by itself.

use crate::cloud::{Cloud, HOSTS, instances};
use nfluid_testbed::process::signal;
use nfluid_tests::harness::patience::eventually;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Servers are where they should be, and Nova hears of their end.
pub fn is_by_groups_zones_and_traits(cloud: &mut Cloud) {
    let config = cloud.openstack.config("nova/nova.conf");
    let checked = cloud.openstack.run(
        "nova-status",
        &[
            "--config-file",
            &config.to_string_lossy(),
            "upgrade",
            "check",
        ],
    );
    let checked = checked.unwrap_or_else(|why| panic!("{why:#}"));
    assert!(!checked.contains("Result: Failure"), "{checked}");

    for host in HOSTS {
        let told = cloud.ask("traits", &[json!(host)]);
        let traits = told["traits"].as_array().expect("a list");
        assert!(traits.contains(&json!("CUSTOM_NFLUID_NF_BRIDGE")), "{told}");
        let shares = &told["inventories"]["CUSTOM_NFLUID_SHARE"]["total"];
        assert!(shares.as_u64() > Some(0), "{told}");
    }

    let image = json!({ "nfluid_nf": "bridge", "nfluid_restart": "never" });
    let bridge = cloud.image("bridge", image);
    let lan = cloud.lan.clone();
    let server = |cloud: &mut Cloud, name: &str, more: Value| {
        let arguments = [
            json!(name),
            json!(bridge),
            json!(cloud.flavor),
            json!([lan]),
        ];
        let id = cloud.named_id("create", &arguments, more);
        let host = cloud.status(&id)["host"].clone();
        (id, host)
    };
    for (policy, hosts) in [("anti-affinity", 2), ("affinity", 1)] {
        let group = cloud.id("server_group", &[json!(policy), json!(policy)]);
        let hints = json!({ "hints": { "group": group } });
        let (one, here) = server(cloud, "one", hints.clone());
        let (other, there) = server(cloud, "other", hints);
        assert_eq!(here == there, hosts == 1, "{policy}: {here} and {there}");
        for server in [one, other] {
            cloud.ask("delete", &[json!(server)]);
        }
    }
    cloud.ask("zone", &[json!("edge"), json!(HOSTS[1])]);
    let edge = json!({ "availability_zone": "edge" });
    let (in_zone, host) = server(cloud, "z", edge.clone());
    assert_eq!(host, HOSTS[1]);
    assert_eq!(instances(&cloud.two.b), [in_zone.as_str()]);

    // It is killed, and nobody starts it again: Nova says so long before it would look.
    let pid = cloud.two.b.pids()[&in_zone];
    signal(pid, Signal::KILL);
    eventually("Nova knows that it has ended", || {
        cloud.status(&in_zone)["status"] == "SHUTOFF"
    });
    cloud.act(&in_zone, "os-start", Value::Null, "ACTIVE");
    assert_eq!(instances(&cloud.two.b), [in_zone.as_str()]);
    cloud.ask("delete", &[json!(in_zone)]);
}
