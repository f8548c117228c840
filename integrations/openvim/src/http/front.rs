//! The handlers of all requests share this: the manager, the caller's rights, answers, links.

use super::content::Answer;
use crate::fault::{Fault, id};
use crate::objects::{Object, Tenant, seen};
use crate::store::View as _;
use crate::vim::Vim;
use axum::extract::Path;
use axum::http::HeaderMap;
use axum::http::header::HOST;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The path of all objects.
pub const BASE: &str = "/openvim";
/// The tenant that stands for all.
const ANY: &str = "any";

/// The state of a handler.
#[derive(Clone)]
pub struct Front {
    pub vim: Arc<Vim>,
    pub is_admin: bool,
}

/// The result of a request.
pub type Outcome = Result<Answer, Fault>;

impl Front {
    /// Checks that the caller is an administrator.
    pub fn admit(&self, what: &str) -> Result<(), Fault> {
        if self.is_admin {
            Ok(())
        } else {
            Err(Fault::of_administrators(what))
        }
    }

    /// Returns the tenant in a path; `None`: all.
    pub fn tenant(&self, text: &str) -> Result<Option<Uuid>, Fault> {
        if text == ANY {
            self.admit("the tenant 'any'")?;
            return Ok(None);
        }
        let id = id(Tenant::WORD, text)?;
        self.vim.store.read()?.get::<Tenant>(id)?;
        Ok(Some(id))
    }

    /// Returns the one tenant in a path.
    pub fn one_tenant(&self, text: &str) -> Result<Uuid, Fault> {
        let tenant = self.tenant(text)?;
        tenant.ok_or_else(|| Fault::bad("the tenant 'any' is none for this"))
    }
}

/// Returns an answer about one object.
pub fn one<T: Object>(attributes: Map<String, Value>) -> Outcome {
    Ok(Answer(json!({ T::WORD: attributes })))
}

/// Returns the answer of an action or a removal.
pub fn done(what: &str) -> Outcome {
    Ok(Answer(json!({ "result": what })))
}

/// Returns the links of an object, as the caller reaches this server.
pub fn links(headers: &HeaderMap, path: &str) -> Value {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or("localhost");
    json!([{ "href": format!("http://{host}{BASE}/{path}"), "rel": "bookmark" }])
}

/// The tenant and the object in a path.
pub type OfTenant = Path<(String, String)>;

/// Returns what clients see of an object, with its link.
pub fn linked<T: Object>(object: &T, tenant: &str, headers: &HeaderMap) -> Map<String, Value> {
    let mut row = seen(object);
    let path = format!("{tenant}/{}/{}", T::PLURAL, object.id());
    row.insert("links".to_owned(), links(headers, &path));
    row
}
