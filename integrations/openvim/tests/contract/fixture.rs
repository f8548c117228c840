//! A manager over simulated hosts, and clients of it.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use nfluid_api::client::Client;
use nfluid_api::types::{InstanceStatus, SwitchStatus, UplinkStatus};
use nfluid_engine::simulated::{Description, SimulatedHost, Size};
use nfluid_openvim::hosts::Hosts;
use nfluid_openvim::http::router;
use nfluid_openvim::store::Store;
use nfluid_openvim::vim::Vim;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tower::ServiceExt as _;

/// A manager, its database, and the folder of its hosts' sockets.
pub struct Fixture {
    pub folder: TempDir,
    pub vim: Arc<Vim>,
}

/// Opens the manager of a folder's database, as a new process would.
fn manager(folder: &Path) -> Arc<Vim> {
    let store = Store::open(&folder.join("openvim.redb")).map_err(|it| it.text);
    let store = store.expect("nobody else has it");
    Arc::new(Vim::new(store, Hosts::default(), "openvim".to_owned()))
}

impl Fixture {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let vim = manager(folder.path());
        Fixture { folder, vim }
    }

    /// Starts anew, with what is on the disk.
    pub fn restarted(self) -> Self {
        let Fixture { folder, vim } = self;
        drop(Arc::into_inner(vim).expect("nobody else has the manager"));
        let vim = manager(folder.path());
        Fixture { folder, vim }
    }

    pub fn socket(&self, host: &str) -> PathBuf {
        self.folder.path().join(format!("{host}.sock"))
    }

    /// Starts a host in memory.
    pub fn start(&self, host: &str, cpus: u32) -> Client {
        let description = Description {
            size: Size {
                cpus,
                memory_bytes: 4 << 30,
            },
            nfs: ["bridge", "firewall", "router"].map(str::to_owned).to_vec(),
            labels: Default::default(),
        };
        let simulated = SimulatedHost::new(description).expect("a host");
        let listener = UnixListener::bind(self.socket(host)).expect("a socket");
        tokio::spawn(Arc::new(simulated).serve(listener));
        Client::new(self.socket(host))
    }

    /// Makes a host known.
    pub async fn add_host(&self, name: &str) -> String {
        let host = json!({ "name": name, "ip_name": self.socket(name), "user": "nobody" });
        self.made("hosts", "host", host).await
    }

    pub fn users(&self) -> Router {
        router(Arc::clone(&self.vim), false)
    }

    pub fn administrators(&self) -> Router {
        router(Arc::clone(&self.vim), true)
    }

    /// Makes an object as an administrator, and returns its id.
    pub async fn made(&self, path: &str, word: &str, object: Value) -> String {
        let (status, answer) = ask(
            &self.administrators(),
            "POST",
            path,
            Some(json!({ word: object })),
        )
        .await;
        assert_eq!(status, 200, "{path}: {answer}");
        the_one(&answer, word)["id"]
            .as_str()
            .expect("an id")
            .to_owned()
    }

    /// Makes a tenant with a flavor and an image, and returns the three ids.
    pub async fn tenant(&self) -> [String; 3] {
        let tenant = self
            .made("tenants", "tenant", json!({ "name": "acme" }))
            .await;
        let flavor = json!({ "name": "small", "ram": 64, "vcpus": 1, "extended": { "nfluid": { "share": "10%" } } });
        let flavor = self
            .made(&format!("{tenant}/flavors"), "flavor", flavor)
            .await;
        let image = json!({ "name": "bridge", "path": "/nf/bridge" });
        let image = self.made(&format!("{tenant}/images"), "image", image).await;
        [tenant, flavor, image]
    }
}

/// Returns the object in an answer, which has nothing else.
pub fn the_one<'a>(answer: &'a Value, word: &str) -> &'a Value {
    let all = answer.as_object().expect("an object");
    assert!(all.len() == 1 && all.contains_key(word), "{word}: {answer}");
    &answer[word]
}

/// Sends a request, and returns the status and the content of the answer.
pub async fn ask(
    router: &Router,
    method: &str,
    path: &str,
    content: Option<Value>,
) -> (u16, Value) {
    let body = content.map_or_else(Body::empty, |it| Body::from(it.to_string()));
    let request = Request::builder()
        .method(method)
        .uri(format!("/openvim/{path}"))
        .header("Accept", "application/json")
        .header("Content-Type", "application/json")
        .header("Host", "vim.example:9080");
    let (status, text) = send(router, request.body(body).expect("a request")).await;
    let content = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status.as_u16(), content)
}

pub async fn send(router: &Router, request: Request<Body>) -> (StatusCode, String) {
    let answer = router.clone().oneshot(request).await.expect("it answers");
    let status = answer.status();
    let body = answer.into_body().collect().await.expect("a whole answer");
    let text = String::from_utf8(body.to_bytes().to_vec()).expect("a text");
    (status, text)
}

/// Returns a part of what a host has.
async fn names<T: serde::de::DeserializeOwned>(
    host: &Client,
    path: &str,
    name: impl Fn(T) -> String,
) -> Vec<String> {
    let all: Vec<T> = host.get(path).await.expect("the host answers");
    all.into_iter().map(name).collect()
}

pub async fn instances(host: &Client) -> Vec<String> {
    names(host, "/v1/instances", |it: InstanceStatus| it.name).await
}

/// Returns the names of a host's instances, switches and uplinks.
pub async fn everything(host: &Client) -> Vec<String> {
    let mut all = instances(host).await;
    all.extend(names(host, "/v1/switches", |it: SwitchStatus| it.name).await);
    all.extend(names(host, "/v1/uplinks", |it: UplinkStatus| it.name).await);
    all
}

pub fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// Returns the request for a server of a flavor and an image, with further attributes or others.
pub fn server([flavor, image]: [&str; 2], other: Value) -> Value {
    let mut server = json!({ "name": "s", "flavorRef": flavor, "imageRef": image });
    for (key, value) in other.as_object().expect("attributes") {
        server[key] = value.clone();
    }
    json!({ "server": server })
}
