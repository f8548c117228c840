//! How a server is made: what its client says, which hosts could have it, and what is written down.

use crate::attached::visible;
use crate::fault::{Fault, id};
use crate::hosts::at_once;
use crate::networks::{has_room, ports_on, reaches};
use crate::objects::{
    self, Flavor, Host, Image, Network, NetworkKind, Object, Port, PortKind, Server, Tenant, Told,
    Wanted,
};
use crate::render;
use crate::store::{View, Writing};
use crate::vim::Vim;
use nfluid_control::model::DEFAULT_PORTS;
use nfluid_control::quantity::Mac;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;
use uuid::Uuid;

/// A port of a new server, in the words of its client.
#[derive(Clone, Debug, Deserialize)]
struct NewPort {
    uuid: Uuid,
    name: Option<String>,
    bandwidth: Option<String>,
    vpci: Option<String>,
    mac_address: Option<String>,
    model: Option<String>,
    #[serde(rename = "type", default)]
    kind: NewPortKind,
}

/// The kind of port that a client asks for. Only `virtual` exists here.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
enum NewPortKind {
    #[default]
    #[serde(rename = "virtual")]
    Virtual,
    #[serde(rename = "PF")]
    Function,
    #[serde(rename = "VF")]
    VirtualFunction,
    #[serde(rename = "VFnotShared")]
    OwnVirtualFunction,
}

/// A new server, in the words of its client.
struct NewServer {
    server: Server,
    ports: Vec<NewPort>,
    host: Option<Uuid>,
}

impl NewServer {
    fn read(tenant: Uuid, mut request: Value) -> Result<Self, Fault> {
        let expected = || Fault::bad("'server' with the attributes of a server is expected");
        let given = request.get_mut(Server::WORD).and_then(Value::as_object_mut);
        let given = given.ok_or_else(expected)?;
        let ports = given
            .remove("networks")
            .unwrap_or_else(|| Value::Array(Vec::new()));
        let ports: Vec<NewPort> = serde_path_to_error::deserialize(ports).map_err(|error| {
            Fault::bad(format!(
                "server.networks{}: {}",
                error.path(),
                error.inner()
            ))
        })?;
        let host = match given.remove("hostId") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(id(Host::WORD, &text)?),
            Some(_) => return Err(Fault::bad("server.hostId: an id is expected")),
        };
        let wanted = match given.remove("start").as_ref().and_then(Value::as_str) {
            None | Some("yes") => Wanted::Running,
            Some("paused") => Wanted::Paused,
            Some("no") => Wanted::Off,
            Some(_) => return Err(Fault::bad("server.start: yes, no or paused is expected")),
        };
        let mut server: Server = objects::made(request)?;
        server.tenant_id = tenant;
        server.wanted = wanted;
        Ok(NewServer {
            server,
            ports,
            host,
        })
    }
}

impl Vim {
    /// Makes a server.
    ///
    /// # Errors
    /// The request makes no sense, or no host takes the server: then there is none.
    pub async fn create(&self, tenant: Uuid, request: Value) -> Result<Uuid, Fault> {
        let mut new = NewServer::read(tenant, request)?;
        let mut hosts = self.candidates(&new).await?.into_iter();
        let Some(first) = hosts.next() else {
            return Err(Fault::conflict(
                "no host is there for this server: see 'hosts', their admin_state_up, and where its networks are",
            ));
        };
        new.server.host = first;
        let id = new.server.id;
        self.store.write(|all| add(all, &new))?;
        loop {
            let fault = match self.settle(id).await {
                Ok(()) => return Ok(id),
                Err(fault) => fault,
            };
            // A host that is silent now may have made the instance: the server stays there, with its error.
            if fault.may_pass() || self.leave(id).await.is_err() {
                return Ok(id);
            }
            let Some(next) = hosts.next() else {
                let server = self.store.read()?.get(id)?;
                self.remove(&server).await?;
                return Err(fault);
            };
            self.store.write(|all| {
                all.change::<Server>(id, |server| {
                    server.host = next;
                    server.told.unsettle();
                })
            })?;
        }
    }

    /// Takes a server away from a host that has not taken it, or not as it is to be.
    async fn leave(&self, id: Uuid) -> Result<(), Fault> {
        let view = self.store.read()?;
        let server: Server = view.get(id)?;
        let host: Host = view.get(server.host)?;
        self.kill(&server).await?;
        self.store
            .write(|all| all.change::<Server>(id, |it| it.host = Uuid::nil()))?;
        for port in &server.ports {
            if let Some(network) = view.get::<Port>(*port)?.network_id {
                self.clear_network(network, &host).await;
            }
        }
        Ok(())
    }

    /// Returns the hosts that a server could be on, the best one first: with most free of CPU shares, then of memory, then by ranking.
    async fn candidates(&self, new: &NewServer) -> Result<Vec<Uuid>, Fault> {
        let view = self.store.read()?;
        let networks: Vec<Network> = new
            .ports
            .iter()
            .map(|port| view.get(port.uuid))
            .collect::<Result<_, _>>()?;
        let mut hosts = match new.host {
            Some(id) => vec![view.get::<Host>(id)?],
            None => view.all::<Host>()?,
        };
        hosts.retain(|host| host.admin_state_up);
        for network in &networks {
            let mut reached = Vec::new();
            for host in hosts {
                if reaches(&view, network, &host)? {
                    reached.push(host);
                }
            }
            hosts = reached;
        }
        if hosts.len() < 2 {
            return Ok(hosts.into_iter().map(|host| host.id).collect());
        }
        let asked = hosts.into_iter().map(|host| {
            let reach = self.hosts.clone();
            async move {
                let capacity = reach.capacity(&host).await;
                (host, capacity)
            }
        });
        let mut ranked = Vec::new();
        for (host, capacity) in at_once(asked).await {
            match capacity {
                Ok(it) => {
                    let free = (it.share_per_mille.free, it.memory_bytes.free, host.ranking);
                    ranked.push((free, host.id));
                }
                Err(fault) => tracing::warn!("{}", fault.text),
            }
        }
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        Ok(ranked.into_iter().map(|(_, id)| id).collect())
    }
}

/// Writes a new server and its ports, if all that it names is there and has room.
fn add(all: &Writing<'_>, new: &NewServer) -> Result<(), Fault> {
    let mut server = new.server.clone();
    let tenant: Tenant = all.get(server.tenant_id)?;
    if !tenant.enabled {
        return Err(Fault::conflict(format!(
            "tenant {} is not enabled",
            tenant.id
        )));
    }
    let flavor: Flavor = visible(all, server.flavor, tenant.id)?;
    let image: Image = visible(all, server.image, tenant.id)?;
    let mut names = render::port_names(&server, (&flavor, &image))
        .map_err(|why| Fault::bad(format!("server: {why}")))?;
    if names.is_empty() {
        names = DEFAULT_PORTS.map(str::to_owned).to_vec();
    }
    let given = new.ports.iter().filter_map(|port| port.name.as_ref());
    names.retain(|name| !given.clone().any(|given| given == name));
    let mut names = names.into_iter();
    let mut taken = HashSet::new();
    for (index, new_port) in new.ports.iter().enumerate() {
        let port = port(all, &server, index, new_port, || {
            names.next().unwrap_or_else(|| format!("port{index}"))
        })?;
        if !taken.insert(port.name.clone()) {
            return Err(Fault::bad(format!(
                "server.networks[{index}].name: {} is there twice",
                port.name
            )));
        }
        server.ports.push(port.id);
        all.add(&port)?;
    }
    all.add(&server)
}

/// Returns a port of a new server.
fn port(
    all: &Writing<'_>,
    server: &Server,
    index: usize,
    new: &NewPort,
    next_name: impl FnOnce() -> String,
) -> Result<Port, Fault> {
    let at = format!("server.networks[{index}]");
    if new.kind != NewPortKind::Virtual {
        return Err(Fault::bad(format!(
            "{at}.type: ports are 'virtual': an instance gets no function of a NIC"
        )));
    }
    let network: Network = all.get(new.uuid)?;
    if !network.is_for(server.tenant_id) {
        return Err(Fault::unknown(Network::WORD, network.id));
    }
    has_room(all, &network)?;
    let id = Uuid::new_v4();
    let mac = match &new.mac_address {
        Some(mac) => {
            is_free(all, mac, &network, &at)?;
            mac.clone()
        }
        None => Mac::derived(&id.to_string()).to_string(),
    };
    let kind = match network.kind {
        NetworkKind::BridgeMan | NetworkKind::BridgeData => PortKind::Bridge,
        NetworkKind::Data | NetworkKind::Ptp => PortKind::Data,
    };
    let port = Port {
        id,
        name: new.name.clone().unwrap_or_else(next_name),
        network_id: Some(network.id),
        tenant_id: Some(server.tenant_id),
        mac_address: Some(mac),
        admin_state_up: true,
        bandwidth: new.bandwidth.clone(),
        interface: None,
        vlan: None,
        kind,
        device_id: Some(server.id),
        vpci: new.vpci.clone(),
        model: new.model.clone(),
        host: None,
        told: Told::default(),
    };
    port.check()
        .map_err(|why| Fault::bad(format!("{at}.{why}")))?;
    Ok(port)
}

/// Checks that no port of a network has the address of the port at `at`.
fn is_free(all: &Writing<'_>, mac: &str, network: &Network, at: &str) -> Result<(), Fault> {
    let has_it = |port: &Port| {
        let other = port.mac_address.as_deref();
        other.is_some_and(|it| it.eq_ignore_ascii_case(mac))
    };
    if ports_on(all, network.id)?.iter().any(has_it) {
        let name = &network.name;
        return Err(Fault::conflict(format!(
            "{at}.mac_address: {mac} is on network {name} already"
        )));
    }
    Ok(())
}
