//! OpenVIM's interface over HTTP: paths, and who may use them.
//!
//! Two routers serve the same objects. That of administrators also makes hosts, tenants and external ports, and knows the tenant `any`.

mod attached;
mod content;
mod front;
mod hosts;
mod networks;
mod query;
mod servers;
mod tenants;

use crate::attached::Attached;
use crate::fault::Fault;
use crate::objects::{Flavor, Image};
use crate::vim::Vim;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::{delete, get, post};
use axum::{Router, middleware};
use content::Answer;
use front::{BASE, Front};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Longest requests, in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Requests that are carried out at a time; later ones wait.
const REQUESTS_MAX: usize = 256;

/// Carries a request out in a task of its own: a client that goes away meanwhile leaves nothing half told.
async fn to_the_end(
    State(places): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Result<Response, Fault> {
    let place = places.acquire_owned().await;
    let task = tokio::spawn(async move {
        let _place = place;
        next.run(request).await
    });
    task.await
        .map_err(|_| Fault::internal("the request ended in the midst: see the log"))
}

/// Returns the router of users, or of administrators.
pub fn router(vim: Arc<Vim>, is_admin: bool) -> Router {
    let paths = Router::new()
        .route("/", get(async || "works"))
        .route("/tenants", get(tenants::list).post(tenants::make))
        .route(
            "/tenants/{id}",
            get(tenants::show)
                .put(tenants::change)
                .delete(tenants::remove),
        )
        .route("/hosts", get(hosts::list).post(hosts::make))
        .route(
            "/hosts/{id}",
            get(hosts::show).put(hosts::change).delete(hosts::remove),
        )
        .route("/networks", get(networks::list).post(networks::make))
        .route(
            "/networks/{id}",
            get(networks::show)
                .put(networks::change)
                .delete(networks::remove),
        )
        // No OpenFlow controller is needed: there are no rules, and nothing is to be done about them.
        .route(
            "/networks/{id}/openflow",
            get(async || Answer(json!({ "openflow-rules": [] })))
                .put(async || Answer(json!({ "result": "0 nets updates" }))),
        )
        .route(
            "/networks/openflow/ports",
            get(async || Answer(json!({ "ports": [] }))),
        )
        .route(
            "/networks/openflow/clear",
            delete(async || Answer(json!({ "result": "nothing to clear" }))),
        )
        .route(
            "/networks/clear/openflow",
            delete(async || Answer(json!({ "result": "nothing to clear" }))),
        )
        .route("/ports", get(networks::ports).post(networks::make_port))
        .route(
            "/ports/{id}",
            get(networks::port)
                .put(networks::change_port)
                .delete(networks::remove_port),
        )
        .route("/{tenant}/servers", get(servers::list).post(servers::make))
        .route(
            "/{tenant}/servers/{id}",
            get(servers::show).delete(servers::remove),
        )
        .route("/{tenant}/servers/{id}/action", post(servers::act))
        .merge(of_tenants::<Flavor>())
        .merge(of_tenants::<Image>());
    Router::new()
        .nest(BASE, paths)
        .route(&format!("{BASE}/"), get(async || "works"))
        .fallback(async || Fault::unknown("this", "path"))
        .method_not_allowed_fallback(async || Fault::not_now("this path has other methods"))
        .with_state(Front { vim, is_admin })
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(middleware::from_fn(content::write))
        .layer(middleware::from_fn_with_state(
            Arc::new(Semaphore::new(REQUESTS_MAX)),
            to_the_end,
        ))
}

/// The paths of objects that are attached to tenants.
fn of_tenants<T: Attached + 'static>() -> Router<Front> {
    let all = format!("/{{tenant}}/{}", T::PLURAL);
    let one = format!("{all}/{{id}}");
    let one_of_them = get(attached::show::<T>)
        .put(attached::change::<T>)
        .delete(attached::remove::<T>);
    Router::new()
        .route(&all, get(attached::list::<T>).post(attached::make::<T>))
        .route(&one, one_of_them)
        .route(&format!("{one}/{{action}}"), post(attached::attach::<T>))
}
