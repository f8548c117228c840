//! Chains with several rules through the daemon: each datagram takes the chain that the rules name, both ways, and of
//! several that match the first of the file.

#[path = "uplink_fixture/mod.rs"]
mod uplink_fixture;

use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::within;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use uplink_fixture::{Raw, frame};

/// Two interfaces behind which others are than behind the third, and a chain for each kind of rule.
const DEPLOYMENT: &str = "
version: 1
uplinks:
  lan: { interface: client, netns: EDGE }
  branch: { interface: branch, netns: EDGE }
  wan: { interface: server, netns: EDGE }
instances:
  tagged: { nf: bridge, flavor: small }
  dns: { nf: bridge, flavor: small }
  low: { nf: bridge, flavor: small }
  far: { nf: bridge, flavor: small }
  branch-dns: { nf: bridge, flavor: small }
chains:
  tagged: { from: lan, to: wan, via: [tagged], match: [{ vlan: 7 }] }
  dns: { from: lan, to: wan, via: [dns], match: [{ src: 10.0.0.0/24, proto: udp, dport: 53 }] }
  low: { from: lan, to: wan, via: [low], match: [{ dst: 10.0.0.2/32, proto: udp, dport: 1-99 }] }
  far: { from: lan, to: wan, via: [far], match: [{ dst: 10.8.0.0/24 }, { dst: 10.9.0.0/24 }] }
  branch-dns: { from: branch, to: wan, via: [branch-dns], match: [{ proto: udp, dport: 53 }] }
";

/// Sender, source, destination, and the chain that receives the traffic.
const ROUTES: [(&str, &str, &str, &str); 6] = [
    ("client", "10.0.0.1", "10.0.0.2:53", "dns"),
    ("client", "10.0.0.1", "10.0.0.2:52", "low"),
    ("client", "10.0.0.1", "10.0.0.2:99", "low"),
    ("client", "10.0.0.1", "10.8.0.2:500", "far"),
    ("client", "10.0.0.1", "10.9.0.2:500", "far"),
    ("branch", "10.1.0.1", "10.1.0.2:53", "branch-dns"),
];

fn three_hosts(test: &str) -> Option<Platform> {
    let mut platform = Platform::new(test)?;
    platform.host("client", "10.0.0.1/24");
    platform.host("branch", "10.1.0.1/24");
    platform.host("server", "10.0.0.2/24");
    let on = |host: &str, line: &str| {
        let outcome = platform.on(host, line);
        assert!(outcome.succeeded(), "{host}: {line}: {outcome:?}");
        outcome.stdout.trim().to_owned()
    };
    for address in ["10.1.0.2/24", "10.8.0.2/24", "10.9.0.2/24"] {
        on("server", &format!("ip address add {address} dev eth0"));
    }
    on("client", "ip route add 10.8.0.0/15 dev eth0");
    // No rule names ARP: everyone knows everyone.
    let mac = |host: &str| on(host, "cat /sys/class/net/eth0/address");
    let neighbours = [
        ("client", "10.0.0.2", "server"),
        ("client", "10.8.0.2", "server"),
        ("client", "10.9.0.2", "server"),
        ("branch", "10.1.0.2", "server"),
        ("server", "10.0.0.1", "client"),
        ("server", "10.1.0.1", "branch"),
    ];
    for (host, address, other) in neighbours {
        let mac = mac(other);
        on(
            host,
            &format!("ip neighbour replace {address} lladdr {mac} dev eth0 nud permanent"),
        );
    }
    Some(platform)
}

fn namespace(platform: &Platform, host: &str) -> PathBuf {
    let edge = platform.edge();
    let name = edge.strip_suffix("-p").expect("that is how it is called");
    Path::new("/run/netns").join(format!("{name}-{host}"))
}

/// A socket of a host.
fn socket(platform: &Platform, host: &str, address: &str, patience: Duration) -> UdpSocket {
    let socket = within(&namespace(platform, host), || UdpSocket::bind(address));
    let socket = socket.unwrap_or_else(|error| panic!("{address} on {host}: {error}"));
    socket.set_read_timeout(Some(patience)).expect("a timeout");
    socket
}

fn raw(platform: &Platform, host: &str) -> Raw {
    within(&namespace(platform, host), || Raw::open("eth0")).expect("a raw socket")
}

/// Returns true if one datagram arrives, and its answer too.
fn is_answered(platform: &Platform, route: (&str, &str, &str), patience: Duration) -> bool {
    let (host, from, to) = route;
    let server = socket(platform, "server", to, patience);
    let client = socket(platform, host, &format!("{from}:0"), patience);
    client.connect(to).expect("an address");
    client.send(b"question").expect("it is sent");
    let own = client.local_addr().expect("it is bound");
    let mut bytes = [0; 16];
    let asker = loop {
        let Ok((len, asker)) = server.recv_from(&mut bytes) else {
            return false;
        };
        assert_eq!(&bytes[..len], b"question");
        // An answer that was given up may arrive late.
        if asker == own {
            break asker;
        }
    };
    server.send_to(b"answer", asker).expect("it is sent");
    client
        .recv(&mut bytes)
        .is_ok_and(|len| &bytes[..len] == b"answer")
}

/// Frames that have entered each chain: there, and back.
fn taken(platform: &Platform) -> BTreeMap<String, (u64, u64)> {
    let stats = platform.ask(&["stats"]);
    let figure = |chain: &Value, key: &str| chain[key].as_u64().expect("a figure");
    let chains = list(&stats["chains"]).map(|chain| {
        let name = chain["name"].as_str().expect("a name").to_owned();
        let frames = (
            figure(chain, "forward_packets"),
            figure(chain, "return_packets"),
        );
        (name, frames)
    });
    chains.collect()
}

/// Frames that no rule of the uplink took.
fn not_taken(platform: &Platform, uplink: &str) -> u64 {
    let stats = platform.ask(&["stats"]);
    let port = list(&stats["ports"]).find(|port| port["name"] == uplink);
    let drops = &port.expect("the uplink has counters")["counters"]["drops"];
    drops["no_route"].as_u64().unwrap_or(0)
}

/// Sends one datagram and its answer along each route, and looks which chain took them.
fn each_takes_its_chain(platform: &Platform, chain_of: impl Fn(&str, &str) -> String) {
    for (host, from, to, chain) in ROUTES {
        let mut expected = taken(platform);
        assert!(
            is_answered(platform, (host, from, to), PATIENCE),
            "{host}: {from} to {to}"
        );
        let chain = chain_of(to, chain);
        let frames = expected.get_mut(&chain).expect("the chain is there");
        frames.0 += 1;
        frames.1 += 1;
        let what = format!("{from} to {to} and back is counted by {chain} alone");
        eventually(&what, || taken(platform) == expected);
    }
}

/// Sends a frame that is tagged so from host to host.
fn send_tagged(platform: &Platform, from: &str, to: &str, vlan: u8) -> Vec<u8> {
    let mac = |host: &str| {
        let text = platform.on(host, "cat /sys/class/net/eth0/address").stdout;
        let mut bytes = text.trim().split(':');
        let mut byte = || u8::from_str_radix(bytes.next().expect("six bytes"), 16);
        [(); 6].map(|()| byte().expect("hexadecimal"))
    };
    let bytes = frame(
        mac(to),
        mac(from),
        &[0x81, 0, 0, vlan],
        100,
        u32::from(vlan),
    );
    raw(platform, from).send(&bytes);
    bytes
}

// Tagged frames of the rule's VLAN pass its chain in both directions, frames of another VLAN do not.
fn vlans_are_told_apart(platform: &Platform) {
    let mut expected = taken(platform);
    let tagged = expected.get_mut("tagged").expect("the chain is there");
    *tagged = (tagged.0 + 1, tagged.1 + 1);
    for (from, to) in [("client", "server"), ("server", "client")] {
        let receiver = raw(platform, to);
        let sent = send_tagged(platform, from, to, 7);
        let arrived = receiver.receive_wanted(|bytes| bytes[12..] == sent[12..]);
        assert_eq!(arrived, Some(sent), "{from} to {to}");
    }
    eventually("the chain has taken both", || taken(platform) == expected);
    for (from, to, uplink) in [("client", "server", "lan"), ("server", "client", "wan")] {
        let before = not_taken(platform, uplink);
        send_tagged(platform, from, to, 8);
        eventually("it is counted", || {
            not_taken(platform, uplink) == before + 1
        });
    }
    assert_eq!(taken(platform), expected);
}

/// Waits until the deployment carries, and nothing is under way.
fn settle(platform: &Platform) {
    eventually("a datagram is answered", || {
        let patience = Duration::from_millis(500);
        is_answered(platform, ("client", "10.0.0.1", "10.0.0.2:53"), patience)
    });
    let mut before = BTreeMap::new();
    eventually("nothing is under way", || {
        let now = taken(platform);
        let same = now == before;
        before = now;
        thread::sleep(Duration::from_millis(200));
        same
    });
}

// promise: 7.24
#[test]
fn each_datagram_takes_the_first_chain_whose_rules_match() {
    let Some(platform) = three_hosts("each_datagram_takes_the_first_chain_whose_rules_match")
    else {
        return;
    };
    platform.apply(DEPLOYMENT);
    settle(&platform);
    each_takes_its_chain(&platform, |_, chain| chain.to_owned());
    vlans_are_told_apart(&platform);

    // Traffic without a rule is dropped, and counted where it entered.
    for (host, from, to, uplink) in [
        ("client", "10.0.0.1", "10.0.0.2:100", "lan"),
        ("branch", "10.1.0.1", "10.1.0.2:52", "branch"),
    ] {
        let before = (taken(&platform), not_taken(&platform, uplink));
        let server = socket(&platform, "server", to, PATIENCE);
        let client = socket(&platform, host, &format!("{from}:0"), PATIENCE);
        client.send_to(b"question", to).expect("it is sent");
        eventually("it is counted", || {
            not_taken(&platform, uplink) == before.1 + 1
        });
        assert_eq!(taken(&platform), before.0);
        server.set_nonblocking(true).expect("a mode");
        let arrived = server.recv(&mut [0; 16]).expect_err("nothing arrives");
        assert_eq!(arrived.kind(), ErrorKind::WouldBlock);
    }

    // The same chains in another order: the wide range of ports now comes before the one port in it.
    let line = |name: &str| {
        let start = format!("  {name}: {{ from");
        let found = DEPLOYMENT.lines().find(|line| line.starts_with(&start));
        found.expect("the chain is there")
    };
    let (dns, low) = (line("dns"), line("low"));
    let swapped = DEPLOYMENT.replace(&format!("{dns}\n{low}"), &format!("{low}\n{dns}"));
    assert_ne!(swapped, DEPLOYMENT);
    let before = platform.pids();
    let changes = platform.apply(&swapped);
    assert!(!changes.is_empty(), "the order is a part of the deployment");
    assert_eq!(platform.pids(), before);
    assert_eq!(platform.apply(&swapped), [""; 0]);
    settle(&platform);
    each_takes_its_chain(&platform, |to, chain| {
        let wide = to == "10.0.0.2:53";
        (if wide { "low" } else { chain }).to_owned()
    });
}
