//! Hosts.

use super::content::Content;
use super::front::{Front, Outcome, done, links, one};
use super::query::{Pairs, Query};
use crate::fault::{Fault, id};
use crate::hosts::at_once;
use crate::objects::{self, Host, Network, Object, Port, Server, Wanted, seen};
use crate::store::View as _;
use axum::extract::{Path, Query as Pairing, State};
use axum::http::HeaderMap;
use nfluid_api::types::Capacity;
use serde_json::{Map, Value, json};

/// Bytes of the unit in which a host's memory is told.
const GIB: u64 = 1 << 30;

/// Returns what clients see of a host that has answered so.
fn shown(host: &Host, capacity: &Result<Capacity, Fault>) -> Map<String, Value> {
    let mut row = seen(host);
    match capacity {
        Ok(capacity) => {
            row.insert("status".to_owned(), "ok".into());
            // Clients take every two threads for a core.
            let cores = capacity.cpus.iter().enumerate();
            let cores: Vec<Value> = cores
                .map(|(at, cpu)| json!({ "core_id": at / 2, "thread_id": cpu }))
                .collect();
            let memory = capacity.memory_bytes;
            let numas = json!([{
                "numa_socket": 0, "memory": memory.total / GIB, "cores": cores, "interfaces": [],
                "hugepages": memory.total / GIB, "hugepages_consumed": memory.used.div_ceil(GIB),
            }]);
            row.insert("numas".to_owned(), numas);
            row.insert("nfluid".to_owned(), json!(capacity));
        }
        Err(fault) => {
            row.insert("status".to_owned(), "error".into());
            row.insert("last_error".to_owned(), fault.text.as_str().into());
        }
    }
    row
}

pub async fn list(
    State(front): State<Front>,
    headers: HeaderMap,
    Pairing(pairs): Pairing<Pairs>,
) -> Outcome {
    let query = Query::read::<Host>(pairs)?;
    let all = front.vim.store.read()?.all::<Host>()?;
    let asked = all.into_iter().map(|host| {
        let hosts = front.vim.hosts.clone();
        let links = links(&headers, &format!("hosts/{}", host.id));
        async move {
            let capacity = hosts.capacity(&host).await;
            let mut row = shown(&host, &capacity);
            row.insert("links".to_owned(), links);
            row
        }
    });
    query.answer::<Host>(at_once(asked).await)
}

pub async fn show(State(front): State<Front>, Path(host): Path<String>) -> Outcome {
    let id = id(Host::WORD, &host)?;
    let host: Host = front.vim.store.read()?.get(id)?;
    let capacity = front.vim.hosts.capacity(&host).await;
    one::<Host>(shown(&host, &capacity))
}

pub async fn make(State(front): State<Front>, Content(mut request): Content) -> Outcome {
    front.admit("a new host")?;
    // What a host has, its daemon says.
    if let Some(all) = request.as_object_mut() {
        all.remove("host-data");
    }
    let host: Host = objects::made(request)?;
    front.vim.hosts.client(&host)?;
    front.vim.store.write(|all| {
        let others = all.all::<Host>()?;
        if let Some(other) = others.iter().find(|it| it.ip_name == host.ip_name) {
            let address = &host.ip_name;
            return Err(Fault::conflict(format!(
                "{address} is host {} already",
                other.name
            )));
        }
        if others.iter().any(|other| other.name == host.name) {
            return Err(Fault::conflict(format!(
                "a host is named {} already",
                host.name
            )));
        }
        all.add(&host)
    })?;
    let capacity = front.vim.hosts.capacity(&host).await;
    one::<Host>(shown(&host, &capacity))
}

pub async fn change(
    State(front): State<Front>,
    Path(host): Path<String>,
    Content(request): Content,
) -> Outcome {
    front.admit("a change of a host")?;
    let id = id(Host::WORD, &host)?;
    let host = front.vim.store.write(|all| {
        let host: Host = objects::changed(&all.get::<Host>(id)?, request)?;
        front.vim.hosts.client(&host)?;
        all.put(&host)?;
        Ok(host)
    })?;
    let capacity = front.vim.hosts.capacity(&host).await;
    one::<Host>(shown(&host, &capacity))
}

pub async fn remove(State(front): State<Front>, Path(host): Path<String>) -> Outcome {
    front.admit("the removal of a host")?;
    let id = id(Host::WORD, &host)?;
    let host: Host = front.vim.store.read()?.get(id)?;
    let mut networks = front.vim.store.read()?.all::<Network>()?;
    networks.retain(|network| network.hosts.contains_key(&id));
    for network in networks {
        front.vim.clear_network(network.id, &host).await;
    }
    // What is on a host that does not answer stays there, and is no more here.
    let is_away = front.vim.hosts.capacity(&host).await.is_err();
    front.vim.store.write(|all| {
        for server in all.all::<Server>()?.into_iter().filter(|it| it.host == id) {
            if !(is_away && server.wanted == Wanted::Gone) {
                return Err(Fault::conflict(format!(
                    "host {} has servers: delete them first",
                    host.name
                )));
            }
            for port in server.ports {
                all.remove::<Port>(port)?;
            }
            all.remove::<Server>(server.id)?;
        }
        for port in all.all::<Port>()?.into_iter().filter(|it| it.host == Some(id)) {
            if !is_away {
                return Err(Fault::conflict(format!(
                    "host {} has external ports: delete them first",
                    host.name
                )));
            }
            all.remove::<Port>(port.id)?;
        }
        for mut network in all.all::<Network>()? {
            if network.hub() == Some(id) && network.hosts.len() > 1 {
                return Err(Fault::conflict(format!(
                    "host {} is in the middle of network {}: delete the servers on that network first",
                    host.name, network.name
                )));
            }
            if network.hosts.remove(&id).is_some() {
                all.put(&network)?;
            }
        }
        all.remove::<Host>(id)
    })?;
    done(&format!("host {id} deleted"))
}
