//! The sides of the comparison: the programs between the client and the servers.

use super::fast::{AttachPoint, FastPaths};
use super::topology::{BACK, BETWEEN, END, LAN, SERVERS, SERVICE, Topology};
use super::wrk::{self, Run};
use anyhow::Context;
use nfluid_evnf::hook::Hook;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::process::Service;
use std::fmt::Write as _;
use std::time::Duration;

/// Rules of each firewall, of which none matches.
pub const RULES: u32 = 50;

/// The programs between client and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's routing, on a host: two routes to the service, chosen by a connection's hash.
    Direct,
    /// iptables and HAProxy, on a host.
    Haproxy,
    /// nftables: its rules, and translation to one of the servers, on a host.
    Nftables,
    /// eFW and eLB, one after the other on a host's interfaces, at XDP.
    Chain,
    /// The same at tc.
    TcChain,
    /// eFW on a host, eLB on the next one, at XDP.
    TwoHosts,
}

impl Kind {
    /// Returns the name in figure ids.
    pub fn id(self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::Haproxy => "haproxy",
            Kind::Nftables => "nft",
            Kind::Chain => "xdp",
            Kind::TcChain => "tc",
            Kind::TwoHosts => "two",
        }
    }

    /// Returns the name for readers.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Direct => "routing, nothing else",
            Kind::Haproxy => "iptables, HAProxy (TCP)",
            Kind::Nftables => "nftables, DNAT by it",
            Kind::Chain => "eFW + eLB, a chain at XDP",
            Kind::TcChain => "eFW + eLB, a chain at tc",
            Kind::TwoHosts => "eFW, next host: eLB (XDP)",
        }
    }
}

/// A side that is ready for use; it uses no CPU time while it is not measured.
pub struct Side {
    pub kind: Kind,
    /// Declared before the topology, so that it ends first.
    fast: Option<FastPaths>,
    proxy: Option<Service>,
    topology: Topology,
}

impl Side {
    /// Makes a side.
    ///
    /// # Errors
    /// When a program cannot be started, or does not serve.
    pub fn new(kind: Kind) -> anyhow::Result<Self> {
        let topology = Topology::new(if kind == Kind::TwoHosts { 2 } else { 1 })?;
        let mut side = Side {
            kind,
            fast: None,
            proxy: None,
            topology,
        };
        let topology = &side.topology;
        match kind {
            Kind::Direct => topology.share_by_routing()?,
            Kind::Haproxy => {
                topology
                    .last()
                    .ip(&format!("address add {SERVICE}/32 dev lo"))?;
                load(
                    topology,
                    topology.last(),
                    "iptables-restore",
                    "",
                    &iptables(),
                )?;
                let file = topology.directory.path("haproxy.cfg");
                std::fs::write(&file, haproxy()).context("the configuration of HAProxy")?;
                let file = file.to_string_lossy();
                side.proxy = Some(topology.between("haproxy", &["-db", "-f", &file])?);
            }
            Kind::Nftables => {
                load(
                    topology,
                    topology.last(),
                    "nft",
                    "-f",
                    &(nftables() + &translation()),
                )?;
            }
            Kind::Chain | Kind::TwoHosts => {
                load(topology, topology.first(), "nft", "-f", &nftables())?;
                side.fast = Some(FastPaths::attach(&points(topology), Hook::Xdp)?);
                ends_for_xdp(topology)?;
            }
            Kind::TcChain => {
                load(topology, topology.first(), "nft", "-f", &nftables())?;
                side.fast = Some(FastPaths::attach(&points(topology), Hook::Tc)?);
            }
        }
        Ok(side)
    }

    /// Measures a run with this many connections.
    ///
    /// # Errors
    /// As [`wrk::run`]; also when packets miss the fast path.
    pub fn run(&self, connections: u32, time: Duration) -> anyhow::Result<Run> {
        let before = self.fast.as_ref().map(FastPaths::sent).transpose()?;
        let run = wrk::run(&self.topology, self.proxy.as_ref(), connections, time)?;
        if let (Some(fast), Some(before)) = (&self.fast, before) {
            let sent = (fast.sent()? - before) as f64;
            // A request and an answer per exchange.
            let expected = 1.9 * run.rate * time.as_secs_f64();
            anyhow::ensure!(
                sent > 0.9 * expected,
                "the fast path has sent {sent} packets, not {expected}: {}",
                fast.exits()?
            );
        }
        Ok(run)
    }
}

/// Returns the programs of each interface of the XDP sides.
fn points(topology: &Topology) -> Vec<AttachPoint<'_>> {
    let back = BACK.map(|interface| (topology.last(), interface));
    let point = |(host, interface), firewall, balancer| AttachPoint {
        host,
        interface,
        firewall,
        balancer,
    };
    let two = topology.hosts.len() == 2;
    let mut points = vec![point((topology.first(), LAN), true, !two)];
    points.extend(back.map(|at| point(at, !two, true)));
    if two {
        let [next, before] = BETWEEN;
        points.push(point((topology.first(), next), true, false));
        points.push(point((topology.last(), before), false, true));
    }
    points
}

/// Prepares the ends for XDP, which sees only the bytes of a packet: the sender must compute checksums and segment
/// packets itself. And a veth accepts redirected packets if its other end polls, which GRO enables; the ends of the
/// other sides do not poll, which is the kernel's default.
fn ends_for_xdp(topology: &Topology) -> anyhow::Result<()> {
    for end in [&topology.client, &topology.servers[0], &topology.servers[1]] {
        end.run(&format!("ethtool -K {END} tx off gro on"))?;
    }
    Ok(())
}

/// Passes rules to a program that reads a file.
fn load(
    topology: &Topology,
    host: &Namespace,
    program: &str,
    option: &str,
    rules: &str,
) -> anyhow::Result<()> {
    let file = topology.directory.path("rules");
    std::fs::write(&file, rules).context("writing the rules")?;
    let line = format!("{program} {option} {}", file.display());
    host.run(&line.replace("  ", " "))?;
    Ok(())
}

/// Returns the source and the number of a rule; its destination or port matches no packet.
fn rule(number: u32) -> (Option<String>, u32) {
    match number % 2 {
        0 => (Some(format!("10.99.{number}.0/24")), 53),
        _ => (None, 1000 + number),
    }
}

/// Returns the rules for forwarded packets and for packets to the host itself.
fn nftables() -> String {
    let mut text = String::from("table inet bench {\n");
    for hook in ["forward", "input"] {
        let _infallible = writeln!(
            text,
            "chain {hook} {{ type filter hook {hook} priority 0; policy accept;"
        );
        for number in 0..RULES {
            let (to, port) = rule(number);
            let to = to.map(|to| format!("ip daddr {to} ")).unwrap_or_default();
            let _infallible = writeln!(text, "ip saddr 10.70.0.0/16 {to}tcp dport {port} drop");
        }
        text.push_str("}\n");
    }
    text + "}\n"
}

/// Returns the same rules for iptables.
fn iptables() -> String {
    let mut text = String::from("*filter\n");
    for hook in ["FORWARD", "INPUT"] {
        for number in 0..RULES {
            let (to, port) = rule(number);
            let to = to.map(|to| format!("-d {to} ")).unwrap_or_default();
            let _infallible = writeln!(
                text,
                "-A {hook} -s 10.70.0.0/16 {to}-p tcp --dport {port} -j DROP"
            );
        }
    }
    text + "COMMIT\n"
}

/// Returns the nftables rules that distribute connections.
fn translation() -> String {
    let [a, b] = SERVERS;
    format!(
        "table ip balance {{\nchain prerouting {{ type nat hook prerouting priority -100;\n\
         ip daddr {SERVICE} tcp dport 80 dnat to numgen inc mod 2 map {{ 0 : {a}, 1 : {b} }}\n}}\n}}\n"
    )
}

fn haproxy() -> String {
    let [a, b] = SERVERS;
    format!(
        "defaults\n mode tcp\n timeout connect 10s\n timeout client 1h\n timeout server 1h\n\
         listen service\n bind {SERVICE}:80\n balance roundrobin\n server a {a}:80\n server b {b}:80\n"
    )
}

#[cfg(test)]
mod tests {
    use super::{RULES, iptables, nftables};

    // promise: 13.17
    #[test]
    fn both_firewalls_have_as_many_rules() {
        let count = |text: String, verdict: &str| {
            text.lines().filter(|line| line.ends_with(verdict)).count() as u32
        };
        assert_eq!(count(nftables(), " drop"), 2 * RULES);
        assert_eq!(count(iptables(), " DROP"), 2 * RULES);
    }
}
