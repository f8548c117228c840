//! The path through the kernel: routing, nftables with the rules of the demo's firewall, masquerading.

use super::{Ends, Network, Offloads};
use anyhow::Context;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::namespace::Namespace;

/// The ends' interface.
const END: &str = "eth1";
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

/// The queueing discipline of all interfaces of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    /// The kernel's default for a veth: no queue.
    AsTheyCome,
    /// Flows in queues of their own, which are kept short.
    FqCodel,
}

/// The path.
pub struct KernelPath {
    middle: Namespace,
}

impl KernelPath {
    pub fn new(ends: &Ends) -> anyhow::Result<Self> {
        let middle = Namespace::new()?;
        Namespace::join((&ends.client, END), (&middle, "lan"))?;
        Namespace::join((&ends.server, END), (&middle, "wan"))?;
        let network = Network::KERNEL;
        middle.ip(&format!(
            "address add {}/24 dev lan",
            network.inner_gateway()
        ))?;
        middle.ip(&format!(
            "address add {}/24 dev wan",
            network.outer_gateway()
        ))?;
        ends.enter(network, END)?;
        middle.run("sysctl -qw net.ipv4.ip_forward=1")?;
        let directory = ScratchDirectory::new()?;
        let file = directory.path("rules.nft");
        std::fs::write(&file, RULES).context("writing the rules")?;
        middle.run(&format!("nft -f {}", file.display()))?;
        Ok(KernelPath { middle })
    }

    /// Returns the server's address.
    pub fn server(&self) -> String {
        Network::KERNEL.server()
    }

    pub fn set(&self, ends: &Ends, offloads: Offloads) -> anyhow::Result<()> {
        let words = match offloads {
            Offloads::AsTheyCome => "tso on gso on gro off",
            Offloads::Off => "tso off gso off gro off",
        };
        for (namespace, interface) in self.interfaces(ends) {
            namespace.run(&format!("ethtool -K {interface} {words}"))?;
        }
        Ok(())
    }

    /// Changes the queueing discipline of all interfaces.
    ///
    /// # Errors
    /// When the kernel does not have the discipline.
    pub fn queue(&self, ends: &Ends, queues: Queues) -> anyhow::Result<()> {
        let discipline = match queues {
            Queues::AsTheyCome => "noqueue",
            Queues::FqCodel => "fq_codel",
        };
        for (namespace, interface) in self.interfaces(ends) {
            namespace.run(&format!(
                "tc qdisc replace dev {interface} root {discipline}"
            ))?;
        }
        Ok(())
    }

    fn interfaces<'a>(&'a self, ends: &'a Ends) -> [(&'a Namespace, &'static str); 4] {
        [
            (&ends.client, END),
            (&self.middle, "lan"),
            (&self.middle, "wan"),
            (&ends.server, END),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::RULES;
    use crate::experiments::data_plane::tcp_paths::nfluid::tests::rules;

    // promise: 13.4
    #[test]
    fn the_kernel_gets_as_many_rules_as_the_demos_firewall() {
        let verdicts = [" drop", " accept"];
        let is_rule = |line: &&str| verdicts.iter().any(|verdict| line.ends_with(verdict));
        assert_eq!(RULES.lines().filter(is_rule).count(), rules());
    }
}
