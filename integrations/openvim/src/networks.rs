//! Networks on hosts: a switch on each host that has a port on the network. Where no interface of the hosts joins these switches, tunnels do: from the network's
//! first host, the hub, to each other one. So there is one way between any two hosts, and no frame comes twice.

use crate::fault::Fault;
use crate::hosts::refused;
use crate::objects::{Host, Leg, Network, Physical, Port, Server};
use crate::render;
use crate::store::{View, Writing};
use crate::vim::Vim;
use nfluid_api::types::Kind;
use nfluid_control::quantity::Mac;
use nfluid_engine::requests::{merge, remove_owned};
use serde_json::Value;
use std::collections::HashSet;
use uuid::Uuid;

/// The first number of tunnels; there are as many as a `u16` has values.
const VNI_MIN: u32 = 0x4f_0000;

/// Returns true if a network can have a port on a host.
///
/// # Errors
/// The database fails.
pub fn reaches(view: &impl View, network: &Network, host: &Host) -> Result<bool, Fault> {
    let Some(hub) = network.hub() else {
        return Ok(true);
    };
    if network.hosts.contains_key(&host.id) {
        return Ok(true);
    }
    let hub = view.find::<Host>(hub)?;
    let has_way = |host: &Host| host.tunnel_address().is_some();
    Ok(has_way(host) && hub.as_ref().is_some_and(has_way))
}

/// The fault of a network that cannot have a port on a host.
pub fn out_of_reach(network: &Network, host: &Host) -> Fault {
    Fault::conflict(format!(
        "network {} lies on another host than {}, and no tunnel leads there: give both hosts a tunnel_address, or the network a provider:physical",
        network.name, host.name
    ))
}

/// Returns the ports on a network.
///
/// # Errors
/// The database fails.
pub fn ports_on(view: &impl View, network: Uuid) -> Result<Vec<Port>, Fault> {
    let mut ports = view.all::<Port>()?;
    ports.retain(|port| port.network_id == Some(network));
    Ok(ports)
}

/// Notes that the host of a port is to be told of a change.
///
/// # Errors
/// The database fails.
pub fn unsettle(all: &Writing<'_>, port: &Port) -> Result<(), Fault> {
    match port.device_id {
        Some(server) => all
            .change::<Server>(server, |server| server.told.unsettle())
            .map(drop),
        None => all
            .change::<Port>(port.id, |port| port.told.unsettle())
            .map(drop),
    }
}

/// Returns the host of a port: that of its server, or of its interface.
///
/// # Errors
/// The database fails.
pub fn host_of(view: &impl View, port: &Port) -> Result<Option<Uuid>, Fault> {
    match port.device_id {
        Some(server) => Ok(view.find::<Server>(server)?.map(|server| server.host)),
        None => Ok(port.host),
    }
}

/// Returns the network of a port, if both are up.
///
/// # Errors
/// The database fails.
pub fn network_of(view: &impl View, port: &Port) -> Result<Option<Network>, Fault> {
    let Some(network) = port.network_id else {
        return Ok(None);
    };
    let network = view.find::<Network>(network)?;
    Ok(network.filter(|network| network.admin_state_up && port.admin_state_up))
}

/// Checks that a network takes one more port.
///
/// # Errors
/// The network is full, or the database fails.
pub fn has_room(view: &impl View, network: &Network) -> Result<(), Fault> {
    let ports_max = network.kind.ports_max();
    if ports_max == usize::MAX {
        return Ok(());
    }
    let is_joined = !matches!(network.physical(), Ok(Physical::Nothing));
    let used = ports_on(view, network.id)?.len() + usize::from(is_joined);
    if used < ports_max {
        return Ok(());
    }
    Err(Fault::conflict(format!(
        "network {} is between {ports_max} ports, and has them",
        network.name
    )))
}

/// Returns true if a network has a port on a host.
fn has_ports(view: &impl View, network: Uuid, host: Uuid) -> Result<bool, Fault> {
    for port in ports_on(view, network)? {
        if host_of(view, &port)? == Some(host) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes down that a network is about to have something on a host; returns what.
fn begin(all: &Writing<'_>, owner: &str, id: Uuid, host: &Host) -> Result<Leg, Fault> {
    let mut network: Network = all.get(id)?;
    if let Some(leg) = network.hosts.get(&host.id) {
        return Ok(*leg);
    }
    if !reaches(all, &network, host)? {
        return Err(out_of_reach(&network, host));
    }
    let vni = match network.hub() {
        None => None,
        Some(_) => Some(free_vni(all, owner)?),
    };
    let leg = Leg {
        is_made: false,
        vni,
    };
    network.hosts.insert(host.id, leg);
    all.put(&network)?;
    Ok(leg)
}

/// Returns a number for a tunnel. Servers with different owners that share hosts begin at different numbers.
fn free_vni(view: &impl View, owner: &str) -> Result<u32, Fault> {
    let Mac([.., high, low]) = Mac::derived(owner);
    let first = u16::from_be_bytes([high, low]);
    let networks = view.all::<Network>()?;
    let legs = networks.iter().flat_map(|network| network.hosts.values());
    let used: HashSet<u32> = legs.filter_map(|leg| leg.vni).collect();
    let mut vnis = (0..=u16::MAX).map(|n| VNI_MIN + u32::from(first.wrapping_add(n)));
    let free = vnis.find(|vni| !used.contains(vni));
    free.ok_or_else(|| Fault::conflict("all numbers of tunnels are in use"))
}

impl Vim {
    /// Makes the switch of a network on a host, and the tunnel to it, unless that has been done.
    ///
    /// # Errors
    /// No tunnel leads to the host. Or a host refuses, or does not answer.
    pub async fn make_network(&self, id: Uuid, host: &Host) -> Result<(), Fault> {
        let _turn = self.networks.wait(id).await;
        let network: Network = self.store.read()?.get(id)?;
        if network.hosts.get(&host.id).is_some_and(|leg| leg.is_made) {
            return Ok(());
        }
        let leg = self.store.write(|all| begin(all, &self.owner, id, host))?;
        let mut document = render::network(&network, &self.owner).map_err(Fault::bad)?;
        if let Some((hub, vni)) = network.hub().zip(leg.vni) {
            let hub: Host = self.store.read()?.get(hub)?;
            let addresses = [
                self.hosts.address(host).await?,
                self.hosts.address(&hub).await?,
            ];
            let [there, here] =
                addresses.map(|address| render::tunnel(&network, vni, address, &self.owner));
            self.tell_host(&hub, &there).await?;
            render::add_uplinks(&mut document, &here);
        }
        self.tell_host(host, &document).await?;
        self.store.write(|all| {
            all.change::<Network>(id, |network| {
                if let Some(leg) = network.hosts.get_mut(&host.id) {
                    leg.is_made = true;
                }
            })
        })?;
        Ok(())
    }

    /// Adds the objects of a document to a host, or changes them.
    ///
    /// # Errors
    /// The host refuses, or does not answer.
    pub async fn tell_host(&self, host: &Host, document: &Value) -> Result<(), Fault> {
        let client = self.hosts.client(host)?;
        let made = merge(&client, document).await;
        made.map_err(|error| refused(host, &error))
    }

    /// Removes a network from a host that has no port on it any more. If a host refuses, it stays until the network goes.
    pub async fn clear_network(&self, id: Uuid, host: &Host) {
        if let Err(fault) = self.unmake_network(id, host).await {
            tracing::warn!(network = %id, "a switch stays: {}", fault.text);
        }
    }

    /// Removes a network from a host that has no port on it, and from the hub, if nothing is left for that either.
    ///
    /// # Errors
    /// A host refuses, or does not answer.
    pub async fn unmake_network(&self, id: Uuid, host: &Host) -> Result<(), Fault> {
        let _turn = self.networks.wait(id).await;
        self.take_down(id, host).await?;
        let view = self.store.read()?;
        let network = view.find::<Network>(id)?;
        let hub = network.and_then(|network| network.hub());
        match hub.filter(|hub| *hub != host.id) {
            Some(hub) => self.take_down(id, &view.get(hub)?).await,
            None => Ok(()),
        }
    }

    async fn take_down(&self, id: Uuid, host: &Host) -> Result<(), Fault> {
        // Whoever makes it after this does all of it again.
        let begun = self.store.write(|all| {
            let Some(mut network) = all.find::<Network>(id)? else {
                return Ok(None);
            };
            let has_spokes = network.hub() == Some(host.id) && network.hosts.len() > 1;
            if has_spokes || has_ports(all, id, host.id)? {
                return Ok(None);
            }
            let Some(leg) = network.hosts.get_mut(&host.id) else {
                return Ok(None);
            };
            leg.is_made = false;
            let vni = leg.vni;
            all.put(&network)?;
            Ok(Some((network, vni)))
        })?;
        let Some((network, vni)) = begun else {
            return Ok(());
        };
        let tunnel = vni.map(|vni| (Kind::Uplink, render::tunnel_of(id, vni)));
        // The hub first: the other end may be away for good.
        if let (Some(tunnel), Some(hub)) = (&tunnel, network.hub()) {
            let hub: Host = self.store.read()?.get(hub)?;
            self.remove_from(&hub, tunnel.clone()).await?;
        }
        let (uplink, switch) = render::objects_of(&network);
        let uplink = uplink.map(|uplink| (Kind::Uplink, uplink));
        for object in tunnel
            .into_iter()
            .chain(uplink)
            .chain([(Kind::Switch, switch)])
        {
            self.remove_from(host, object).await?;
        }
        self.store.write(|all| {
            all.change::<Network>(id, |network| {
                network.hosts.remove(&host.id);
            })
        })?;
        Ok(())
    }

    /// Removes an uplink with its links, or a switch, from a host.
    ///
    /// # Errors
    /// The host refuses, or does not answer.
    pub async fn remove_from(
        &self,
        host: &Host,
        (kind, name): (Kind, String),
    ) -> Result<(), Fault> {
        let client = self.hosts.client(host)?;
        let removed = remove_owned(&client, (kind, &name), &self.owner, true).await;
        removed.map_err(|error| refused(host, &error))
    }
}
