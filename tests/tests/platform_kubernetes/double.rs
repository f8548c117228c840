//! A double of Kubernetes' API server: it keeps objects of any kind, tells watchers of changes, and knows two callers by their tokens. It schedules
//! nothing and checks no schema.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The tokens of callers of nodes: what the first may do is reading figures.
pub const READER: &str = "token-of-a-reader";
const STRANGER: &str = "token-of-a-stranger";

/// A change, for watchers.
#[derive(Clone, Debug)]
struct Change {
    version: u64,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    what: &'static str,
    collection: String,
    object: Value,
}

#[derive(Debug, Default)]
struct Store {
    version: u64,
    /// By collection (`pods`), namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    changes: Vec<Change>,
    /// Changes before this version are forgotten: their watchers have to begin again.
    oldest: u64,
}

/// The API server.
#[derive(Debug)]
pub struct Double {
    store: Mutex<Store>,
    changed: watch::Sender<u64>,
    /// How much later whoever selects pods hears of them.
    lag: Mutex<Duration>,
}

/// The place of an object or a collection in a path.
#[derive(Debug, Default)]
struct Place {
    collection: String,
    namespace: String,
    name: Option<String>,
    is_status: bool,
}

fn place(path: &str) -> Option<Place> {
    let mut parts = path.split('/').skip(1);
    match parts.next()? {
        "api" => parts.next()?,
        "apis" => parts.nth(1)?,
        _ => return None,
    };
    let mut place = Place::default();
    let mut rest: Vec<_> = parts.collect();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        place.namespace = rest[1].to_owned();
        rest.drain(..2);
    }
    place.collection = (*rest.first()?).to_owned();
    place.name = rest.get(1).map(|name| (*name).to_owned());
    place.is_status = rest.get(2) == Some(&"status");
    Some(place)
}

impl Double {
    /// Creates a server with the namespaces that every cluster has.
    pub fn new() -> Arc<Self> {
        let double = Arc::new(Double {
            store: Mutex::default(),
            changed: watch::Sender::new(0),
            lag: Mutex::default(),
        });
        for name in ["default", "kube-system", "kube-node-lease"] {
            double.write("namespaces", "", json!({ "metadata": { "name": name } }));
        }
        double
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, whoever selects pods by labels or fields, as controllers and agents do, hears of them later than everybody
    /// else.
    pub fn set_lag(&self, lag: Duration) {
        *self.lag.lock().unwrap_or_else(PoisonError::into_inner) = lag;
    }

    /// Returns all changes of a collection since the last compaction: what happened, and the object.
    pub fn history(&self, collection: &str) -> Vec<(&'static str, Value)> {
        let store = self.store();
        let changes = store.changes.iter();
        let of_collection = changes.filter(|change| change.collection == collection);
        of_collection
            .map(|change| (change.what, change.object.clone()))
            .collect()
    }

    /// Forgets all changes, as a server does that has compacted its history: whoever watches has to list anew.
    pub fn compact(&self) {
        let mut store = self.store();
        store.version += 1;
        store.oldest = store.version;
        store.changes.clear();
        self.changed.send_replace(store.version);
    }

    /// Returns the service.
    pub fn service(self: Arc<Self>) -> Router {
        Router::new().fallback(answer).with_state(self)
    }

    fn write(&self, collection: &str, namespace: &str, mut object: Value) -> Value {
        let mut store = self.store();
        store.version += 1;
        let version = store.version;
        let metadata = &mut object["metadata"];
        if metadata["name"].is_null() {
            let prefix = metadata["generateName"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            metadata["name"] = format!("{prefix}{version}").into();
        }
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("{version:08x}-0000-4000-8000-000000000000").into();
        }
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        metadata["resourceVersion"] = version.to_string().into();
        let key = (
            collection.to_owned(),
            namespace.to_owned(),
            metadata["name"].as_str().unwrap_or_default().to_owned(),
        );
        let known = store.objects.insert(key, object.clone());
        self.note(
            &mut store,
            if known.is_some() { "MODIFIED" } else { "ADDED" },
            collection,
            &object,
        );
        object
    }

    fn note(&self, store: &mut Store, what: &'static str, collection: &str, object: &Value) {
        let change = Change {
            version: store.version,
            what,
            collection: collection.to_owned(),
            object: object.clone(),
        };
        store.changes.push(change);
        self.changed.send_replace(store.version);
    }

    fn get(&self, place: &Place) -> Option<Value> {
        let key = (
            place.collection.clone(),
            place.namespace.clone(),
            place.name.clone()?,
        );
        self.store().objects.get(&key).cloned()
    }

    fn delete(&self, place: &Place, options: &Value) -> Response {
        let Some(mut object) = self.get(place) else {
            return failure(404, "NotFound");
        };
        let expected = &options["preconditions"]["uid"];
        if !expected.is_null() && *expected != object["metadata"]["uid"] {
            return failure(409, "Conflict");
        }
        // A pod that is bound stays until its node has ended it.
        let is_bound = place.collection == "pods" && !object["spec"]["nodeName"].is_null();
        if is_bound && options["gracePeriodSeconds"] != 0 {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            return done(self.write(&place.collection, &place.namespace, object));
        }
        let mut store = self.store();
        store.version += 1;
        let key = (
            place.collection.clone(),
            place.namespace.clone(),
            place.name.clone().unwrap_or_default(),
        );
        store.objects.remove(&key);
        object["metadata"]["resourceVersion"] = store.version.to_string().into();
        self.note(&mut store, "DELETED", &place.collection, &object);
        done(object)
    }

    /// Binds a pod that names no node to the one that has the fewest, those that are about to go not counted.
    fn schedule(&self, pod: &mut Value) {
        if !pod["spec"]["nodeName"].is_null() {
            return;
        }
        let store = self.store();
        let of = |wanted: &str| {
            let of_kind = store
                .objects
                .iter()
                .filter(move |((kind, ..), _)| kind == wanted);
            of_kind.map(|(_, object)| object).collect::<Vec<_>>()
        };
        let pods = of("pods");
        let nodes = of("nodes");
        let stays = |pod: &&&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let load = |node: &Value| {
            let of_node = pods.iter().filter(|pod| pod["spec"]["nodeName"] == *node);
            of_node.filter(stays).count()
        };
        let names = nodes.iter().map(|node| &node["metadata"]["name"]);
        if let Some(node) = names.min_by_key(|node| load(node)) {
            pod["spec"]["nodeName"] = node.clone();
        }
    }

    fn list(&self, place: &Place, selector: &Selector) -> Response {
        let store = self.store();
        let items: Vec<_> = store
            .objects
            .iter()
            .filter(|((collection, namespace, _), object)| {
                let is_there = place.namespace.is_empty() || *namespace == place.namespace;
                *collection == place.collection && is_there && selector.selects(object)
            })
            .map(|(_, object)| object.clone())
            .collect();
        done(
            json!({ "metadata": { "resourceVersion": store.version.to_string() }, "items": items }),
        )
    }

    /// Tells changes after a version, for ever.
    fn watch(self: Arc<Self>, place: Place, selector: Selector, since: u64) -> Response {
        let mut changed = self.changed.subscribe();
        let selects = !selector.labels.is_empty() || !selector.fields.is_empty();
        let is_late = place.collection == "pods" && selects;
        let stream = async_stream(move |sender| async move {
            let mut since = since;
            loop {
                let (lines, is_over) = {
                    let store = self.store();
                    let is_over = since < store.oldest;
                    let new = store.changes.iter().filter(|change| change.version > since);
                    let of_place = new.filter(|change| {
                        let is_there = place.namespace.is_empty()
                            || change.object["metadata"]["namespace"] == place.namespace.as_str();
                        change.collection == place.collection
                            && is_there
                            && selector.selects(&change.object)
                    });
                    let line =
                        |change: &Change| json!({ "type": change.what, "object": change.object });
                    let lines: Vec<_> = of_place.map(line).collect();
                    since = store.version;
                    (lines, is_over)
                };
                if is_over {
                    let gone = json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410, "reason": "Expired", "status": "Failure", "message": "too old" } });
                    let _gone = sender.send(gone).await;
                    return;
                }
                let lag = *self.lag.lock().unwrap_or_else(PoisonError::into_inner);
                if is_late && !lines.is_empty() {
                    tokio::time::sleep(lag).await;
                }
                for line in lines {
                    if sender.send(line).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    _ = changed.changed() => {}
                    () = sender.closed() => return,
                }
            }
        });
        Body::from_stream(stream).into_response()
    }
}

/// Returns what a task sends, as lines of JSON.
fn async_stream<F: Future<Output = ()> + Send + 'static>(
    task: impl FnOnce(tokio::sync::mpsc::Sender<Value>) -> F,
) -> impl futures_util::Stream<Item = Result<Bytes, std::convert::Infallible>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    tokio::spawn(task(sender));
    futures_util::stream::unfold(receiver, async |mut receiver| {
        let value: Value = receiver.recv().await?;
        Some((Ok(Bytes::from(format!("{value}\n"))), receiver))
    })
}

/// Which objects of a collection are asked for.
struct Selector {
    fields: String,
    labels: String,
}

impl Selector {
    fn selects(&self, object: &Value) -> bool {
        let equations = |text: &str| -> Vec<(String, String)> {
            let terms = text.split(',').filter(|term| !term.is_empty());
            let sides = terms.map(|term| term.split_once('=').expect("an equation"));
            sides
                .map(|(left, right)| (left.to_owned(), right.to_owned()))
                .collect()
        };
        let fields = equations(&self.fields);
        let labels = equations(&self.labels);
        let field = |path: &str| {
            path.split('.')
                .fold(object, |object, key| &object[key])
                .clone()
        };
        let label = |key: &str| object["metadata"]["labels"][key].clone();
        fields
            .iter()
            .all(|(path, value)| field(path) == value.as_str())
            && labels
                .iter()
                .all(|(key, value)| label(key) == value.as_str())
    }
}

fn done(object: Value) -> Response {
    axum::Json(object).into_response()
}

fn failure(code: u16, reason: &str) -> Response {
    let status = json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason });
    let code = StatusCode::from_u16(code).expect("a code");
    (code, axum::Json(status)).into_response()
}

/// Merges a patch into an object (RFC 7396). Conditions and addresses of a strategic patch are sent whole here.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    for (key, value) in patch {
        if value.is_null() {
            object.as_object_mut().expect("made above").remove(key);
        } else {
            merge(&mut object[key.as_str()], value);
        }
    }
}

/// Says who the caller of a node is, and what the caller may do.
fn review(collection: &str, mut review: Value) -> Response {
    let spec = &review["spec"];
    review["status"] = match collection {
        "tokenreviews" if spec["token"] == READER => {
            json!({ "authenticated": true, "user": { "username": "reader" } })
        }
        "tokenreviews" if spec["token"] == STRANGER => {
            json!({ "authenticated": true, "user": { "username": "stranger" } })
        }
        "tokenreviews" => json!({ "authenticated": false }),
        _ => {
            let attributes = &spec["resourceAttributes"];
            let is_master = spec["groups"]
                .as_array()
                .is_some_and(|all| all.contains(&json!("system:masters")));
            let reads = spec["user"] == "reader"
                && attributes["subresource"] == "metrics"
                && attributes["verb"] == "get";
            json!({ "allowed": is_master || reads })
        }
    };
    done(review)
}

async fn answer(
    State(double): State<Arc<Double>>,
    method: Method,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
    body: Bytes,
) -> Response {
    if uri.path() == "/api/v1" {
        let pods = json!({ "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ["create", "delete", "get", "list", "watch"] });
        return done(
            json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": [pods] }),
        );
    }
    let Some(place) = place(uri.path()) else {
        return failure(404, "NotFound");
    };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |key: &str| query.get(key).cloned().unwrap_or_default();
    let selector = Selector {
        fields: text("fieldSelector"),
        labels: text("labelSelector"),
    };
    match (method, &place.name) {
        (Method::GET, None) if query.contains_key("watch") => {
            let since = query
                .get("resourceVersion")
                .and_then(|version| version.parse().ok());
            double.watch(place, selector, since.unwrap_or(0))
        }
        (Method::GET, None) => double.list(&place, &selector),
        (Method::GET, Some(_)) => double
            .get(&place)
            .map_or_else(|| failure(404, "NotFound"), done),
        (Method::POST, None) if place.collection.ends_with("reviews") => {
            review(&place.collection, body)
        }
        (Method::POST, None) => {
            let mut body = body;
            body["metadata"]["generation"] = 1.into();
            let named = Place {
                name: body["metadata"]["name"].as_str().map(str::to_owned),
                ..place
            };
            if double.get(&named).is_some() {
                return failure(409, "AlreadyExists");
            }
            if named.collection == "pods" {
                double.schedule(&mut body);
            }
            done(double.write(&named.collection, &named.namespace, body))
        }
        (Method::PUT, Some(_)) => match double.get(&place) {
            None => failure(404, "NotFound"),
            Some(known)
                if known["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] =>
            {
                failure(409, "Conflict")
            }
            Some(_) => done(double.write(&place.collection, &place.namespace, body)),
        },
        (Method::PATCH, Some(_)) => {
            let Some(mut object) = double.get(&place) else {
                return failure(404, "NotFound");
            };
            let expected = &body["metadata"]["uid"];
            if !expected.is_null() && *expected != object["metadata"]["uid"] {
                return failure(409, "Conflict");
            }
            let before = object.clone();
            if place.is_status {
                merge(&mut object["status"], &body["status"]);
            } else {
                merge(&mut object, &body);
                if object["spec"] != before["spec"] {
                    let generation = before["metadata"]["generation"].as_u64().unwrap_or(1);
                    object["metadata"]["generation"] = (generation + 1).into();
                }
            }
            if object == before {
                return done(object);
            }
            done(double.write(&place.collection, &place.namespace, object))
        }
        (Method::DELETE, Some(_)) => double.delete(&place, &body),
        _ => failure(405, "MethodNotAllowed"),
    }
}
