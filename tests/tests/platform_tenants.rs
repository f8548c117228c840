//! The example of 100 tenants, applied as it is printed: each has a firewall of its own, and only that one.

use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::within;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

const TENANTS: u32 = 100;
/// Beyond the uplink `core`.
const SERVER: &str = "192.0.2.1";
/// A port that the tenants' rules allow, and one that they do not.
const ALLOWED: u16 = 53;
const DENIED: u16 = 9;

/// The example's deployment, with interfaces in a namespace instead of the host's.
fn deployment() -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tenants/make-deployment");
    let printed = Command::new("python3")
        .arg(example)
        .arg(TENANTS.to_string())
        .output()
        .expect("python3 is installed");
    assert!(printed.status.success(), "{printed:?}");
    let text = String::from_utf8(printed.stdout).expect("text");
    ["access", "core"].iter().fold(text, |text, name| {
        let (own, its) = (
            format!("interface: {name}0,"),
            format!("interface: {name}, netns: EDGE,"),
        );
        assert!(text.contains(&own), "{own}");
        text.replace(&own, &its)
    })
}

/// A host with an address of every tenant, and a host beyond all tenants.
fn two_hosts(test: &str) -> Option<Platform> {
    let mut platform = Platform::new(test)?;
    platform.host("access", "10.1.0.2/32");
    platform.host("core", "192.0.2.1/32");
    let on = |host: &str, line: &str| {
        let outcome = platform.on(host, line);
        assert!(outcome.succeeded(), "{host}: {line}: {outcome:?}");
    };
    for tenant in 2..=TENANTS {
        let address = address(tenant);
        on("access", &format!("ip address add {address}/32 dev eth0"));
    }
    for host in ["access", "core"] {
        on(host, "ip route add default dev eth0");
    }
    Some(platform)
}

fn address(tenant: u32) -> String {
    format!("10.{tenant}.0.2")
}

/// A socket of a host.
fn socket(platform: &Platform, host: &str, address: &str, port: u16) -> UdpSocket {
    let socket = within(&platform.host_netns(host), || {
        UdpSocket::bind((address, port))
    });
    let socket = socket.unwrap_or_else(|error| panic!("{address} on {host}: {error}"));
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Frames that each firewall has received: of its tenant, and for it. ARP takes a chain without a firewall.
fn seen(stats: &Value) -> BTreeMap<String, (u64, u64)> {
    let mut seen = BTreeMap::new();
    for port in list(&stats["ports"]) {
        let name = port["name"].as_str().expect("a name");
        let frames = port["counters"]["rx_packets"].as_u64().expect("a counter");
        let Some((instance, port)) = name.split_once('.') else {
            continue;
        };
        let entry: &mut (u64, u64) = seen.entry(instance.to_owned()).or_default();
        match port {
            "in" => entry.0 += frames,
            _ => entry.1 += frames,
        }
    }
    seen
}

/// Frames that each firewall has refused, by its own account.
fn refused(stats: &Value) -> BTreeMap<String, u64> {
    let of = |instance: &Value| {
        let metrics = instance["metrics"].as_object().expect("metrics");
        let counts = metrics
            .iter()
            .filter(|(name, _)| name.starts_with("packets_dropped_total"))
            .map(|(_, value)| value.as_f64().expect("a figure") as u64);
        let name = instance["name"].as_str().expect("a name");
        (name.to_owned(), counts.sum())
    };
    list(&stats["instances"]).map(of).collect()
}

fn names<T: Copy>(value: T) -> BTreeMap<String, T> {
    (1..=TENANTS)
        .map(|tenant| (format!("t{tenant}"), value))
        .collect()
}

// promise: 7.26
#[test]
fn a_hundred_tenants_have_a_firewall_each() {
    let Some(platform) = two_hosts("a_hundred_tenants_have_a_firewall_each") else {
        return;
    };
    let deployment = deployment();
    let changes = platform.apply(&deployment);
    let created = |kind: &str| {
        let start = format!("created {kind} ");
        let those = changes.iter().filter(|change| change.starts_with(&start));
        those.count() as u32
    };
    assert_eq!(created("instance"), TENANTS);
    assert_eq!(created("chain"), TENANTS + 1, "and one for ARP");
    assert_eq!(platform.pids().len() as u32, TENANTS);
    let cgroups = |platform: &Platform| -> usize {
        let folders = platform.cgroups().into_iter();
        let below = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        below
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("i-"))
            .count()
    };
    assert!(cgroups(&platform) >= TENANTS as usize);

    let allowed = socket(&platform, "core", SERVER, ALLOWED);
    let denied = socket(&platform, "core", SERVER, DENIED);
    let tenants: Vec<(u32, UdpSocket)> = (1..=TENANTS)
        .map(|tenant| (tenant, socket(&platform, "access", &address(tenant), 0)))
        .collect();

    // Denied traffic does not arrive, and the tenant's own firewall counts it.
    for (_, tenant) in &tenants {
        tenant.send_to(b"denied", (SERVER, DENIED)).expect("sent");
    }
    eventually("each firewall has refused one", || {
        refused(&platform.ask(&["stats"])) == names(1)
    });
    denied.set_nonblocking(true).expect("a mode");
    let arrived = denied.recv(&mut [0; 16]).expect_err("nothing arrives");
    assert_eq!(arrived.kind(), ErrorKind::WouldBlock);

    // Allowed traffic arrives, and so does its answer; tenant by tenant, so that only its own firewall sees each.
    let mut expected = seen(&platform.ask(&["stats"]));
    assert_eq!(expected, names((1, 0)));
    for (tenant, client) in &tenants {
        let question = format!("of {tenant}");
        client
            .send_to(question.as_bytes(), (SERVER, ALLOWED))
            .expect("sent");
        let mut bytes = [0; 16];
        let (len, asker) = allowed.recv_from(&mut bytes).expect("it arrives");
        assert_eq!(&bytes[..len], question.as_bytes());
        assert_eq!(asker, client.local_addr().expect("it is bound"));
        allowed.send_to(b"answer", asker).expect("sent");
        let len = client.recv(&mut bytes).expect("the answer arrives");
        assert_eq!(&bytes[..len], b"answer");
        expected.insert(format!("t{tenant}"), (2, 1));
        if tenant % 10 == 1 {
            eventually(
                &format!("that of tenant {tenant} and no other has seen it"),
                || seen(&platform.ask(&["stats"])) == expected,
            );
        }
    }
    eventually("each has seen its own", || {
        seen(&platform.ask(&["stats"])) == names((2, 1))
    });
    assert_eq!(refused(&platform.ask(&["stats"])), names(1));

    // The firewall of the receiving tenant refuses an unrequested answer.
    allowed
        .send_to(b"unasked", (address(7), 1))
        .expect("it is sent");
    eventually("it is refused", || {
        refused(&platform.ask(&["stats"]))["t7"] == 2
    });
    let mut others = refused(&platform.ask(&["stats"]));
    others.insert("t7".to_owned(), 1);
    assert_eq!(others, names(1));

    let before = platform.pids();
    assert_eq!(platform.apply(&deployment), [""; 0]);
    assert_eq!(platform.pids(), before);

    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    assert_eq!(platform.instance_processes(), [0; 0]);
    assert_eq!(cgroups(&platform), 0);
    for place in [
        platform.run_dir().join("instances"),
        platform.run_dir().join("uplinks"),
        platform.run_dir().join("bells"),
        platform.run_dir().join("control"),
        platform.pins().join("instances"),
        platform.pins().join("uplinks"),
    ] {
        // Objects that the kernel has to release first are removed in the background.
        eventually(&format!("nothing is left in {}", place.display()), || {
            fs::read_dir(&place).into_iter().flatten().next().is_none()
        });
    }
}
