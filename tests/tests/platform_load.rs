//! The promise: weights of a balancer's servers follow the load that their SNMP agents tell - Debian's `snmpd` here -
//! and are the configured ones when an agent says nothing.

use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nfluid_tests::harness::within;

const SNMPD: &str = "/usr/sbin/snmpd";
const SERVICE: (Ipv4Addr, u16) = (Ipv4Addr::new(203, 0, 113, 1), 53);

/// `laLoadInt.1`; the first service asks in SNMPv2c, the second in SNMPv3.
const DEPLOYMENT: &str = "
version: 1
instances:
  lb:
    tier: xdp
    nf: elb
    interface: [client, s1, s2]
    netns: EDGE
    config:
      connections: 4000
      services:
        dns:
          at: 203.0.113.1:53
          protocol: udp
          load: { oid: 1.3.6.1.4.1.2021.10.1.5.1, full: 100, community: tests,
                  interval: 100ms, timeout: 20s, smoothing: 100 }
          servers:
            - { at: 10.0.1.2:53 }
            - { at: 10.0.2.2:53 }
        secure:
          at: 203.0.113.1:54
          protocol: udp
          load: { oid: 1.3.6.1.4.1.2021.10.1.5.1, full: 100, interval: 100ms, timeout: 20s, smoothing: 100,
                  user: { name: tester, auth: sha256, password: a long secret, privacy: aes128 } }
          servers:
            - { at: 10.0.1.2:54 }
";

/// An agent, which ends with it.
struct Agent(Child);

impl Agent {
    /// Starts an agent on a host at `address`, which reports this load in hundredths.
    fn start(platform: &Platform, host: &str, address: &str, load: u32) -> Self {
        let folder = platform.directory().join(host);
        fs::create_dir_all(&folder).expect("the directory is ours");
        let file = folder.join("snmpd.conf");
        let config = format!(
            "rocommunity tests\ncreateUser tester SHA-256 \"a long secret\" AES\nrouser tester priv\n\
             override .1.3.6.1.4.1.2021.10.1.5.1 integer {load}\n"
        );
        fs::write(&file, config).expect("it is written");
        let netns = platform.host_netns(host);
        let name = netns.file_name().expect("it has one");
        let child = Command::new("ip")
            .args(["netns", "exec"])
            .arg(name)
            .args([SNMPD, "-f", "-r", "-Ln", "-C", "-c"])
            .arg(&file)
            .arg(format!("udp:{address}:161"))
            .env("SNMP_PERSISTENT_DIR", &folder)
            .stdin(Stdio::null())
            .spawn();
        Agent(child.expect("it starts"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Returns the status of the load of a service's server.
fn load(platform: &Platform, service: usize, server: usize) -> Value {
    let lb = platform.instance("lb");
    lb["fast"]["services"][service]["servers"][server]["load"].clone()
}

/// Packets of the first service that its servers have got.
fn packets(platform: &Platform) -> [u64; 2] {
    let lb = platform.instance("lb");
    [0, 1].map(|server| {
        let packets = &lb["fast"]["services"][0]["servers"][server]["packets"];
        packets.as_u64().unwrap_or(0)
    })
}

// promise: 15.34
#[test]
fn weights_follow_the_load_that_agents_tell() {
    let test = "weights_follow_the_load_that_agents_tell";
    if !Path::new(SNMPD).exists() {
        return skip(test, "no program 'snmpd': install snmpd");
    }
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    let edge = platform.edge();
    for (host, net) in [("client", 0), ("s1", 1), ("s2", 2)] {
        platform.host(host, &format!("10.0.{net}.2/24"));
        must(&format!(
            "ip -n {edge} address add 10.0.{net}.1/24 dev {host}"
        ));
        let routed = platform.on(host, &format!("ip route add default via 10.0.{net}.1"));
        assert!(routed.succeeded(), "{routed:?}");
    }
    must(&format!(
        "ip netns exec {edge} sysctl -qw net.ipv4.ip_forward=1"
    ));
    let full = Agent::start(&platform, "s1", "10.0.1.2", 500);
    let _idle = Agent::start(&platform, "s2", "10.0.2.2", 0);
    assert_eq!(platform.apply(DEPLOYMENT), ["created instance lb"]);
    eventually("a full server has its part, an idle one all", || {
        let (full, idle) = (load(&platform, 0, 0), load(&platform, 0, 1));
        full["weight_percent"] == 10 && full["percent"] == 100 && idle["percent"] == 0
    });
    eventually("an agent is understood in SNMPv3", || {
        load(&platform, 1, 0)["weight_percent"] == 10
    });
    within(&platform.host_netns("client"), || {
        for _ in 0..300 {
            // Each is of another port, and so a connection of its own.
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
            socket.send_to(b"x", SERVICE).expect("it is sent");
        }
    });
    let mut sent = [0, 0];
    eventually("new connections have gone by weight", || {
        sent = packets(&platform);
        sent[0] + sent[1] >= 100
    });
    assert!(sent[0] * 3 < sent[1], "{sent:?}");

    drop(full);
    eventually(
        "of one that is silent the configured weight is back",
        || {
            let silent = load(&platform, 0, 0);
            silent["weight_percent"] == 100 && silent["failures"].as_u64() >= Some(3)
        },
    );
    assert!(load(&platform, 0, 0)["reason"].is_string());
    assert!(platform.events_of("lb").contains(&"warning".to_owned()));
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
}
