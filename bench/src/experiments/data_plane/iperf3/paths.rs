//! The two ends, and the two paths between them.

use super::Offloads;
use crate::host::platform;
use anyhow::Context;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;

/// The deployment of `make demo`.
const DEPLOYMENT: &str = include_str!("../../../../../examples/demo/deployment.yaml");
/// The ends' interfaces.
const ETH_NFLUID: &str = "eth0";
const ETH_KERNEL: &str = "eth1";
/// The demo's rules for nftables.
const RULES: &str = "\
table ip bench {
chain forward {
type filter hook forward priority 0; policy drop;
meta l4proto { tcp, udp } th dport 135-139 drop
tcp dport 445 drop
udp dport 1900 drop
tcp dport 23 drop
ip saddr 10.0.1.0/24 tcp dport { 80, 443 } accept
ip saddr 10.0.1.0/24 tcp dport 5201 accept
ip saddr 10.0.1.0/24 udp dport 53 accept
ip protocol icmp accept
tcp sport { 80, 443, 5201 } accept
udp sport 53 accept
}
chain postrouting {
type nat hook postrouting priority 100;
oifname \"wan\" masquerade
}
}
";

/// The namespaces of client and server.
pub struct Ends {
    pub client: Namespace,
    pub server: Namespace,
}

impl Ends {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Ends {
            client: Namespace::new()?,
            server: Namespace::new()?,
        })
    }

    fn both(&self) -> [&Namespace; 2] {
        [&self.client, &self.server]
    }
}

/// The path through nfluid; the daemon ends before its interfaces do.
pub struct NfluidPath {
    _platform: Platform,
    _outside: Namespace,
}

impl NfluidPath {
    pub fn new(ends: &Ends) -> anyhow::Result<Self> {
        let outside = Namespace::new()?;
        Namespace::join((&ends.client, ETH_NFLUID), (&outside, "lan"))?;
        Namespace::join((&ends.server, ETH_NFLUID), (&outside, "wan"))?;
        ends.client.ip("address add 10.0.0.2/24 dev eth0")?;
        ends.client.ip("route add 198.51.100.0/24 via 10.0.0.1")?;
        ends.server.ip("address add 198.51.100.2/24 dev eth0")?;
        ends.server.ip("route add default via 198.51.100.1")?;
        let platform = platform::start()?;
        platform.apply(&deployment(outside.name()))?;
        Ok(NfluidPath {
            _platform: platform,
            _outside: outside,
        })
    }

    /// Changes the offloads. Segmentation by the NIC stays off: the platform has disabled it.
    pub fn set(&self, ends: &Ends, offloads: Offloads) -> anyhow::Result<()> {
        let words = match offloads {
            Offloads::AsTheyCome => "gso on gro off",
            Offloads::Off => "gso off gro off",
        };
        for end in ends.both() {
            end.run(&format!("ethtool -K {ETH_NFLUID} {words}"))?;
        }
        Ok(())
    }
}

/// Returns the demo's deployment with interfaces in another namespace.
fn deployment(namespace: &str) -> String {
    ["lan", "wan"]
        .iter()
        .fold(DEPLOYMENT.to_owned(), |text, name| {
            let there = format!("interface: {name}, netns: {namespace}");
            text.replace(&format!("interface: nfl-{name}"), &there)
        })
}

/// The path through the kernel.
pub struct KernelPath {
    middle: Namespace,
}

impl KernelPath {
    pub fn new(ends: &Ends) -> anyhow::Result<Self> {
        let middle = Namespace::new()?;
        Namespace::join((&ends.client, ETH_KERNEL), (&middle, "lan"))?;
        Namespace::join((&ends.server, ETH_KERNEL), (&middle, "wan"))?;
        ends.client.ip("address add 10.0.1.2/24 dev eth1")?;
        ends.client.ip("route add 198.51.101.0/24 via 10.0.1.1")?;
        ends.server.ip("address add 198.51.101.2/24 dev eth1")?;
        middle.ip("address add 10.0.1.1/24 dev lan")?;
        middle.ip("address add 198.51.101.1/24 dev wan")?;
        middle.run("sysctl -qw net.ipv4.ip_forward=1")?;
        let directory = ScratchDirectory::new()?;
        let file = directory.path("rules.nft");
        std::fs::write(&file, RULES).context("writing the rules")?;
        middle.run(&format!("nft -f {}", file.display()))?;
        Ok(KernelPath { middle })
    }

    pub fn set(&self, ends: &Ends, offloads: Offloads) -> anyhow::Result<()> {
        let words = match offloads {
            Offloads::AsTheyCome => "tso on gso on gro off",
            Offloads::Off => "tso off gso off gro off",
        };
        let [client, server] = ends.both();
        for (namespace, interface) in [
            (client, ETH_KERNEL),
            (&self.middle, "lan"),
            (&self.middle, "wan"),
            (server, ETH_KERNEL),
        ] {
            namespace.run(&format!("ethtool -K {interface} {words}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{DEPLOYMENT, RULES, deployment};

    #[test]
    fn the_demos_interfaces_are_replaced() {
        let text = deployment("nfl-1-bench-0");
        assert!(DEPLOYMENT.contains("interface: nfl-lan"));
        assert!(!text.contains("nfl-lan") && !text.contains("nfl-wan"));
        assert_eq!(text.matches("netns: nfl-1-bench-0").count(), 2);
    }

    // promise: 13.4
    #[test]
    fn the_kernel_gets_as_many_rules_as_the_demos_firewall() {
        let own = |line: &&str| line.contains(" from any") || line.contains(" from 10.");
        let demo = DEPLOYMENT.lines().filter(own).count();
        let verdicts = [" drop", " accept"];
        let is_rule = |line: &&str| verdicts.iter().any(|verdict| line.ends_with(verdict));
        assert_eq!(RULES.lines().filter(is_rule).count(), demo);
    }
}
