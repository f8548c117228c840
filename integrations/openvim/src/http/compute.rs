//! What tenants have: flavors, images and servers.

use super::content::{Answer, Content};
use super::query::{Pairs, Query};
use super::{Front, Outcome, done, links, one};
use crate::fault::{Fault, id};
use crate::objects::{self, Flavor, Image, Object, Port, Server, seen};
use crate::servers::{Attached, Status, is_visible, visible};
use crate::store::View as _;
use axum::extract::{Path, Query as Pairing, State};
use axum::http::HeaderMap;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use uuid::Uuid;

/// What a request about one object of a tenant names.
type OfTenant = Path<(String, String)>;

fn list_attached<T: Attached>(
    front: &Front,
    tenant: &str,
    headers: &HeaderMap,
    pairs: Pairs,
) -> Outcome {
    let owner = front.tenant(tenant)?;
    let query = Query::read::<T>(pairs)?;
    let all = front.vim.store.read()?.all::<T>()?.into_iter();
    let rows = all.filter_map(|mut it| {
        let is_seen = owner.is_none_or(|owner| is_visible(&mut it, owner));
        is_seen.then(|| linked(&it, tenant, headers))
    });
    query.answer::<T>(rows)
}

/// Returns what clients see of an object, with its link.
fn linked<T: Object>(object: &T, tenant: &str, headers: &HeaderMap) -> Map<String, Value> {
    let mut row = seen(object);
    let path = format!("{tenant}/{}/{}", T::PLURAL, object.id());
    row.insert("links".to_owned(), links(headers, &path));
    row
}

/// Returns an object that the tenant in a path sees.
fn get_attached<T: Attached>(front: &Front, tenant: &str, text: &str) -> Result<T, Fault> {
    let owner = front.tenant(tenant)?;
    let id = id(T::WORD, text)?;
    let view = front.vim.store.read()?;
    match owner {
        Some(owner) => visible(&view, id, owner),
        None => view.get(id),
    }
}

/// Returns an object that the tenant in a path may change: it is attached to him.
fn get_own<T: Attached>(front: &Front, tenant: &str, text: &str) -> Result<T, Fault> {
    let owner = front.tenant(tenant)?;
    let mut object: T = get_attached(front, tenant, text)?;
    match owner {
        Some(owner) if !object.tenants().contains(&owner) => Err(Fault::of_administrators(
            &format!("a {} of others", T::WORD),
        )),
        _ => Ok(object),
    }
}

fn show_attached<T: Attached>(
    front: &Front,
    (tenant, text): &(String, String),
    headers: &HeaderMap,
) -> Outcome {
    let object: T = get_attached(front, tenant, text)?;
    one::<T>(linked(&object, tenant, headers))
}

fn make_attached<T: Attached>(
    front: &Front,
    tenant: &str,
    headers: &HeaderMap,
    request: Value,
) -> Outcome {
    let owner = front.tenant(tenant)?;
    let mut object: T = objects::made(request)?;
    object.tenants().extend(owner);
    front.vim.store.write(|all| all.add(&object))?;
    one::<T>(linked(&object, tenant, headers))
}

fn change_attached<T: Attached>(
    front: &Front,
    (tenant, text): &(String, String),
    headers: &HeaderMap,
    request: Value,
) -> Outcome {
    let id = get_own::<T>(front, tenant, text)?.id();
    let object = front.vim.store.write(|all| {
        let old: T = all.get(id)?;
        let object: T = objects::changed(&old, request)?;
        let is_used = all.all::<Server>()?.iter().any(|it| old.is_used_by(it));
        if is_used && !old.is_alike(&object) {
            let word = T::WORD;
            return Err(Fault::conflict(format!(
                "{word} {id} is used by servers: its name, description and 'public' can change, the rest cannot"
            )));
        }
        all.put(&object)?;
        Ok(object)
    })?;
    one::<T>(linked(&object, tenant, headers))
}

/// Takes an object away from a tenant, or from all; without tenants it is no more.
fn remove_attached<T: Attached>(front: &Front, (tenant, text): &(String, String)) -> Outcome {
    let owner = front.tenant(tenant)?;
    let id = get_own::<T>(front, tenant, text)?.id();
    front.vim.store.write(|all| {
        let mut object: T = all.get(id)?;
        let servers = all.all::<Server>()?;
        let is_of = |server: &Server| owner.is_none_or(|owner| server.tenant_id == owner);
        if servers.iter().any(|it| object.is_used_by(it) && is_of(it)) {
            let word = T::WORD;
            return Err(Fault::conflict(format!("{word} {id} is used by servers")));
        }
        match owner {
            Some(owner) => drop(object.tenants().remove(&owner)),
            None => object.tenants().clear(),
        }
        if object.tenants().is_empty() {
            all.remove::<T>(id)
        } else {
            all.put(&object)
        }
    })?;
    done(&format!("{} {id} deleted", T::WORD))
}

/// Attaches an object to a tenant, or takes it away.
fn attach<T: Attached>(
    front: &Front,
    (tenant, text, action): &(String, String, String),
    headers: &HeaderMap,
) -> Outcome {
    let owner = front.one_tenant(tenant)?;
    let id = id(T::WORD, text)?;
    match action.as_str() {
        "attach" => {
            let object = front.vim.store.write(|all| {
                let mut object: T = all.get(id)?;
                // A tenant that could attach what it does not see would see all.
                if !front.is_admin && !is_visible(&mut object, owner) {
                    return Err(Fault::unknown(T::WORD, id));
                }
                object.tenants().insert(owner);
                all.put(&object)?;
                Ok(object)
            })?;
            one::<T>(linked(&object, tenant, headers))
        }
        "detach" => remove_attached::<T>(front, &(tenant.clone(), text.clone())),
        other => Err(Fault::bad(format!(
            "'{other}' is no action: attach and detach are"
        ))),
    }
}

pub async fn flavors(
    State(front): State<Front>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    Pairing(pairs): Pairing<Pairs>,
) -> Outcome {
    list_attached::<Flavor>(&front, &tenant, &headers, pairs)
}

pub async fn flavor(State(front): State<Front>, Path(of): OfTenant, headers: HeaderMap) -> Outcome {
    show_attached::<Flavor>(&front, &of, &headers)
}

pub async fn make_flavor(
    State(front): State<Front>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    Content(request): Content,
) -> Outcome {
    make_attached::<Flavor>(&front, &tenant, &headers, request)
}

pub async fn change_flavor(
    State(front): State<Front>,
    Path(of): OfTenant,
    headers: HeaderMap,
    Content(request): Content,
) -> Outcome {
    change_attached::<Flavor>(&front, &of, &headers, request)
}

pub async fn remove_flavor(State(front): State<Front>, Path(of): OfTenant) -> Outcome {
    remove_attached::<Flavor>(&front, &of)
}

pub async fn attach_flavor(
    State(front): State<Front>,
    Path(of): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Outcome {
    attach::<Flavor>(&front, &of, &headers)
}

pub async fn images(
    State(front): State<Front>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    Pairing(pairs): Pairing<Pairs>,
) -> Outcome {
    list_attached::<Image>(&front, &tenant, &headers, pairs)
}

pub async fn image(State(front): State<Front>, Path(of): OfTenant, headers: HeaderMap) -> Outcome {
    show_attached::<Image>(&front, &of, &headers)
}

pub async fn make_image(
    State(front): State<Front>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    Content(request): Content,
) -> Outcome {
    make_attached::<Image>(&front, &tenant, &headers, request)
}

pub async fn change_image(
    State(front): State<Front>,
    Path(of): OfTenant,
    headers: HeaderMap,
    Content(request): Content,
) -> Outcome {
    change_attached::<Image>(&front, &of, &headers, request)
}

pub async fn remove_image(State(front): State<Front>, Path(of): OfTenant) -> Outcome {
    remove_attached::<Image>(&front, &of)
}

pub async fn attach_image(
    State(front): State<Front>,
    Path(of): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Outcome {
    attach::<Image>(&front, &of, &headers)
}

pub async fn servers(
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

pub async fn server(State(front): State<Front>, Path(of): OfTenant, headers: HeaderMap) -> Outcome {
    let server = get_server(&front, &of)?;
    shown(&front, &server, &headers).await
}

pub async fn make_server(
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

pub async fn remove_server(State(front): State<Front>, Path(of): OfTenant) -> Outcome {
    let server = get_server(&front, &of)?;
    front.vim.remove(&server).await?;
    done("deleting in process")
}

pub async fn act(
    State(front): State<Front>,
    Path(of): OfTenant,
    Content(action): Content,
) -> Outcome {
    let server = get_server(&front, &of)?;
    front.vim.act(server, &action).await?;
    Ok(Answer(json!({ "result": "in process" })))
}
