//! Servers.

use super::content::{Answer, Content};
use super::front::{Front, OfTenant, Outcome, done, linked, links, one};
use super::query::{Pairs, Query};
use crate::fault::{Fault, id};
use crate::objects::{Flavor, Image, Object, Port, Server, seen};
use crate::servers::Status;
use crate::store::View as _;
use axum::extract::{Path, Query as Pairing, State};
use axum::http::HeaderMap;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use uuid::Uuid;

pub async fn list(
    State(front): State<Front>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    Pairing(pairs): Pairing<Pairs>,
) -> Outcome {
    let owner = front.tenant(&tenant)?;
    let query = Query::read::<Server>(pairs)?;
    let mut all = front.vim.store.read()?.all::<Server>()?;
    all.retain(|server| owner.is_none_or(|owner| server.tenant_id == owner));
    let statuses = front.vim.statuses(&all).await?;
    let rows = all.iter().map(|server| {
        let mut row = linked(server, &server.tenant_id.to_string(), &headers);
        row.extend(told(server, &statuses));
        row
    });
    query.answer::<Server>(rows)
}

/// Returns what a server is doing, as attributes.
fn told(server: &Server, statuses: &HashMap<Uuid, (Status, Option<String>)>) -> Map<String, Value> {
    let mut row = Map::new();
    if let Some((status, why)) = statuses.get(&server.id) {
        row.insert("status".to_owned(), json!(status));
        row.extend(why.clone().map(|why| ("last_error".to_owned(), why.into())));
    }
    row
}

/// Returns a server of the tenant in a path.
fn get_server(front: &Front, (tenant, text): &(String, String)) -> Result<Server, Fault> {
    let owner = front.tenant(tenant)?;
    let id = id(Server::WORD, text)?;
    let server: Server = front.vim.store.read()?.get(id)?;
    if owner.is_some_and(|owner| server.tenant_id != owner) {
        return Err(Fault::unknown(Server::WORD, id));
    }
    Ok(server)
}

async fn shown(front: &Front, server: &Server, headers: &HeaderMap) -> Outcome {
    let mut row = seen(server);
    // What the daemon says is newer.
    row.remove("last_error");
    let tenant = server.tenant_id;
    for (key, plural, id) in [
        ("flavor", Flavor::PLURAL, server.flavor),
        ("image", Image::PLURAL, server.image),
    ] {
        row.remove(&format!("{key}Ref"));
        let links = links(headers, &format!("{tenant}/{plural}/{id}"));
        row.insert(key.to_owned(), json!({ "id": id, "links": links }));
    }
    let view = front.vim.store.read()?;
    let mut networks = Vec::new();
    for port in &server.ports {
        let Some(port) = view.find::<Port>(*port)? else {
            continue;
        };
        networks.push(json!({
            "iface_id": port.id, "net_id": port.network_id, "mac_address": port.mac_address, "ip_address": null,
            "name": port.name, "vpci": port.vpci, "model": port.model, "bandwidth": port.bandwidth, "type": port.kind,
        }));
    }
    row.insert("networks".to_owned(), networks.into());
    row.extend(told(
        server,
        &front.vim.statuses(std::slice::from_ref(server)).await?,
    ));
    one::<Server>(row)
}

pub async fn show(State(front): State<Front>, Path(of): OfTenant, headers: HeaderMap) -> Outcome {
    let server = get_server(&front, &of)?;
    shown(&front, &server, &headers).await
}

pub async fn make(
    State(front): State<Front>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    Content(request): Content,
) -> Outcome {
    let tenant = front.one_tenant(&tenant)?;
    let id = front.vim.create(tenant, request).await?;
    let server: Server = front.vim.store.read()?.get(id)?;
    shown(&front, &server, &headers).await
}

pub async fn remove(State(front): State<Front>, Path(of): OfTenant) -> Outcome {
    let server = get_server(&front, &of)?;
    front.vim.remove(&server).await?;
    done("deleting in process")
}

pub async fn act(
    State(front): State<Front>,
    Path(of): OfTenant,
    headers: HeaderMap,
    Content(action): Content,
) -> Outcome {
    let server = get_server(&front, &of)?;
    match front.vim.act(server, &action).await? {
        Some(image) => one::<Image>(linked(&image, &of.0, &headers)),
        None => Ok(Answer(json!({ "result": "in process" }))),
    }
}
