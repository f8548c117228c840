//! Access rights of clients over TCP. A client over the UNIX socket may make every request: the socket's permissions keep
//! other users out.

use super::Server;
use super::respond::{Calls, blocking};
use crate::types::{CreateRequest, Problem};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use serde_json::Value;
use std::collections::BTreeMap;
use std::str::FromStr;

/// The requests that a caller may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The caller reads states, figures, events and logs, but no frames, no deployment and no state of an NF.
    Reader,
    /// The caller also makes, changes and removes its own instances: their `owner` is the caller's name, or begins with that
    /// name and `:` or `/`.
    Engine,
    /// The caller may make every request.
    Operator,
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "reader" => Ok(Role::Reader),
            "engine" => Ok(Role::Engine),
            "operator" => Ok(Role::Operator),
            other => Err(format!(
                "'{other}' is no role: reader, engine or operator is expected"
            )),
        }
    }
}

/// The clients that the operator has named, by the DNS name in their certificates.
#[derive(Clone, Debug, Default)]
pub struct Clients(BTreeMap<String, Role>);

impl Clients {
    /// Creates the table. Names are compared in lower case.
    ///
    /// # Errors
    /// The name of a client that is given twice.
    pub fn new(clients: impl IntoIterator<Item = (String, Role)>) -> Result<Self, String> {
        let mut table = BTreeMap::new();
        for (name, role) in clients {
            let name = name.to_ascii_lowercase();
            if table.insert(name.clone(), role).is_some() {
                return Err(name);
            }
        }
        Ok(Clients(table))
    }

    /// Returns the caller whose certificate is for `names`.
    pub fn caller(&self, names: &[String]) -> Caller {
        let mut known = names.iter().filter_map(|name| {
            let role = self.0.get(name)?;
            Some((name, *role))
        });
        match (known.next(), known.next()) {
            (Some((name, role)), None) => Caller::Known {
                name: name.clone(),
                role,
            },
            (None, _) if names.is_empty() => {
                Caller::Unknown("its certificate is for no DNS name".to_owned())
            }
            (None, _) => Caller::Unknown(format!(
                "its certificate is for {}, which is no client of this daemon",
                names.join(", ")
            )),
            (Some((one, _)), Some((other, _))) => Caller::Unknown(format!(
                "its certificate is for two clients, {one} and {other}"
            )),
        }
    }
}

/// A caller over TCP with a certificate of the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A client that the operator has named.
    Known {
        /// The name in its certificate.
        name: String,
        /// The caller's role.
        role: Role,
    },
    /// Another caller, and the reason why the caller is no client. Each of its requests is refused.
    Unknown(String),
}

/// The right that a request needs.
#[derive(Debug, PartialEq, Eq)]
enum Need {
    Looking,
    /// To own the instance that the path names.
    Owning,
    Everything,
}

/// Returns the right that a request for a route needs. A route that is not listed needs [`Need::Everything`].
fn need(method: &Method, route: &str) -> Need {
    let is_view = matches!(*method, Method::GET | Method::HEAD);
    match route {
        "/v1/instances/{name}/image" if is_view => Need::Owning,
        "/v1/deployment" | "/v1/ports/{name}/capture" => Need::Everything,
        _ if is_view => Need::Looking,
        "/v1/instances/{name}"
        | "/v1/instances/{name}/command"
        | "/v1/instances/{name}/restart"
        | "/v1/instances/{name}/pause"
        | "/v1/instances/{name}/unpause"
        | "/v1/instances/{name}/upgrade"
        | "/v1/instances/{name}/scale"
        | "/v1/instances/{name}/migrate" => Need::Owning,
        _ => Need::Everything,
    }
}

impl Caller {
    fn refused(&self, why: &str) -> Problem {
        match self {
            Caller::Known { name, role } => {
                let role = format!("{role:?}").to_lowercase();
                Problem::forbidden(format!("'{name}' has the role {role}: {why}"))
                    .with_remedy("nfluidd --api-client NAME=ROLE gives another role")
            }
            Caller::Unknown(why) => Problem::forbidden(format!("the caller is not known: {why}"))
                .with_remedy("nfluidd --api-client NAME=ROLE names the daemon's clients"),
        }
    }

    /// Returns true if an instance of this owner is the caller's.
    fn owns(&self, owner: Option<&str>) -> bool {
        let (Caller::Known { name, .. }, Some(owner)) = (self, owner) else {
            return false;
        };
        let rest = owner.strip_prefix(name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
    }

    /// Checks a request before its body is read. An instance that does not exist is nobody's: the handler says so, or makes it.
    async fn check<S: Server>(
        &self,
        need: Need,
        instance: Option<String>,
        calls: Calls<S>,
    ) -> Result<(), Problem> {
        let Caller::Known { role, .. } = self else {
            return Err(self.refused(""));
        };
        match (need, role) {
            (_, Role::Operator) | (Need::Looking, _) => Ok(()),
            (Need::Everything, _) => Err(self.refused("this request needs the role operator")),
            (Need::Owning, Role::Reader) => Err(self.refused("it changes nothing")),
            (Need::Owning, Role::Engine) => {
                let name = instance.unwrap_or_default();
                let asked = name.clone();
                let found = blocking(calls, move |server| Ok(server.instance(&asked))).await?;
                match found {
                    Some(found) if !self.owns(found.owner.as_deref()) => {
                        Err(self.refused(&format!("the instance '{name}' is not its own")))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Checks the owners that a new instance has and replaces.
    ///
    /// # Errors
    /// An owner is not the caller.
    pub(super) fn check_new(&self, request: &CreateRequest) -> Result<(), Problem> {
        let Caller::Known { name, role } = self else {
            return Err(self.refused(""));
        };
        let owner = request.instance.get("owner").and_then(Value::as_str);
        let replaced = request.replaces.as_deref();
        let is_own = self.owns(owner) && replaced.is_none_or(|owner| self.owns(Some(owner)));
        if *role == Role::Operator || is_own {
            return Ok(());
        }
        Err(self.refused(&format!(
            "instances that it makes or replaces have the owner '{name}', or one that begins with '{name}:'"
        )))
    }
}

/// Lets a request through if its caller may make it. A request without a caller is refused.
pub(super) async fn admit<S: Server>(
    State(calls): State<Calls<S>>,
    route: Option<MatchedPath>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let nobody = || Caller::Unknown("it has shown no certificate".to_owned());
    let caller = request.extensions().get::<Caller>().cloned();
    let caller = caller.unwrap_or_else(nobody);
    let need = match &route {
        Some(route) => need(request.method(), route.as_str()),
        // There is no such resource: whoever may look may hear that.
        None => Need::Looking,
    };
    let instance = parameters.ok().and_then(|all| {
        let mut all = all.iter();
        all.find(|(key, _)| *key == "name")
            .map(|(_, name)| name.to_owned())
    });
    caller.check(need, instance, calls).await?;
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str, role: Role) -> Caller {
        Caller::Known {
            name: name.to_owned(),
            role,
        }
    }

    // Catches: a prefix without its end, so that 'nomad' owns what is 'nomad2's.
    // promise: 8.12
    #[test]
    fn an_engine_owns_what_begins_with_its_name_and_a_separator() {
        let engine = known("nomad", Role::Engine);
        for owner in ["nomad", "nomad:a/fw/1", "nomad/x"] {
            assert!(engine.owns(Some(owner)), "{owner}");
        }
        for owner in ["nomad2", "nomad2:a", "noma", "", "Nomad", "x:nomad"] {
            assert!(!engine.owns(Some(owner)), "{owner}");
        }
        assert!(!engine.owns(None), "nobody's");
        assert!(!Caller::Unknown(String::new()).owns(Some("")));
    }

    // Catches: names that differ in case are two clients, and the later role is in force.
    // promise: 8.12
    #[test]
    fn a_client_has_one_role() {
        let both = [("Ops", Role::Reader), ("ops", Role::Operator)];
        let both = both.map(|(name, role)| (name.to_owned(), role));
        assert_eq!(Clients::new(both).expect_err("twice"), "ops");
    }

    // promise: 8.12
    #[test]
    fn a_certificate_is_one_client_or_none() {
        let clients = Clients::new([
            ("Nomad".to_owned(), Role::Engine),
            ("grafana".to_owned(), Role::Reader),
        ])
        .expect("each once");
        let caller = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            clients.caller(&names)
        };
        assert_eq!(caller(&["other", "nomad"]), known("nomad", Role::Engine));
        for names in [&[][..], &["other"], &["*"], &["nomad", "grafana"]] {
            assert!(matches!(caller(names), Caller::Unknown(_)), "{names:?}");
        }
    }

    // Catches: a new route that is open to everybody.
    // promise: 8.12
    #[test]
    fn a_change_that_is_not_listed_needs_everything() {
        let post = |route| need(&Method::POST, route);
        assert_eq!(post("/v1/apply"), Need::Everything);
        assert_eq!(post("/v1/functions"), Need::Everything);
        assert_eq!(post("/v1/of_tomorrow"), Need::Everything);
        assert_eq!(need(&Method::DELETE, "/v1/links/{name}"), Need::Everything);
        assert_eq!(need(&Method::GET, "/v1/deployment"), Need::Everything);
        assert_eq!(
            need(&Method::GET, "/v1/ports/{name}/capture"),
            Need::Everything
        );
        assert_eq!(
            need(&Method::GET, "/v1/instances/{name}/image"),
            Need::Owning
        );
        assert_eq!(need(&Method::GET, "/v1/instances"), Need::Looking);
    }
}
