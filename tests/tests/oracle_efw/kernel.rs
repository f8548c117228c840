//! A Linux kernel that forwards between two networks by a rule set, with or without the fast path before it.

use libbpf_rs::Link;
use nfluid_evnf::firewall::Firewall;
use nfluid_evnf::nft::{Ruleset, Split, split};
use nfluid_testbed::namespace::path_of;
use nfluid_tests::harness::command::must_with_input;
use nfluid_tests::harness::oracle::{Namespaces, OnPort, Oracle, marker};
use nfluid_tests::harness::within;
use nfluid_wire::MacAddr;
use std::net::IpAddr;
use std::process::Command;

/// MAC addresses of the kernel's port and of everybody beyond it, for each side.
pub const MACS: [(MacAddr, MacAddr); 2] = [
    (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 1, 1])),
    (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 1, 2])),
];

/// Where the fast path runs.
const FAST_PORT: &str = "n0";

pub struct Kernel {
    namespace: String,
    oracle: Oracle,
    link: Option<Link>,
}

impl Kernel {
    /// Makes a kernel; `name` distinguishes it from the other.
    pub fn new(name: &str) -> Self {
        let namespaces = Namespaces::new(name);
        let kernel = &namespaces.kernel;
        namespaces.set(
            "net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
             net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.forwarding=1 \
             net.ipv4.ip_forward=1 net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_ratemask=0 \
             net.ipv4.icmp_msgs_per_sec=1000000 net.ipv4.icmp_msgs_burst=1000000 net.ipv6.icmp.ratelimit=0 \
             net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
             net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0",
        );
        for (port, (own, _)) in MACS.into_iter().enumerate() {
            namespaces.join(port, own);
        }
        kernel.ip_batch(&addresses()).expect("addresses");
        let namespace = kernel.name().to_owned();
        Kernel {
            namespace,
            oracle: Oracle::new(namespaces, 2, marker(MACS[0].0, MACS[0].1), is_background),
            link: None,
        }
    }

    /// Puts a rule set in force.
    pub fn install(&mut self, text: &str) {
        must_with_input(&format!("ip netns exec {} nft -f -", self.namespace), text);
    }

    /// Puts the fast path before the rule set in force.
    pub fn offload(&mut self) -> (Firewall, Split) {
        let output = Command::new("ip")
            .args([
                "netns",
                "exec",
                &self.namespace,
                "nft",
                "-j",
                "-n",
                "list",
                "ruleset",
            ])
            .output()
            .expect("nft is there");
        let ruleset = Ruleset::read(&output.stdout).expect("nft's own output");
        let split = split(&ruleset, FAST_PORT);
        let mut firewall =
            Firewall::load(&split.stages, &own_addresses()).expect("the kernel takes it");
        // Interfaces are found in the thread's namespace, and this one's is that of the hosts.
        let link = within(&path_of(&self.namespace), || {
            let attached = firewall.fast().attach(FAST_PORT);
            attached.expect("a veth takes XDP programs")
        });
        self.link = Some(link);
        (firewall, split)
    }

    /// Takes the fast path away.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// Returns the packets that leave after this packet, without fields that the kernel numbers freely.
    pub fn pass(&mut self, packet: &OnPort) -> Vec<OnPort> {
        let mut frames = self.oracle.pass(packet);
        for (_, frame) in &mut frames {
            if frame.get(12..14) == Some(&[8, 0]) && frame.len() >= 34 {
                frame[18..20].fill(0);
                frame[24..26].fill(0);
            }
        }
        frames.sort();
        frames
    }
}

fn addresses() -> String {
    let mut batch = String::new();
    for (port, net) in ["10.0.0.", "192.0.2."].into_iter().enumerate() {
        let hosts = MACS[port].1;
        batch += &format!(
            "addr add {net}1/24 dev n{port}\naddr add 2001:db8:{port}::1/64 dev n{port} nodad\n"
        );
        for host in [2, 3, 4, 5, 250] {
            batch += &format!(
                "neigh add {net}{host} lladdr {hosts} dev n{port} nud permanent\n\
                 neigh add 2001:db8:{port}::{host} lladdr {hosts} dev n{port} nud permanent\n"
            );
        }
    }
    batch + "route add 10.9.0.0/16 via 10.0.0.2\n"
}

fn own_addresses() -> Vec<IpAddr> {
    let own = ["10.0.0.1", "192.0.2.1", "2001:db8:0::1", "2001:db8:1::1"];
    own.map(|address| address.parse().expect("valid")).to_vec()
}

/// Neighbour and router discovery, listener reports: a kernel sends them when it likes.
fn is_background(frame: &[u8]) -> bool {
    let is_ipv6 = frame.get(12..14) == Some(&[0x86, 0xdd]);
    // Behind the hop-by-hop header of listener reports, or at once.
    let kind = match frame.get(20) {
        Some(0) => frame.get(62),
        Some(58) => frame.get(54),
        _ => None,
    };
    is_ipv6 && kind.is_some_and(|kind| (130..=143).contains(kind))
}
