//! A hop of the kernel's set-ups: a forwarder between two interfaces of a namespace.

use super::super::resources::Resources;
use super::super::veth::{self, Ends, SINK};
use crate::peer::Peer;
use anyhow::Context;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::program::need;
use std::fmt::Write as _;
use std::path::Path;

/// The destination address of the traffic; must not be the sink's own address.
const TO: &str = "02:00:00:00:01:02";
const ELSEWHERE: &str = "02:00:00:00:01:09";
/// Rules of a firewall.
pub const RULES: u32 = 10;
/// Rules of a security group.
pub const GROUP_RULES: u32 = 100;

/// The part of the kernel that forwards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Forwarder {
    Bridge,
    /// A bridge whose packets pass rules and connection tracking: security groups without a switch that has them.
    Hybrid,
    Nftables,
    Xdp,
}

impl Forwarder {
    /// Returns the name for readers.
    pub fn name(self) -> String {
        match self {
            Forwarder::Bridge => "bridge".to_owned(),
            Forwarder::Hybrid => format!(
                "bridge, nftables with connection tracking and {GROUP_RULES} rules, the flow established"
            ),
            Forwarder::Nftables => format!("IPv4 routing, nftables with {RULES} rules"),
            Forwarder::Xdp => "XDP redirect by devmap, native".to_owned(),
        }
    }
}

/// A namespace with two interfaces.
pub struct Hop {
    pub namespace: Namespace,
    pub entry: String,
    pub exit: String,
}

impl Hop {
    /// Makes a hop without its interfaces, whose names are unique among processes of this program: the names of the
    /// kernel's threads contain them.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Hop {
            namespace: Namespace::new()?,
            entry: veth::name(),
            exit: veth::name(),
        })
    }

    /// Starts forwarding; returns the guards of the forwarder. The first hop accepts XDP frames.
    pub fn forward(
        &self,
        forwarder: Forwarder,
        directory: &ScratchDirectory,
        object: &Path,
        position: Position,
    ) -> anyhow::Result<Vec<Peer>> {
        let (namespace, entry) = (&self.namespace, self.entry.as_str());
        match forwarder {
            Forwarder::Bridge => self.bridge()?,
            Forwarder::Hybrid => {
                self.bridge()?;
                self.filter_bridged(directory)?;
            }
            Forwarder::Nftables => self.route(directory, position)?,
            Forwarder::Xdp => {
                let to = Some(self.exit.as_str());
                let program = veth::attach(namespace, object, "redirect", entry, to)?;
                namespace.run(&format!("ethtool -K {entry} gro off"))?;
                return Ok(vec![program]);
            }
        }
        Ok(match position.is_first {
            true => vec![veth::take_xdp_frames(namespace, object, entry)?],
            false => Vec::new(),
        })
    }

    fn bridge(&self) -> anyhow::Result<()> {
        let (namespace, exit) = (&self.namespace, &self.exit);
        namespace.ip("link add name bridge0 type bridge")?;
        for port in [&self.entry, exit] {
            namespace.ip(&format!("link set {port} master bridge0"))?;
        }
        namespace.ip("link set bridge0 up")?;
        // A static entry for the frames' destination, so that the bridge does not flood.
        namespace.run(&format!("bridge fdb replace {TO} dev {exit} master static"))?;
        Ok(())
    }

    fn filter_bridged(&self, directory: &ScratchDirectory) -> anyhow::Result<()> {
        need(&[("conntrack", "conntrack")])?;
        let namespace = &self.namespace;
        namespace.run("sysctl -qw net.bridge.bridge-nf-call-iptables=1")?;
        let file = directory.path("groups.nft");
        std::fs::write(&file, group_rules()).context("writing the rules")?;
        namespace.run(&format!("nft -f {}", file.display()))?;
        // The traffic has one direction, and connections are established by an answer.
        let (from, to) = crate::traffic::numbered(crate::roles::work::FLOW);
        namespace.run(&format!(
            "conntrack -I -p udp -s {} -d {} --sport {} --dport {} --timeout 86400 --status SEEN_REPLY,ASSURED",
            from.ip(),
            to.ip(),
            from.port(),
            to.port()
        ))?;
        Ok(())
    }

    fn route(&self, directory: &ScratchDirectory, position: Position) -> anyhow::Result<()> {
        let (namespace, entry, exit) = (&self.namespace, &self.entry, &self.exit);
        namespace.run("sysctl -qw net.ipv4.ip_forward=1")?;
        namespace.ip(&format!("link set {entry} address {TO}"))?;
        namespace.ip(&format!("address add 10.0.255.1/16 dev {entry}"))?;
        namespace.ip(&format!("address add 10.1.255.1/16 dev {exit}"))?;
        let to = crate::traffic::numbered(crate::roles::work::FLOW).1;
        let next = if position.is_last { ELSEWHERE } else { TO };
        namespace.ip(&format!(
            "neighbour replace {} lladdr {next} dev {exit}",
            to.ip()
        ))?;
        let file = directory.path("rules.nft");
        std::fs::write(&file, rules()).context("writing the rules")?;
        namespace.run(&format!("nft -f {}", file.display()))?;
        Ok(())
    }
}

/// Position of a hop in its chain.
#[derive(Clone, Copy)]
pub struct Position {
    pub is_first: bool,
    pub is_last: bool,
}

/// Joins hops to each other, and the first and the last hop to the ends.
pub fn join(resources: &Resources, hops: &[Hop]) -> anyhow::Result<Ends> {
    for pair in hops.windows(2) {
        let [before, after] = pair else { continue };
        let from = (&before.namespace, before.exit.as_str());
        Namespace::join(from, (&after.namespace, after.entry.as_str()))?;
    }
    let (Some(first), Some(last)) = (hops.first(), hops.last()) else {
        anyhow::bail!("a chain without a hop");
    };
    let entry = (&first.namespace, first.entry.as_str());
    Ends::join(resources, entry, (&last.namespace, last.exit.as_str()))
}

/// Makes the sink's end accept and drop XDP frames.
pub fn drop_at(ends: &Ends, object: &Path) -> anyhow::Result<Peer> {
    veth::attach(ends.sink(), object, "drop", SINK, None)
}

/// Returns rules like those of the firewall in `nf`: the source always matches; only the last rule matches completely.
fn rules() -> String {
    let mut text = String::from(
        "table ip bench {\nchain forward {\ntype filter hook forward priority 0; policy drop;\n",
    );
    for (from, to, port) in crate::workload::near_misses(RULES) {
        let _infallible = writeln!(text, "ip saddr {from} ip daddr {to} udp dport {port} drop");
    }
    text.push_str("ip saddr 10.0.0.0/16 ip daddr 10.1.0.0/16 udp dport 53 accept\n}\n}\n");
    text
}

/// Returns the rules of a port with a security group: its own addresses, then connections that are permitted, then the group's rules.
fn group_rules() -> String {
    let mut text = String::from(
        "table inet bench {\nchain forward {\ntype filter hook forward priority 0; policy drop;\n\
         ip saddr != 10.0.0.0/16 drop\nct state established,related accept\n",
    );
    for (to, port) in crate::workload::group_rules(GROUP_RULES) {
        let _infallible = writeln!(text, "ct state new ip daddr {to} udp dport {port} accept");
    }
    text + "}\n}\n"
}

#[cfg(test)]
mod tests {
    #[test]
    fn as_many_rules_as_it_says() {
        let rules = super::rules();
        let verdicts = rules.lines().filter(|line| line.contains("dport"));
        assert_eq!(verdicts.count() as u32, super::RULES);
    }
}
