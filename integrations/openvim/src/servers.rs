//! Servers: how one is made on a host, what it is doing, and what can be done with it.

use crate::fault::{Fault, id};
use crate::objects::{
    self, Flavor, Host, Image, Network, NetworkKind, Object, Physical, Port, PortKind, Public,
    Server, Tenant, Wanted,
};
use crate::render;
use crate::store::{View, Writing};
use crate::vim::Vim;
use nfluid_api::types::{InstanceState, InstanceStatus};
use nfluid_control::model::DEFAULT_PORTS;
use nfluid_control::quantity::Mac;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use uuid::Uuid;

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// It is being made.
    Creating,
    /// It runs.
    Active,
    /// It is paused.
    Paused,
    /// It is off, or its program has ended.
    Inactive,
    /// It is not as it should be.
    Error,
    /// It is being ended.
    Deleting,
}

/// What a client says of a port of a new server.
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

/// What a port is to be made of.
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
        given.insert("tenant_id".to_owned(), tenant.to_string().into());
        given.insert("hostId".to_owned(), Uuid::nil().to_string().into());
        given.insert(
            "wanted".to_owned(),
            serde_json::to_value(wanted).unwrap_or(Value::Null),
        );
        given.insert("is_settled".to_owned(), false.into());
        let server = objects::made::<Server>(request)?;
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
                    server.is_settled = false;
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
        hosts.retain(|host| {
            let is_possible = networks
                .iter()
                .all(|network| !network.is_elsewhere(host.id));
            host.admin_state_up && is_possible
        });
        if hosts.len() < 2 {
            return Ok(hosts.into_iter().map(|host| host.id).collect());
        }
        let asked = hosts.into_iter().map(|host| {
            let reach = self.hosts.clone();
            tokio::spawn(async move {
                let capacity = reach.capacity(&host).await;
                (host, capacity)
            })
        });
        let mut ranked = Vec::new();
        for answer in asked.collect::<Vec<_>>() {
            let (host, capacity) = answer.await.map_err(|it| Fault::internal(it.to_string()))?;
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

    /// Returns what servers are doing, and what is wrong with them.
    ///
    /// # Errors
    /// The database fails. A host that does not answer is told as an error of its servers.
    pub async fn statuses(
        &self,
        servers: &[Server],
    ) -> Result<HashMap<Uuid, (Status, Option<String>)>, Fault> {
        let mut by_host: BTreeMap<Uuid, Vec<&Server>> = BTreeMap::new();
        for server in servers {
            by_host.entry(server.host).or_default().push(server);
        }
        let mut statuses = HashMap::new();
        for (host, servers) in by_host {
            let host = self.store.read()?.find::<Host>(host)?;
            let found = match (&host, servers.as_slice()) {
                (Some(host), [server]) => {
                    let name = render::instance_of(server);
                    let one = self.hosts.instance(host, &name).await;
                    one.map(|one| one.map(|it| (name, it)).into_iter().collect())
                }
                (Some(host), _) => self.hosts.instances(host).await,
                (None, _) => Ok(HashMap::new()),
            };
            for server in servers {
                let status = match &found {
                    Ok(all) => {
                        let instance = all.get(&render::instance_of(server));
                        let is_own = |it: &&InstanceStatus| it.owner.as_ref() == Some(&self.owner);
                        status(server, instance.filter(is_own))
                    }
                    Err(fault) => (unseen(server), Some(fault.text.clone())),
                };
                statuses.insert(server.id, status);
            }
        }
        Ok(statuses)
    }

    /// Does something with a server.
    ///
    /// # Errors
    /// The action is none, or not possible now; the host refuses, or does not answer.
    pub async fn act(&self, server: Server, action: &Value) -> Result<(), Fault> {
        let one = action.as_object().filter(|all| all.len() == 1);
        let Some((word, detail)) = one.and_then(|all| all.iter().next()) else {
            return Err(Fault::bad(
                "one action is expected: start, pause, resume, shutoff, shutdown, forceOff, terminate, reboot or rebuild",
            ));
        };
        let known = self.statuses(std::slice::from_ref(&server)).await?;
        let status = known.get(&server.id).map_or(Status::Error, |it| it.0);
        let only = |allowed: &[Status]| {
            if allowed.contains(&status) {
                return Ok(());
            }
            Err(Fault::not_now(format!(
                "{word}: server {} is {}",
                server.id,
                serde_json::to_value(status).unwrap_or_default()
            )))
        };
        match word.as_str() {
            "start" if detail == "rebuild" => self.rebuild(&server, &Value::Null).await,
            "start" => self.become_(&server, Wanted::Running).await,
            "pause" => {
                only(&[Status::Active, Status::Paused])?;
                self.become_(&server, Wanted::Paused).await
            }
            "resume" => {
                only(&[Status::Active, Status::Paused])?;
                self.become_(&server, Wanted::Running).await
            }
            "shutoff" | "shutdown" => self.become_(&server, Wanted::Off).await,
            "forceOff" => {
                self.kill(&server).await?;
                self.become_(&server, Wanted::Off).await
            }
            "terminate" => self.remove(&server).await,
            "reboot" => {
                only(&[Status::Active])?;
                self.restart(&server).await
            }
            "rebuild" => self.rebuild(&server, detail).await,
            "createImage" => Err(Fault::bad(
                "createImage: instances have no disks; save the state of one with 'nfluid save', and make images of programs",
            )),
            other => Err(Fault::bad(format!("'{other}' is no action"))),
        }
    }

    async fn become_(&self, server: &Server, wanted: Wanted) -> Result<(), Fault> {
        self.store.write(|all| {
            let now: Server = all.get(server.id)?;
            if now.wanted == Wanted::Gone && wanted != Wanted::Gone {
                return Err(Fault::unknown(Server::WORD, server.id));
            }
            all.change::<Server>(server.id, |it| {
                it.wanted = wanted;
                it.is_settled = false;
            })
        })?;
        self.settle(server.id).await
    }

    /// Removes a server. If its host does not answer, it is removed later.
    ///
    /// # Errors
    /// The host refuses.
    pub async fn remove(&self, server: &Server) -> Result<(), Fault> {
        let removed = self.become_(server, Wanted::Gone).await;
        match removed {
            Err(fault) if fault.may_pass() => {
                tracing::warn!(server = server.name, "{}", fault.text);
                Ok(())
            }
            removed => removed,
        }
    }

    /// Makes the instance of a server anew, of another image if the request names one.
    async fn rebuild(&self, server: &Server, detail: &Value) -> Result<(), Fault> {
        let image = match detail.get("imageRef") {
            None | Some(Value::Null) => server.image,
            Some(Value::String(text)) => id(Image::WORD, text)?,
            Some(_) => return Err(Fault::bad("rebuild.imageRef: an id is expected")),
        };
        self.store.write(|all| {
            visible::<Image>(all, image, server.tenant_id)?;
            all.change::<Server>(server.id, |it| it.image = image)
        })?;
        self.become_(server, Wanted::Off).await?;
        self.become_(server, Wanted::Running).await
    }
}

/// What a server is doing, as its instance shows it.
fn status(server: &Server, instance: Option<&InstanceStatus>) -> (Status, Option<String>) {
    let own = server.last_error.clone();
    let Some(instance) = instance else {
        return match server.wanted {
            Wanted::Running | Wanted::Paused if server.is_settled => {
                let gone = "its instance is gone from its host: start or rebuild it".to_owned();
                (Status::Error, Some(own.unwrap_or(gone)))
            }
            _ => (unseen(server), own),
        };
    };
    let ended = || instance.last_exit.clone().or_else(|| own.clone());
    match (server.wanted, instance.state) {
        (Wanted::Gone, _) => (Status::Deleting, own),
        (_, InstanceState::Starting) => (Status::Creating, own),
        (_, InstanceState::Running) if server.last_error.is_some() => (Status::Error, own),
        (_, InstanceState::Running) => (Status::Active, None),
        (_, InstanceState::Unhealthy) => (Status::Error, instance.unhealthy.clone().or(own)),
        (_, InstanceState::Paused) => (Status::Paused, own),
        (_, InstanceState::Stopped) => (Status::Inactive, ended()),
        (_, InstanceState::Waiting | InstanceState::Failed) => (Status::Error, ended()),
    }
}

/// What a server is doing, as far as this process knows.
fn unseen(server: &Server) -> Status {
    match server.wanted {
        Wanted::Gone => Status::Deleting,
        Wanted::Off => Status::Inactive,
        _ if server.last_error.is_some() => Status::Error,
        _ if !server.is_settled => Status::Creating,
        Wanted::Paused => Status::Paused,
        Wanted::Running => Status::Active,
    }
}

/// An object that tenants see when it is attached to them.
pub trait Attached: Object {
    /// Returns the tenants to which it is attached.
    fn tenants(&mut self) -> &mut BTreeSet<Uuid>;

    /// Returns who else sees it.
    fn public(&self) -> Public;

    /// Returns true if a server is made of it.
    fn is_used_by(&self, server: &Server) -> bool;

    /// Returns true if servers that are made of both are alike.
    fn is_alike(&self, other: &Self) -> bool;
}

impl Attached for Flavor {
    fn tenants(&mut self) -> &mut BTreeSet<Uuid> {
        &mut self.tenants
    }

    fn public(&self) -> Public {
        self.public
    }

    fn is_used_by(&self, server: &Server) -> bool {
        server.flavor == self.id
    }

    fn is_alike(&self, other: &Self) -> bool {
        self.ram == other.ram && self.extended == other.extended
    }
}

impl Attached for Image {
    fn tenants(&mut self) -> &mut BTreeSet<Uuid> {
        &mut self.tenants
    }

    fn public(&self) -> Public {
        self.public
    }

    fn is_used_by(&self, server: &Server) -> bool {
        server.image == self.id
    }

    fn is_alike(&self, other: &Self) -> bool {
        self.path == other.path && self.metadata == other.metadata
    }
}

/// Returns true if a tenant sees an object.
pub fn is_visible(object: &mut impl Attached, tenant: Uuid) -> bool {
    object.public() == Public::Yes || object.tenants().contains(&tenant)
}

/// Returns an object that a tenant sees.
pub fn visible<T: Attached>(view: &impl View, id: Uuid, tenant: Uuid) -> Result<T, Fault> {
    let mut object: T = view.get(id)?;
    if !is_visible(&mut object, tenant) {
        return Err(Fault::unknown(T::WORD, id));
    }
    Ok(object)
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
    let mut taken: Map<String, Value> = Map::new();
    for (index, new_port) in new.ports.iter().enumerate() {
        let port = port(all, &server, index, new_port, || {
            names.next().unwrap_or_else(|| format!("port{index}"))
        })?;
        if taken.insert(port.name.clone(), Value::Null).is_some() {
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
            is_free(all, mac, &network).map_err(|why| Fault::conflict(format!("{at}.{why}")))?;
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
    };
    port.check()
        .map_err(|why| Fault::bad(format!("{at}.{why}")))?;
    Ok(port)
}

/// Checks that no port of a network has this address.
fn is_free(all: &Writing<'_>, mac: &str, network: &Network) -> Result<(), String> {
    let ports = all.all::<Port>().map_err(|fault| fault.text)?;
    let has_it = |port: &Port| {
        let other = port.mac_address.as_deref();
        port.network_id == Some(network.id) && other.is_some_and(|it| it.eq_ignore_ascii_case(mac))
    };
    if ports.iter().any(has_it) {
        let name = &network.name;
        return Err(format!("mac_address: {mac} is on network {name} already"));
    }
    Ok(())
}

/// Checks that a network takes one more port.
///
/// # Errors
/// It is full.
pub fn has_room(view: &impl View, network: &Network) -> Result<(), Fault> {
    let ports_max = network.kind.ports_max();
    if ports_max == usize::MAX {
        return Ok(());
    }
    let ports = view.all::<Port>()?;
    let mut used = ports
        .iter()
        .filter(|it| it.network_id == Some(network.id))
        .count();
    used += usize::from(!matches!(network.physical(), Ok(Physical::Nothing)));
    if used < ports_max {
        return Ok(());
    }
    Err(Fault::conflict(format!(
        "network {} is between {ports_max} ports, and has them",
        network.name
    )))
}
