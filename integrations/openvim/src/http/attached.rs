//! Flavors and images.

use super::content::Content;
use super::front::{Front, OfTenant, Outcome, done, linked, one};
use super::query::{Pairs, Query};
use crate::attached::{Attached, is_visible, visible};
use crate::fault::{Fault, id};
use crate::objects::{self, Server};
use crate::store::View as _;
use axum::extract::{Path, Query as Pairing, State};
use axum::http::HeaderMap;

pub async fn list<T: Attached>(
    State(front): State<Front>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    Pairing(pairs): Pairing<Pairs>,
) -> Outcome {
    let owner = front.tenant(&tenant)?;
    let query = Query::read::<T>(pairs)?;
    let all = front.vim.store.read()?.all::<T>()?.into_iter();
    let rows = all.filter_map(|mut it| {
        let is_seen = owner.is_none_or(|owner| is_visible(&mut it, owner));
        is_seen.then(|| linked(&it, &tenant, &headers))
    });
    query.answer::<T>(rows)
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

pub async fn show<T: Attached>(
    State(front): State<Front>,
    Path((tenant, text)): OfTenant,
    headers: HeaderMap,
) -> Outcome {
    let object: T = get_attached(&front, &tenant, &text)?;
    one::<T>(linked(&object, &tenant, &headers))
}

pub async fn make<T: Attached>(
    State(front): State<Front>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    Content(request): Content,
) -> Outcome {
    let owner = front.tenant(&tenant)?;
    let mut object: T = objects::made(request)?;
    object.tenants().extend(owner);
    front.vim.store.write(|all| all.add(&object))?;
    one::<T>(linked(&object, &tenant, &headers))
}

pub async fn change<T: Attached>(
    State(front): State<Front>,
    Path((tenant, text)): OfTenant,
    headers: HeaderMap,
    Content(request): Content,
) -> Outcome {
    let id = get_own::<T>(&front, &tenant, &text)?.id();
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
    one::<T>(linked(&object, &tenant, &headers))
}

pub async fn remove<T: Attached>(State(front): State<Front>, Path(of): OfTenant) -> Outcome {
    detach::<T>(&front, &of)
}

/// Takes an object away from a tenant, or from all; without tenants it is no more.
fn detach<T: Attached>(front: &Front, (tenant, text): &(String, String)) -> Outcome {
    let owner = front.tenant(tenant)?;
    let id = get_own::<T>(front, tenant, text)?.id();
    front.vim.store.write(|all| {
        let mut object: T = all.get(id)?;
        match owner {
            Some(owner) => drop(object.tenants().remove(&owner)),
            None => object.tenants().clear(),
        }
        let is_last = object.tenants().is_empty();
        // Tenants that it is not attached to can have servers of it, where it is public.
        let is_of = |server: &Server| is_last || owner == Some(server.tenant_id);
        let servers = all.all::<Server>()?;
        if servers.iter().any(|it| object.is_used_by(it) && is_of(it)) {
            let word = T::WORD;
            return Err(Fault::conflict(format!("{word} {id} is used by servers")));
        }
        if is_last {
            all.remove_state(id)?;
            all.remove::<T>(id)
        } else {
            all.put(&object)
        }
    })?;
    done(&format!("{} {id} deleted", T::WORD))
}

/// Attaches an object to a tenant, or takes it away.
pub async fn attach<T: Attached>(
    State(front): State<Front>,
    Path((tenant, text, action)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Outcome {
    let owner = front.one_tenant(&tenant)?;
    let id = id(T::WORD, &text)?;
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
            one::<T>(linked(&object, &tenant, &headers))
        }
        "detach" => detach::<T>(&front, &(tenant, text)),
        other => Err(Fault::bad(format!(
            "'{other}' is no action: attach and detach are"
        ))),
    }
}
