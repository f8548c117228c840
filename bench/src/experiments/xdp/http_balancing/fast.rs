//! eFW and eLB on the interfaces of hosts.

use super::topology::{SERVERS, SERVICE};
use anyhow::Context;
use nfluid_evnf::balancer::{Balancer, Exit, Mode, Server, Service, State, Transport};
use nfluid_evnf::chain::Chain;
use nfluid_evnf::firewall::Firewall;
use nfluid_evnf::hook::Hook;
use nfluid_evnf::nft::{Ruleset, split};
use nfluid_testbed::namespace::Namespace;
use serde_json::Value;

const CONNECTIONS: u32 = 1 << 16;

/// An interface of a host, and its programs.
pub struct AttachPoint<'a> {
    pub host: &'a Namespace,
    pub interface: &'a str,
    pub firewall: bool,
    pub balancer: bool,
}

/// The attached programs.
pub struct FastPaths {
    chains: Vec<Chain>,
    firewalls: Vec<Firewall>,
    balancer: Balancer,
}

impl FastPaths {
    /// Attaches the members of each point at a hook: the rules in force of its host, and one balancer for all points.
    pub fn attach(points: &[AttachPoint<'_>], hook: Hook) -> anyhow::Result<Self> {
        let mut fast = FastPaths {
            chains: Vec::new(),
            firewalls: Vec::new(),
            balancer: balancer()?,
        };
        for point in points {
            let mut members = Vec::new();
            if point.firewall {
                let firewall = point.host.within(|| firewall(point.interface))?;
                members.push(firewall.member_at(hook)?);
                fast.firewalls.push(firewall);
            }
            if point.balancer {
                members.push(fast.balancer.member_at(hook)?);
            }
            let mut chain = Chain::new(members)?;
            point.host.within(|| Ok(chain.attach(point.interface)?))?;
            match hook {
                Hook::Tc | Hook::Egress => chain.set_peers(&peers(point.host)?)?,
                Hook::Xdp | Hook::Component => {
                    // Without GRO, packets for the kernel do not wait for further packets.
                    let line = format!("ethtool -K {} gro off", point.interface);
                    point.host.run(&line)?;
                }
            }
            fast.chains.push(chain);
        }
        Ok(fast)
    }

    /// Returns the number of packets that the balancer has sent, to servers and clients.
    pub fn sent(&self) -> anyhow::Result<u64> {
        let exits = self.balancer.exits()?.into_iter();
        let sent = exits.filter(|(exit, _)| matches!(exit, Exit::Sent | Exit::Returned));
        Ok(sent.map(|(_, counts)| counts.packets).sum())
    }

    /// Returns the packet counts per exit.
    pub fn exits(&self) -> anyhow::Result<String> {
        let mut text = format!("{:?}", self.balancer.exits()?);
        for firewall in &self.firewalls {
            text += &format!("; {:?}", firewall.exits()?);
        }
        Ok(text)
    }
}

/// Returns the numbers of a host's interfaces whose other end is in another namespace.
fn peers(host: &Namespace) -> anyhow::Result<Vec<u32>> {
    let links: Value = serde_json::from_str(&host.ip("-j link show type veth")?)?;
    let links = links.as_array().context("a list was asked for")?;
    let crossing = links.iter().filter(|link| !link["link_netnsid"].is_null());
    let numbers = crossing.map(|link| {
        Ok(u32::try_from(
            link["ifindex"].as_u64().context("a number")?,
        )?)
    });
    numbers.collect()
}

/// Returns a firewall of the rules in force for packets from an interface.
fn firewall(interface: &str) -> anyhow::Result<Firewall> {
    let split = split(&Ruleset::in_force()?, interface).before_senders();
    Ok(Firewall::load(&split.stages, &[])?)
}

fn balancer() -> anyhow::Result<Balancer> {
    let mut balancer = Balancer::load(CONNECTIONS)?;
    let at = |address: &str| format!("{address}:80").parse().context("an address");
    for (number, address) in (0..).zip(SERVERS) {
        let server = Server {
            at: at(address)?,
            state: State::Up,
        };
        balancer.set_server(number, server)?;
    }
    let service = Service {
        at: at(SERVICE)?,
        transport: Transport::Tcp,
        mode: Mode::Translate,
        servers: vec![(0, 1), (1, 1)],
    };
    balancer.set_service(0, &service)?;
    Ok(balancer)
}
