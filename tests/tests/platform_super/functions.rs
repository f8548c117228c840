//! Each network function between two stacks of the kernel, with super-frames and without: every byte arrives the same.

use crate::{came_in, let_in, stream_to};
use nfluid_tests::harness::enable_ipv6;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::segments::datagrams_arrive;
use std::net::{IpAddr, SocketAddr};

/// Bytes of each stream, each way.
const BYTES: usize = 2 << 20;

/// A chain through these instances.
fn chain(via: &[&str], instances: &str, offloads: &str) -> String {
    format!(
        "
version: 1
uplinks:
  lan: {{ interface: client, netns: EDGE, super: {offloads} }}
  wan: {{ interface: server, netns: EDGE, super: {offloads} }}
instances:
{instances}
chains:
  web: {{ from: lan, to: wan, via: [{}] }}
",
        via.join(", ")
    )
}

/// Makes hosts with these addresses of IPv4 and IPv6.
fn hosts(test: &str, client: [&str; 2], server: [&str; 2]) -> Option<Platform> {
    let mut platform = Platform::new(test)?;
    for (host, addresses) in [("client", client), ("server", server)] {
        platform.host(host, addresses[0]);
        enable_ipv6(&platform.host_netns(host));
        let line = format!("ip address add {} dev eth0 nodad", addresses[1]);
        assert!(platform.on(host, &line).succeeded(), "{line}");
    }
    Some(platform)
}

/// Sends UDP datagrams from the client, many by one call. The server must get each of them.
fn datagrams(platform: &Platform, to: IpAddr) {
    let [client, server] = ["client", "server"].map(|host| platform.host_netns(host));
    datagrams_arrive(&client, &server, SocketAddr::new(to, 53));
}

/// Sends all kinds of streams to these addresses of the server.
fn all_pass(platform: &Platform, servers: &[&str]) {
    for server in servers {
        let to: IpAddr = server.parse().expect("an address");
        eventually("a ping crosses", || platform.pings("client", server));
        stream_to(platform, SocketAddr::new(to, 80), BYTES);
        datagrams(platform, to);
    }
}

/// Checks that nothing of what has arrived at the server had a wrong checksum.
fn checksums_were_right(platform: &Platform) {
    let shown = platform.on(
        "server",
        "nstat -az TcpInCsumErrors UdpInCsumErrors Udp6InCsumErrors",
    );
    let mut lines = shown
        .stdout
        .lines()
        .filter(|line| line.contains("CsumErrors"));
    assert!(
        lines.all(|line| line.split_whitespace().nth(1) == Some("0")),
        "{}",
        shown.stdout
    );
}

// promise: 2.41
#[test]
fn each_function_hands_on_the_same_with_super_frames_and_without() {
    let Some(platform) = hosts(
        "each_function_hands_on_the_same",
        ["10.0.0.1/24", "fd00::1/64"],
        ["10.0.0.2/24", "fd00::2/64"],
    ) else {
        return;
    };
    let limits = "{ cir: 500000000000, cbs: 100000000 }";
    let limiter =
        format!("  x: {{ nf: limiter, config: {{ forward: {limits}, reverse: {limits} }} }}");
    let firewall =
        "  x: { nf: firewall, config: { rules: 'allow ip from any to any keep-state' } }";
    let tag = |name: &str, ports: &str| {
        format!("  {name}: {{ nf: vlan, ports: {ports}, config: {{ push: {{ id: 100 }} }} }}")
    };
    let tags = format!("{}\n{}", tag("x", "[in, out]"), tag("y", "[out, in]"));
    let rows: [(&[&str], &str, &str); 7] = [
        (&["x"], "  x: { nf: bridge }", "super"),
        (&["x"], "  x: { nf: counter }", "super"),
        (&["x"], firewall, "super"),
        (&["x"], &limiter, "super"),
        (&["x"], "  x: { nf: mirror }", "super"),
        (&["x", "y"], &tags, "super"),
        (&["x"], "  x: { nf: signature }", "plain"),
    ];
    for (via, instances, level) in rows {
        for (offloads, level) in [("auto", level), ("off", "plain")] {
            println!("{instances}, {offloads}");
            platform.apply(&chain(via, instances, offloads));
            let_in(&platform, level);
            let before = came_in(&platform, "lan");
            all_pass(&platform, &["10.0.0.2", "fd00::2"]);
            let now = came_in(&platform, "lan");
            let (segments, frames) = (now.0 - before.0, now.1 - before.1);
            if level == "super" {
                assert!(segments > 2 * frames, "{segments} in {frames}");
            } else {
                assert_eq!(segments, frames, "each frame is a packet");
            }
        }
    }
    checksums_were_right(&platform);
}

const ROUTER: &str = "
  router:
    nf: router
    flavor: large
    ports: { in: {}, out: { mtu: 1400 } }
    config:
      addresses: { in: [10.0.0.1/24, fd00:1::1/64], out: [198.51.100.1/24, fd00:2::1/64] }
      routes: [{ to: 203.0.113.1/32, port: in }]
";
const NAT: &str = "
  nat: { nf: nat, flavor: large, config: { pool: [203.0.113.1] } }
";

// promise: 2.41, 2.42
#[test]
fn what_is_routed_arrives_the_same_and_senders_learn_of_a_smaller_mtu() {
    let Some(platform) = hosts(
        "what_is_routed_arrives_the_same",
        ["10.0.0.2/24", "fd00:1::2/64"],
        ["198.51.100.2/24", "fd00:2::2/64"],
    ) else {
        return;
    };
    for (host, gateways) in [
        ("client", ["10.0.0.1", "fd00:1::1"]),
        ("server", ["198.51.100.1", "fd00:2::1"]),
    ] {
        for gateway in gateways {
            let line = format!("ip route add default via {gateway}");
            assert!(platform.on(host, &line).succeeded(), "{line}");
        }
    }
    for (offloads, level) in [("auto", "super"), ("off", "plain")] {
        platform.apply(&chain(&["router"], ROUTER, offloads));
        let_in(&platform, level);
        let servers = ["198.51.100.2", "fd00:2::2"];
        for server in servers {
            eventually("a ping crosses", || platform.pings("client", server));
            stream_to(&platform, format_address(server, 80), BYTES);
            let shown = platform
                .on("client", &format!("ip route get {server}"))
                .stdout;
            assert!(shown.contains("mtu 1400"), "{server}, {offloads}: {shown}");
        }
        // Of this length datagrams fit.
        for server in servers {
            datagrams(&platform, server.parse().expect("an address"));
        }
        let both = format!("{NAT}{ROUTER}");
        platform.apply(&chain(&["nat", "router"], &both, offloads));
        let_in(&platform, level);
        all_pass(&platform, &servers[..1]);
        for flush in ["ip route flush cache", "ip -6 route flush cache"] {
            assert!(platform.on("client", flush).succeeded());
        }
    }
    checksums_were_right(&platform);
}

fn format_address(server: &str, port: u16) -> SocketAddr {
    SocketAddr::new(server.parse().expect("an address"), port)
}
