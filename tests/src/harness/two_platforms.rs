//! Two platforms on the same two segments, and hosts on these.

use super::command::must;
use super::platform::Platform;
use super::two_hosts::{CLIENT, SERVER, UPLINKS};
use nfluid_tls::testing::Authority;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};

/// Port on which the daemons listen for each other.
const PORT: u16 = 7443;

/// A chain of a firewall that keeps a state for each ping and each conversation.
pub const FIREWALL: &str = "
version: 1
uplinks:
  lan: { interface: client, netns: EDGE }
  wan: { interface: server, netns: EDGE }
instances:
  fw:
    nf: firewall
    cpus: [0]
    share: 50%
    config:
      rules: ['allow icmp from any to any keep-state', 'allow udp from any to any keep-state']
      states: { timeouts: { icmp: 3600 } }
chains:
  web: { from: lan, to: wan, via: [fw] }
";

/// Deployment of both hosts, with a switch that leads to the instance.
pub const SWITCH: &str = "
version: 1
switches: { front: {} }
uplinks:
  lan: { interface: client, netns: EDGE, switch: front }
  wan: { interface: server, netns: EDGE }
";

/// The firewall with one port on the switch and the other one linked.
pub const FIREWALL_ON_SWITCH: &str = "
version: 1
switches: { front: {} }
uplinks:
  lan: { interface: client, netns: EDGE, switch: front }
  wan: { interface: server, netns: EDGE }
instances:
  fw:
    nf: firewall
    ports: { in: { switch: front, learn: true }, out: {} }
    config: { rules: ['allow icmp from any to any keep-state', 'allow udp from any to any keep-state'], states: { timeouts: { icmp: 3600 } } }
links:
  - [fw.out, wan]
";

/// A bridge in its place, with a guard that lets questions in, and only answers out.
pub const GUARDED_ON_SWITCH: &str = "
version: 1
switches: { front: {} }
uplinks:
  lan: { interface: client, netns: EDGE, switch: front }
  wan: { interface: server, netns: EDGE }
security_groups:
  web: { rules: [{ direction: in, protocol: icmp }, { direction: in, protocol: udp }] }
instances:
  fw:
    nf: bridge
    ports: { in: { switch: front, learn: true, security_groups: [web], allowed_addresses: [10.0.0.2] }, out: {} }
links:
  - [fw.out, wan]
";

/// An instance that leaves less than half of a core for others.
pub fn full() -> String {
    format!("{UPLINKS}instances: {{ big: {{ nf: bridge, cpus: [0], share: 60% }} }}\n")
}

/// Returns the arguments of a daemon of `platform` that listens at `address`; `authority` signs its certificate.
pub fn arguments(authority: &Authority, platform: &Platform, address: &str) -> Vec<String> {
    let at: SocketAddr = address.parse().expect("an address");
    let names = ("migrate", at.ip().to_string());
    let written = authority.write(authority, platform.directory(), (names.0, &names.1));
    let files = written.expect("the directory is ours");
    files.arguments("migrate", address)
}

/// The platforms. The hosts `client` and `server` are the first one's.
#[derive(Debug)]
pub struct TwoPlatforms {
    /// The first one.
    pub a: Platform,
    /// The second one.
    pub b: Platform,
    /// Where the first one's daemon listens for the other.
    pub a_address: String,
    /// Where the second one's daemon listens for the other.
    pub b_address: String,
    /// Where the bridges are.
    segments: String,
}

impl TwoPlatforms {
    /// Platforms whose daemons are up, each in the namespace of its uplinks, joined by a veth pair.
    pub fn joined(test: &str) -> Option<Self> {
        let (a_address, b_address) = ("192.0.2.1", "192.0.2.2");
        let at = |address: &str| format!("{address}:{PORT}");
        let mut two = Self::between(test, at(a_address), at(b_address))?;
        let (a, b) = (two.a.edge(), two.b.edge());
        must(&format!(
            "ip -n {a} link add hosts type veth peer name hosts netns {b}"
        ));
        for (edge, address) in [(&a, a_address), (&b, b_address)] {
            must(&format!("ip -n {edge} address add {address}/24 dev hosts"));
            must(&format!("ip -n {edge} link set hosts up"));
        }
        two.a.run_at_edge();
        two.b.run_at_edge();
        two.start();
        Some(two)
    }

    /// Platforms whose daemons are not started, and will reach each other from here.
    pub fn at_rest(test: &str) -> Option<Self> {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        // No other process has these addresses of the loopback interface.
        let at = || {
            format!(
                "127.{}.{low}.{}:{PORT}",
                high | 64,
                COUNT.fetch_add(1, Ordering::Relaxed)
            )
        };
        let (a, b) = (at(), at());
        Self::between(test, a, b)
    }

    fn between(test: &str, a_address: String, b_address: String) -> Option<Self> {
        let mut a = Platform::at_rest(test)?;
        let b = a.beside(test)?;
        let segments = a.add_namespace("s").expect("a namespace");
        for (host, address) in [("client", CLIENT), ("server", SERVER)] {
            let place = a.add_namespace(host).expect("a namespace");
            must(&format!("ip -n {segments} link add {host} type bridge"));
            must(&format!("ip -n {segments} link set {host} up"));
            for (end, netns, interface) in [
                ("h", &place, "eth0"),
                ("a", &a.edge(), host),
                ("b", &b.edge(), host),
            ] {
                let port = format!("{host}-{end}");
                must(&format!(
                    "ip -n {segments} link add {port} type veth peer name {interface} netns {netns}"
                ));
                must(&format!(
                    "ip -n {segments} link set {port} master {host} up"
                ));
                must(&format!("ip -n {netns} link set {interface} up"));
            }
            must(&format!("ip -n {place} address add {address}/24 dev eth0"));
        }
        let mut two = Self {
            a,
            b,
            a_address,
            b_address,
            segments,
        };
        let authority = Authority::new().expect("a key");
        two.a
            .set_arguments(arguments(&authority, &two.a, &two.a_address));
        two.b
            .set_arguments(arguments(&authority, &two.b, &two.b_address));
        Some(two)
    }

    /// The bridges forget where the hosts are.
    pub fn forget_places(&self) {
        for host in ["client", "server"] {
            must(&format!(
                "ip -n {} link set {host} type bridge fdb_flush",
                self.segments
            ));
        }
    }

    /// Starts both.
    pub fn start(&mut self) {
        self.a.start();
        self.b.start();
    }
}
