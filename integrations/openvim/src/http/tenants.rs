//! Tenants.

use super::content::Content;
use super::front::{Front, Outcome, done, one};
use super::query::{Pairs, Query};
use crate::fault::{Fault, id};
use crate::objects::{self, Flavor, Image, Network, Object, Server, Tenant, seen};
use crate::store::View as _;
use axum::extract::{Path, Query as Pairing, State};

pub async fn list(State(front): State<Front>, Pairing(pairs): Pairing<Pairs>) -> Outcome {
    let query = Query::read::<Tenant>(pairs)?;
    let all = front.vim.store.read()?.all::<Tenant>()?;
    query.answer::<Tenant>(all.iter().map(seen))
}

pub async fn show(State(front): State<Front>, Path(tenant): Path<String>) -> Outcome {
    let id = id(Tenant::WORD, &tenant)?;
    let tenant: Tenant = front.vim.store.read()?.get(id)?;
    one::<Tenant>(seen(&tenant))
}

pub async fn make(State(front): State<Front>, Content(request): Content) -> Outcome {
    front.admit("a new tenant")?;
    let tenant: Tenant = objects::made(request)?;
    front.vim.store.write(|all| all.add(&tenant))?;
    one::<Tenant>(seen(&tenant))
}

pub async fn change(
    State(front): State<Front>,
    Path(tenant): Path<String>,
    Content(request): Content,
) -> Outcome {
    front.admit("a change of a tenant")?;
    let id = id(Tenant::WORD, &tenant)?;
    let tenant = front.vim.store.write(|all| {
        let tenant = objects::changed(&all.get::<Tenant>(id)?, request)?;
        all.put(&tenant)?;
        Ok(tenant)
    })?;
    one::<Tenant>(seen(&tenant))
}

pub async fn remove(State(front): State<Front>, Path(tenant): Path<String>) -> Outcome {
    front.admit("the removal of a tenant")?;
    let id = id(Tenant::WORD, &tenant)?;
    front.vim.store.write(|all| {
        all.get::<Tenant>(id)?;
        if all.all::<Server>()?.iter().any(|it| it.tenant_id == id) {
            return Err(Fault::conflict(format!("tenant {id} has servers")));
        }
        if all
            .all::<Network>()?
            .iter()
            .any(|it| it.tenant_id == Some(id))
        {
            return Err(Fault::conflict(format!("tenant {id} has networks")));
        }
        for mut flavor in all.all::<Flavor>()? {
            if flavor.tenants.remove(&id) {
                all.put(&flavor)?;
            }
        }
        for mut image in all.all::<Image>()? {
            if image.tenants.remove(&id) {
                all.put(&image)?;
            }
        }
        all.remove::<Tenant>(id)
    })?;
    done(&format!("tenant {id} deleted"))
}
