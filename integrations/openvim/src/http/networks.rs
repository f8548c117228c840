//! Networks and ports.

use super::content::Content;
use super::front::{Front, Outcome, done, one};
use super::query::{Pairs, Query};
use crate::fault::{Fault, id};
use crate::networks::{has_room, host_of, network_of, out_of_reach, ports_on, reaches, unsettle};
use crate::objects::{self, Host, Network, Object, Port, PortKind, Tenant, seen};
use crate::store::{View, Writing};
use axum::extract::{Path, Query as Pairing, State};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Returns the status of what is up or not, and may have an error.
fn status(is_up: bool, has_error: bool) -> Value {
    match (is_up, has_error) {
        (_, true) => "ERROR",
        (true, false) => "ACTIVE",
        (false, false) => "DOWN",
    }
    .into()
}

fn shown(network: &Network) -> Map<String, Value> {
    let mut row = seen(network);
    let status = status(network.admin_state_up, network.last_error.is_some());
    row.insert("status".to_owned(), status);
    row
}

fn shown_port(view: &impl View, port: &Port) -> Result<Map<String, Value>, Fault> {
    let mut row = seen(port);
    let is_up = network_of(view, port)?.is_some();
    row.insert("status".to_owned(), status(is_up, false));
    Ok(row)
}

pub async fn list(State(front): State<Front>, Pairing(pairs): Pairing<Pairs>) -> Outcome {
    // Clients name their tenant, and get what they may use; OpenVIM shows them all networks.
    let pairs = pairs.into_iter().filter(|(key, _)| key != "tenant_id");
    let query = Query::read::<Network>(pairs.collect())?;
    let all = front.vim.store.read()?.all::<Network>()?;
    query.answer::<Network>(all.iter().map(shown))
}

pub async fn show(State(front): State<Front>, Path(network): Path<String>) -> Outcome {
    let id = id(Network::WORD, &network)?;
    let view = front.vim.store.read()?;
    let network: Network = view.get(id)?;
    let mut row = shown(&network);
    let ports = ports_on(&view, id)?;
    let ports: Vec<Value> = ports
        .iter()
        .map(|port| json!({ "port_id": port.id }))
        .collect();
    if !ports.is_empty() {
        row.insert("ports".to_owned(), ports.into());
    }
    one::<Network>(row)
}

/// Checks what a network names.
fn check(all: &Writing<'_>, network: &Network) -> Result<(), Fault> {
    if let Some(tenant) = network.tenant_id {
        all.get::<Tenant>(tenant)?;
    }
    Ok(())
}

pub async fn make(State(front): State<Front>, Content(request): Content) -> Outcome {
    let network: Network = objects::made(request)?;
    if network.physical.is_some() {
        front.admit("a network on an interface of the hosts")?;
    }
    front.vim.store.write(|all| {
        check(all, &network)?;
        all.add(&network)
    })?;
    one::<Network>(shown(&network))
}

pub async fn change(
    State(front): State<Front>,
    Path(network): Path<String>,
    Content(request): Content,
) -> Outcome {
    let id = id(Network::WORD, &network)?;
    front.vim.store.write(|all| {
        let old: Network = all.get(id)?;
        let new: Network = objects::changed(&old, request)?;
        check(all, &new)?;
        if old.physical != new.physical {
            front.admit("a network on an interface of the hosts")?;
            if !old.hosts.is_empty() {
                return Err(Fault::not_now(format!(
                    "network {} has ports: its provider:physical cannot change",
                    old.name
                )));
            }
        }
        let ports = ports_on(all, id)?;
        if ports.len() > new.kind.ports_max() {
            return Err(Fault::not_now(format!(
                "network {} has {} ports: too many for this type",
                old.name,
                ports.len()
            )));
        }
        all.put(&new)?;
        ports.iter().try_for_each(|port| unsettle(all, port))
    })?;
    front.vim.settle_network(id).await?;
    let network: Network = front.vim.store.read()?.get(id)?;
    one::<Network>(shown(&network))
}

/// Returns a network that has no ports.
fn unused(view: &impl View, id: Uuid) -> Result<Network, Fault> {
    let network: Network = view.get(id)?;
    let used = ports_on(view, id)?.len();
    if used > 0 {
        let name = network.name;
        return Err(Fault::conflict(format!("network {name} has {used} ports")));
    }
    Ok(network)
}

pub async fn remove(State(front): State<Front>, Path(network): Path<String>) -> Outcome {
    let id = id(Network::WORD, &network)?;
    let network = unused(&front.vim.store.read()?, id)?;
    // The hub is the last one.
    let hosts = network.hosts.iter();
    let (hubs, spokes): (Vec<_>, Vec<_>) = hosts.partition(|(_, leg)| leg.vni.is_none());
    for (host, _) in spokes.into_iter().chain(hubs) {
        let host: Host = front.vim.store.read()?.get(*host)?;
        front.vim.unmake_network(id, &host).await?;
    }
    front.vim.store.write(|all| {
        // A port may have been put on it meanwhile.
        let network = unused(all, id)?;
        if !network.hosts.is_empty() {
            let name = network.name;
            return Err(Fault::conflict(format!("network {name} is in use again")));
        }
        all.remove::<Network>(id)
    })?;
    done(&format!("network {id} deleted"))
}

pub async fn ports(State(front): State<Front>, Pairing(pairs): Pairing<Pairs>) -> Outcome {
    let query = Query::read::<Port>(pairs)?;
    let view = front.vim.store.read()?;
    let rows = view
        .all::<Port>()?
        .into_iter()
        .map(|it| shown_port(&view, &it));
    query.answer::<Port>(rows.collect::<Result<Vec<_>, _>>()?)
}

fn get_port(front: &Front, id: Uuid) -> Outcome {
    let view = front.vim.store.read()?;
    let port: Port = view.get(id)?;
    one::<Port>(shown_port(&view, &port)?)
}

pub async fn port(State(front): State<Front>, Path(port): Path<String>) -> Outcome {
    get_port(&front, id(Port::WORD, &port)?)
}

pub async fn make_port(State(front): State<Front>, Content(request): Content) -> Outcome {
    front.admit("an external port")?;
    let mut port: Port = objects::made(request)?;
    front.vim.store.write(|all| {
        let host = bound_to(all, &port)?;
        port.host = Some(host);
        put_on(all, &port, host)?;
        all.add(&port)
    })?;
    if let Err(fault) = front.vim.settle_external(port.id).await {
        // Nothing half made: the host may know it, or not.
        front.vim.end_external(&port).await?;
        return Err(fault);
    }
    get_port(&front, port.id)
}

/// Returns the host of an external port.
fn bound_to(view: &impl View, port: &Port) -> Result<Uuid, Fault> {
    let hosts = view.all::<Host>()?;
    let named = port.binding().and_then(|(host, _)| host);
    match (named, hosts.as_slice()) {
        (Some(name), hosts) => {
            let named = hosts.iter().find(|host| host.name == name);
            let named =
                named.ok_or_else(|| Fault::unknown(Host::WORD, format_args!("'{name}'")))?;
            Ok(named.id)
        }
        (None, [only]) => Ok(only.id),
        (None, hosts) => Err(Fault::bad(format!(
            "port.binding:switch_port: with {} hosts, HOST:INTERFACE is expected",
            hosts.len()
        ))),
    }
}

/// Checks that a port on a host can be on its network.
fn put_on(all: &Writing<'_>, port: &Port, host: Uuid) -> Result<(), Fault> {
    let Some(network) = port.network_id else {
        return Ok(());
    };
    let network: Network = all.get(network)?;
    if port.tenant_id.is_some_and(|tenant| !network.is_for(tenant)) {
        return Err(Fault::unknown(Network::WORD, network.id));
    }
    let host: Host = all.get(host)?;
    if !reaches(all, &network, &host)? {
        return Err(out_of_reach(&network, &host));
    }
    has_room(all, &network)
}

pub async fn change_port(
    State(front): State<Front>,
    Path(port): Path<String>,
    Content(request): Content,
) -> Outcome {
    let id = id(Port::WORD, &port)?;
    let (old, new) = front.vim.store.write(|all| {
        let old: Port = all.get(id)?;
        if old.kind == PortKind::External {
            front.admit("a change of an external port")?;
        }
        let new: Port = objects::changed(&old, request)?;
        if old.network_id != new.network_id {
            put_on(all, &new, host_of(all, &old)?.unwrap_or_default())?;
        }
        all.put(&new)?;
        unsettle(all, &new)?;
        Ok((old, new))
    })?;
    if let Err(fault) = front.vim.settle_port(&new).await {
        if !fault.may_pass() {
            front.vim.store.write(|all| {
                let port = all.change::<Port>(id, |port| {
                    port.name.clone_from(&old.name);
                    port.network_id = old.network_id;
                    port.admin_state_up = old.admin_state_up;
                })?;
                unsettle(all, &port)
            })?;
            // The host has it so already. What it has refused is not the server's error any more.
            if let Err(why) = front.vim.settle_port(&old).await {
                tracing::warn!(port = old.name, "{}", why.text);
            }
        }
        return Err(fault);
    }
    if let Some(network) = old.network_id.filter(|_| old.network_id != new.network_id) {
        let view = front.vim.store.read()?;
        let host = view.find::<Host>(host_of(&view, &new)?.unwrap_or_default())?;
        if let Some(host) = host {
            front.vim.clear_network(network, &host).await;
        }
    }
    get_port(&front, id)
}

pub async fn remove_port(State(front): State<Front>, Path(port): Path<String>) -> Outcome {
    front.admit("the removal of a port")?;
    let id = id(Port::WORD, &port)?;
    let port: Port = front.vim.store.read()?.get(id)?;
    if port.kind != PortKind::External {
        return Err(Fault::conflict(format!(
            "port {id} is a server's: it goes with its server"
        )));
    }
    front.vim.end_external(&port).await?;
    done(&format!("port {id} deleted"))
}
