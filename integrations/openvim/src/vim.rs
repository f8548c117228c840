//! The manager: what the database says is made so on the hosts.
//!
//! A request changes the database first, and then the host. What a host has not been told yet is written down with the change ([`Told`](crate::objects::Told)), and told when it answers again, also by
//! the next process. A host is told the whole of what a server is to be: it can be told twice.

use crate::fault::Fault;
use crate::hosts::{Hosts, refused};
use crate::networks::{network_of, ports_on};
use crate::objects::{Flavor, Host, Image, Network, Port, PortKind, Server, Wanted};
use crate::render::{self, Plugged};
use crate::store::{Store, View};
use crate::turns::Turns;
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::{
    Change, CreateRequest, InstanceState, Kind, PauseRequest, RestoreRequest, StopRequest, Verb,
};
use nfluid_engine::requests::{found, place_in, remove_own};
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

/// Interval in which a host that has not answered is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// The manager.
pub struct Vim {
    /// The objects.
    pub store: Store,
    /// How hosts are reached.
    pub hosts: Hosts,
    /// The owner of what this manager makes on hosts.
    pub owner: String,
    /// Locks of servers and external ports: one task at a time settles each.
    servers: Turns,
    /// Locks of networks: one task at a time makes or removes each.
    pub(crate) networks: Turns,
    unsettled: Notify,
}

/// All that a server consists of, at one time.
struct Parts {
    image: Image,
    host: Host,
    networks: Vec<Network>,
    wanted: CreateRequest,
}

impl Vim {
    /// Creates the manager of a database's objects.
    pub fn new(store: Store, hosts: Hosts, owner: String) -> Self {
        Vim {
            store,
            hosts,
            owner,
            servers: Turns::default(),
            networks: Turns::default(),
            unsettled: Notify::new(),
        }
    }

    /// Tells hosts what they have not been told, now and whenever one has not answered. Never ends.
    pub async fn keep_up(&self) {
        loop {
            match self.settle_rest().await {
                Ok(true) => self.unsettled.notified().await,
                Ok(false) => tokio::time::sleep(AGAIN).await,
                Err(fault) => {
                    tracing::error!("{}", fault.text);
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// Returns true if all hosts know all.
    async fn settle_rest(&self) -> Result<bool, Fault> {
        let (mut servers, mut ports) = {
            let view = self.store.read()?;
            (view.all::<Server>()?, view.all::<Port>()?)
        };
        servers.retain(|server| !server.told.is_settled);
        ports.retain(|port| port.kind == PortKind::External && !port.told.is_settled);
        // One look at a host that is away is enough.
        let mut away = HashSet::new();
        for server in servers {
            if !away.contains(&server.host)
                && let Err(fault) = self.settle(server.id).await
            {
                tracing::warn!(server = server.name, "{}", fault.text);
                away.extend(fault.may_pass().then_some(server.host));
            }
        }
        for port in ports {
            if !port.host.is_some_and(|host| away.contains(&host))
                && let Err(fault) = self.settle_external(port.id).await
            {
                tracing::warn!(port = port.name, "{}", fault.text);
                away.extend(port.host.filter(|_| fault.may_pass()));
            }
        }
        Ok(away.is_empty())
    }

    /// Makes a server on its host what it is to be.
    ///
    /// # Errors
    /// The host refuses: the server has this as its error. Or it does not answer: it will be told later.
    pub async fn settle(&self, id: Uuid) -> Result<(), Fault> {
        let _turn = self.servers.wait(id).await;
        let Some(server) = self.store.read()?.find::<Server>(id)? else {
            return Ok(());
        };
        if server.wanted == Wanted::Gone {
            return self.end(server).await;
        }
        let told = self.tell(&server).await;
        let is_settled = self.is_settled(&told);
        let last_error = told.as_ref().err().map(|fault| fault.text.clone());
        self.store.write(|all| {
            all.change::<Server>(id, |now| {
                now.told.note(server.told, is_settled);
                now.last_error = last_error;
            })
        })?;
        told
    }

    /// Returns true if a host has taken or refused what it was told. Otherwise it is told later.
    fn is_settled(&self, told: &Result<(), Fault>) -> bool {
        let is_later = told.as_ref().is_err_and(Fault::may_pass);
        if is_later {
            self.unsettled.notify_one();
        }
        !is_later
    }

    async fn tell(&self, server: &Server) -> Result<(), Fault> {
        let Parts {
            image,
            host,
            networks,
            wanted,
        } = self.parts(server)?;
        if server.wanted == Wanted::Off {
            return self.remove_instance(server, &host, None).await;
        }
        let client = self.hosts.client(&host)?;
        let name = render::instance_of(server);
        for network in networks {
            self.make_network(network.id, &host).await?;
        }
        let failed = |error: ClientError| {
            Fault::of_daemon(&error, &host.name, |path| place_in("server", path, &name))
        };
        if image.has_state
            && found(client.instance(&name).await)
                .map_err(failed)?
                .is_none()
        {
            let request = RestoreRequest {
                image: self.store.read()?.state(image.id)?,
                name: Some(name.clone()),
                instance: Some(wanted.instance.clone()),
                ..RestoreRequest::default()
            };
            client.restore(&request).await.map_err(failed)?;
        }
        let created = client.create(&name, &wanted).await.map_err(failed)?;
        let is_paused = server.wanted == Wanted::Paused;
        let is_new = |change: &Change| matches!(change.verb, Verb::Created | Verb::Replaced);
        if !is_paused && created.changes.iter().any(is_new) {
            return Ok(());
        }
        self.pause(&client, &host, &name, is_paused).await
    }

    /// Pauses an instance, or lets it go on, if it is not so already.
    async fn pause(
        &self,
        client: &Client,
        host: &Host,
        name: &str,
        is_wanted: bool,
    ) -> Result<(), Fault> {
        let failed = |error| refused(host, &error);
        let instance = client.instance(name).await.map_err(failed)?;
        let is_paused = instance.state == InstanceState::Paused;
        match (is_wanted, is_paused) {
            (true, false) => {
                let paused = client.pause(name, &PauseRequest::default()).await;
                paused.map(drop).map_err(failed)
            }
            (false, true) => client.unpause(name).await.map(drop).map_err(failed),
            _ => Ok(()),
        }
    }

    /// Ends a server that is to go, and what was there for it alone.
    async fn end(&self, server: Server) -> Result<(), Fault> {
        let id = server.id;
        // Between two hosts it is on none.
        let host = self.store.read()?.find::<Host>(server.host)?;
        if let Some(host) = &host {
            let removed = self.remove_instance(&server, host, None).await;
            removed.inspect_err(|_| self.unsettled.notify_one())?;
        }
        let networks = self.store.write(|all| {
            let mut networks = Vec::new();
            for port in &server.ports {
                let port = all.find::<Port>(*port)?;
                networks.extend(port.and_then(|port| port.network_id));
            }
            for port in &server.ports {
                all.remove::<Port>(*port)?;
            }
            all.remove::<Server>(id)?;
            Ok(networks)
        })?;
        if let Some(host) = host {
            for network in networks {
                self.clear_network(network, &host).await;
            }
        }
        Ok(())
    }

    /// Stops the instance of a server in another way than its program would be asked to end.
    ///
    /// # Errors
    /// The host refuses, or does not answer.
    pub async fn kill(&self, server: &Server) -> Result<(), Fault> {
        let host: Host = self.store.read()?.get(server.host)?;
        let how = StopRequest {
            signal: Some("SIGKILL".to_owned()),
            wait_ms: Some(0),
        };
        self.remove_instance(server, &host, Some(&how)).await
    }

    /// Removes the instance of a server, if it is there. `how` says how its program is asked to end.
    async fn remove_instance(
        &self,
        server: &Server,
        host: &Host,
        how: Option<&StopRequest>,
    ) -> Result<(), Fault> {
        let client = self.hosts.client(host)?;
        let name = render::instance_of(server);
        let removed = remove_own(&client, &name, &self.owner, how).await;
        removed.map_err(|error| refused(host, &error))
    }

    /// Starts the instance of a server anew.
    ///
    /// # Errors
    /// The host refuses, or does not answer.
    pub async fn restart(&self, server: &Server) -> Result<(), Fault> {
        let host: Host = self.store.read()?.get(server.host)?;
        let client = self.hosts.client(&host)?;
        let name = render::instance_of(server);
        let restarted = client.restart(&name).await;
        restarted.map_err(|error| refused(&host, &error))
    }

    /// Returns the state of a server's instance, as its daemon writes it.
    ///
    /// # Errors
    /// The host refuses, or does not answer.
    pub async fn save(&self, server: &Server) -> Result<String, Fault> {
        let host: Host = self.store.read()?.get(server.host)?;
        let client = self.hosts.client(&host)?;
        let saved = client.save(&render::instance_of(server)).await;
        Ok(saved.map_err(|error| refused(&host, &error))?.image)
    }

    /// Reads all that a server consists of.
    fn parts(&self, server: &Server) -> Result<Parts, Fault> {
        let view = self.store.read()?;
        let flavor: Flavor = view.get(server.flavor)?;
        let image: Image = view.get(server.image)?;
        let host: Host = view.get(server.host)?;
        let (mut ports, mut networks) = (Vec::new(), Vec::new());
        for port in &server.ports {
            let port: Port = view.get(*port)?;
            let on = network_of(&view, &port)?;
            let switch = on.as_ref().map(|it| render::switch_of(it.id));
            networks.extend(on);
            ports.push(Plugged { port, switch });
        }
        let wanted = render::instance(server, (&flavor, &image), &ports, &self.owner);
        Ok(Parts {
            image,
            host,
            networks,
            wanted: wanted.map_err(Fault::bad)?,
        })
    }

    /// Makes the uplink of an external port what it is to be.
    ///
    /// # Errors
    /// The host refuses, or does not answer.
    pub async fn settle_external(&self, id: Uuid) -> Result<(), Fault> {
        let _turn = self.servers.wait(id).await;
        let Some(port) = self.store.read()?.find::<Port>(id)? else {
            return Ok(());
        };
        let told = self.tell_external(&port).await;
        let is_settled = self.is_settled(&told);
        let note = |now: &mut Port| now.told.note(port.told, is_settled);
        self.store.write(|all| all.change::<Port>(id, note))?;
        told
    }

    async fn tell_external(&self, port: &Port) -> Result<(), Fault> {
        let view = self.store.read()?;
        let (Some(host), Some((_, interface))) = (port.host, port.binding()) else {
            return Ok(());
        };
        let host: Host = view.get(host)?;
        let on = network_of(&view, port)?;
        if let Some(network) = &on {
            self.make_network(network.id, &host).await?;
        }
        let switch = on.map(|it| render::switch_of(it.id));
        let document = render::external(port, interface, switch.as_deref(), &self.owner);
        self.tell_host(&host, &document).await
    }

    /// Removes the uplink of an external port.
    ///
    /// # Errors
    /// The host refuses, or does not answer.
    pub async fn end_external(&self, port: &Port) -> Result<(), Fault> {
        let _turn = self.servers.wait(port.id).await;
        let Some(host) = port.host else {
            return Ok(());
        };
        let host: Host = self.store.read()?.get(host)?;
        let uplink = (Kind::Uplink, render::uplink_of(port.id));
        self.remove_from(&host, uplink).await?;
        self.store.write(|all| all.remove::<Port>(port.id))?;
        if let Some(network) = port.network_id {
            self.clear_network(network, &host).await;
        }
        Ok(())
    }

    /// Makes a port what it is to be, with its server.
    ///
    /// # Errors
    /// The host refuses, or does not answer.
    pub async fn settle_port(&self, port: &Port) -> Result<(), Fault> {
        match port.device_id {
            Some(server) => self.settle(server).await,
            None => self.settle_external(port.id).await,
        }
    }

    /// Makes all ports on a network what they are to be.
    ///
    /// # Errors
    /// The database fails. What hosts refuse is told as the errors of their servers.
    pub async fn settle_network(&self, id: Uuid) -> Result<(), Fault> {
        let ports = ports_on(&self.store.read()?, id)?;
        let mut first = None;
        for port in ports {
            if let Err(fault) = self.settle_port(&port).await {
                tracing::warn!(port = port.name, "{}", fault.text);
                first.get_or_insert(fault.text);
            }
        }
        self.store
            .write(|all| all.change::<Network>(id, |network| network.last_error = first))?;
        Ok(())
    }
}
