//! OpenVIM's interface over HTTP: paths, and who may use them.
//!
//! Two routers serve the same objects. That of administrators also makes hosts, tenants and external ports, and knows the tenant `any`.

mod compute;
mod content;
mod hosts;
mod networks;
mod query;
mod tenants;

use crate::fault::{Fault, id};
use crate::objects::{Object, Tenant};
use crate::store::View as _;
use crate::vim::Vim;
use axum::extract::DefaultBodyLimit;
use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::routing::{delete, get, post};
use axum::{Router, middleware};
use content::Answer;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The path of all objects.
const BASE: &str = "/openvim";
/// Longest requests, in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// The tenant that stands for all.
const ANY: &str = "any";

/// What requests need.
#[derive(Clone)]
pub struct Front {
    vim: Arc<Vim>,
    is_admin: bool,
}

/// The result of a request.
type Outcome = Result<Answer, Fault>;

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
        .route(
            "/{tenant}/flavors",
            get(compute::flavors).post(compute::make_flavor),
        )
        .route(
            "/{tenant}/flavors/{id}",
            get(compute::flavor)
                .put(compute::change_flavor)
                .delete(compute::remove_flavor),
        )
        .route(
            "/{tenant}/flavors/{id}/{action}",
            post(compute::attach_flavor),
        )
        .route(
            "/{tenant}/images",
            get(compute::images).post(compute::make_image),
        )
        .route(
            "/{tenant}/images/{id}",
            get(compute::image)
                .put(compute::change_image)
                .delete(compute::remove_image),
        )
        .route(
            "/{tenant}/images/{id}/{action}",
            post(compute::attach_image),
        )
        .route(
            "/{tenant}/servers",
            get(compute::servers).post(compute::make_server),
        )
        .route(
            "/{tenant}/servers/{id}",
            get(compute::server).delete(compute::remove_server),
        )
        .route("/{tenant}/servers/{id}/action", post(compute::act));
    Router::new()
        .nest(BASE, paths)
        .route(&format!("{BASE}/"), get(async || "works"))
        .fallback(async || Fault::unknown("this", "path"))
        .method_not_allowed_fallback(async || Fault::not_now("this path has other methods"))
        .with_state(Front { vim, is_admin })
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(middleware::from_fn(content::write))
}

impl Front {
    /// Checks that the caller is an administrator.
    fn admit(&self, what: &str) -> Result<(), Fault> {
        if self.is_admin {
            Ok(())
        } else {
            Err(Fault::of_administrators(what))
        }
    }

    /// Returns the tenant in a path; `None`: all.
    fn tenant(&self, text: &str) -> Result<Option<Uuid>, Fault> {
        if text == ANY {
            self.admit("the tenant 'any'")?;
            return Ok(None);
        }
        let id = id(Tenant::WORD, text)?;
        self.vim.store.read()?.get::<Tenant>(id)?;
        Ok(Some(id))
    }

    /// Returns the one tenant in a path.
    fn one_tenant(&self, text: &str) -> Result<Uuid, Fault> {
        let tenant = self.tenant(text)?;
        tenant.ok_or_else(|| Fault::bad("the tenant 'any' is none for this"))
    }
}

/// Returns an answer about one object.
fn one<T: Object>(attributes: Map<String, Value>) -> Outcome {
    Ok(Answer(json!({ T::WORD: attributes })))
}

/// Returns the answer of an action or a removal.
fn done(what: &str) -> Outcome {
    Ok(Answer(json!({ "result": what })))
}

/// Returns the links of an object, as the caller reaches this server.
fn links(headers: &HeaderMap, path: &str) -> Value {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or("localhost");
    json!([{ "href": format!("http://{host}{BASE}/{path}"), "rel": "bookmark" }])
}
