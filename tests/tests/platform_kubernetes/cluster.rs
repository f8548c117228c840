//! A cluster with nodes of nfluid: the double of an API server, or Kubernetes' own control plane. Tests speak to both in the same way.

use super::double::{Double, READER};
use axum::http::Request;
use futures_util::StreamExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nfluid_testbed::CannotRun;
use nfluid_testbed::kubernetes::{self, Kubernetes, Manner};
use nfluid_testbed::process::Service;
use nfluid_testbed::program::built;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use nfluid_tls::testing::{Authority, Files};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The pods of the namespace in which tests work.
pub const PODS: &str = "/api/v1/namespaces/default/pods";
/// The ConfigMaps there.
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The chains there.
pub const CHAINS: &str = "/apis/nfluid.io/v1alpha1/namespaces/default/servicechains";
/// The switches and the uplinks of nodes.
pub const SWITCHES: &str = "/apis/nfluid.io/v1alpha1/switches";
pub const UPLINKS: &str = "/apis/nfluid.io/v1alpha1/uplinks";
/// The events there.
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// Who answers requests.
enum Server {
    Double(Arc<Double>),
    Own(Kubernetes),
}

/// A cluster.
pub struct Cluster {
    server: Server,
    runtime: Runtime,
    client: Client,
    /// How agents and the controller find the server.
    agents: PathBuf,
    controllers: PathBuf,
    /// The certificate with which an API server calls nodes.
    caller: Files,
    folder: PathBuf,
}

/// A node: an agent beside a platform's daemon.
pub struct Node {
    name: String,
    command: Box<dyn Fn() -> Command>,
    log: PathBuf,
    agent: Option<Service>,
}

impl Node {
    /// Starts the agent, unless it runs.
    pub fn start(&mut self) {
        if self.agent.is_none() {
            let agent =
                Service::start("nfluid-kubernetes", &mut (self.command)(), self.log.clone());
            self.agent = Some(agent.expect("it starts"));
        }
    }

    /// Ends the agent as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill();
        }
    }
}

fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("a run-time")
}

/// The authority and the certificate of whoever calls nodes.
fn caller(platform: &Platform) -> Files {
    let authority = Authority::new().expect("a key");
    let written = authority.write_user(platform.directory(), "kube-apiserver", "system:masters");
    written.expect("the directory is ours")
}

/// Returns the file by which clients find a server.
fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: t, cluster: {{{server}}}}}]\nusers: [{{name: t, user: {{{user}}}}}]\n\
         contexts: [{{name: t, context: {{cluster: t, user: t}}}}]\ncurrent-context: t\n"
    )
}

impl Cluster {
    /// Creates a cluster whose API server is the double.
    pub fn double(platform: &Platform) -> Self {
        let runtime = runtime();
        let double = Double::new();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("bound");
        let service = Arc::clone(&double).service();
        runtime.spawn(async move { axum::serve(listener, service).await });
        let path = platform.directory().join("kubeconfig");
        let text = kubeconfig(&format!("server: \"http://{address}\""), "");
        fs::write(&path, text).expect("written");
        Self::with(
            Server::Double(double),
            runtime,
            [(); 3].map(|()| path.clone()),
            caller(platform),
            platform,
        )
    }

    /// Creates a cluster with Kubernetes' own control plane; reports the reason and returns `None` if there is none here.
    pub fn own(test: &str, platform: &Platform) -> Option<Self> {
        let programs = match kubernetes::find() {
            Ok(programs) => programs,
            Err(CannotRun(why)) => {
                skip(test, &why);
                return None;
            }
        };
        let caller = caller(platform);
        let folder = platform.directory().join("kubernetes");
        let manner = Manner {
            is_audited: true,
            ..Manner::default()
        };
        let own = Kubernetes::start(programs, folder, (&caller.certificate, &caller.key), manner);
        let own = own.expect("it starts");
        let kubeconfig = own.kubeconfig();
        let deploy =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../integrations/kubernetes/deploy");
        let account = |name: &str| {
            own.account(&deploy, "nfluid-system", name)
                .expect("installed")
        };
        let [agents, controllers] = ["nfluid-agent", "nfluid-controller"].map(account);
        Some(Self::with(
            Server::Own(own),
            runtime(),
            [kubeconfig, agents, controllers],
            caller,
            platform,
        ))
    }

    fn with(
        server: Server,
        runtime: Runtime,
        [kubeconfig, agents, controllers]: [PathBuf; 3],
        caller: Files,
        platform: &Platform,
    ) -> Self {
        let read = Kubeconfig::read_from(&kubeconfig).expect("written above");
        let client = runtime.block_on(async {
            let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
            Client::try_from(config.expect("it fits")).expect("a client")
        });
        Cluster {
            server,
            runtime,
            client,
            agents,
            controllers,
            caller,
            folder: platform.directory().to_owned(),
        }
    }

    /// The API server forgets its history, if a test can make it: whoever watches has to begin again.
    pub fn compact(&self) {
        if let Server::Double(double) = &self.server {
            double.compact();
        }
    }

    /// From now on the controller and the agents hear of pods later than everybody else, if a test can make it.
    pub fn lag(&self, lag: Duration) {
        if let Server::Double(double) = &self.server {
            double.set_lag(lag);
        }
    }

    /// Returns all changes of a collection that the double has seen: what happened, and the object.
    pub fn history(&self, collection: &str) -> Vec<(&'static str, Value)> {
        match &self.server {
            Server::Double(double) => double.history(collection),
            Server::Own(_) => Vec::new(),
        }
    }

    /// Returns the file by which the administrator finds the server.
    pub fn kubeconfig(&self) -> PathBuf {
        match &self.server {
            Server::Double(_) => self.agents.clone(),
            Server::Own(own) => own.kubeconfig(),
        }
    }

    /// Returns the server's log of requests about pods, if there is one.
    pub fn audit_log(&self) -> Option<PathBuf> {
        match &self.server {
            Server::Double(_) => None,
            Server::Own(own) => Some(own.audit_log()),
        }
    }

    /// Runs `kubectl`, if there is one.
    pub fn kubectl(&self, arguments: &[&str]) -> Option<(bool, String)> {
        match &self.server {
            Server::Double(_) => None,
            Server::Own(own) => Some(own.kubectl(arguments).expect("it runs")),
        }
    }

    /// Adds a node: an agent of that name for the platform's daemon.
    pub fn node(&self, platform: &Platform, name: &str) -> Node {
        let program = built("nfluid-kubernetes", "nfluid-kubernetes").expect("it was built");
        let (socket, kubeconfig, authority) = (
            platform.socket(),
            self.agents.clone(),
            self.caller.authority.clone(),
        );
        let node = name.to_owned();
        let command = Box::new(move || {
            let mut command = kubernetes::agent(&program, &node, &socket, &kubeconfig);
            command.arg("--client-ca").arg(&authority);
            command
        });
        let mut node = Node {
            name: name.to_owned(),
            command,
            log: self.folder.join(format!("{name}.log")),
            agent: None,
        };
        node.start();
        eventually("the node is ready", || {
            let found = self
                .get(&format!("/api/v1/nodes/{}", node.name))
                .unwrap_or_default();
            condition(&found, "Ready") == Some("True")
        });
        node
    }

    /// Starts the controller.
    pub fn controller(&self) -> Service {
        self.service("controller", &self.controllers, &[])
    }

    /// Simulates nodes.
    pub fn simulate(&self, arguments: &[&str]) -> Service {
        self.service("simulate", &self.agents, arguments)
    }

    fn service(&self, command: &str, account: &Path, arguments: &[&str]) -> Service {
        let program = built("nfluid-kubernetes", "nfluid-kubernetes").expect("it was built");
        let log = self.folder.join(format!("{command}.log"));
        let mut service = Command::new(&program);
        service.arg(command).arg("--kubeconfig").arg(account);
        service.args(arguments);
        Service::start("nfluid-kubernetes", &mut service, log).expect("it starts")
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<Value, kube::Error> {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(body);
        self.runtime
            .block_on(self.client.request(request.expect("a request")))
    }

    /// Returns an object; `None`: there is none.
    pub fn get(&self, path: &str) -> Option<Value> {
        match self.request("GET", path, "application/json", &Value::Null) {
            Ok(found) => Some(found),
            Err(kube::Error::Api(error)) if error.code == 404 => None,
            Err(error) => panic!("GET {path}: {error}"),
        }
    }

    /// Creates an object in a collection.
    pub fn create(&self, path: &str, object: &Value) -> Value {
        self.request("POST", path, "application/json", object)
            .unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    /// Returns true if an object may be created in a collection; it is not.
    pub fn allows(&self, path: &str, object: &Value) -> bool {
        self.request(
            "POST",
            &format!("{path}?dryRun=All"),
            "application/json",
            object,
        )
        .is_ok()
    }

    /// Changes keys of an object.
    pub fn change(&self, path: &str, patch: &Value) {
        let done = self.request("PATCH", path, "application/merge-patch+json", patch);
        done.unwrap_or_else(|error| panic!("PATCH {path}: {error}"));
    }

    /// Asks for the removal of an object; with `at_once`, without waiting for whoever has to end it.
    pub fn delete(&self, path: &str, at_once: bool) {
        let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
        if at_once {
            options["gracePeriodSeconds"] = 0.into();
        }
        let done = self.request("DELETE", path, "application/json", &options);
        done.unwrap_or_else(|error| panic!("DELETE {path}: {error}"));
    }

    /// Returns a pod.
    pub fn pod(&self, name: &str) -> Value {
        self.get(&format!("{PODS}/{name}")).unwrap_or_default()
    }

    /// Waits until a pod is ready.
    pub fn await_ready(&self, name: &str) {
        eventually(&format!("pod {name} is ready"), || {
            condition(&self.pod(name), "Ready") == Some("True")
        });
    }

    /// Returns the events of a pod: reason and text.
    pub fn events(&self, pod: &str) -> Vec<String> {
        let all = self.get(EVENTS).unwrap_or_default();
        let all = all["items"].as_array().cloned().unwrap_or_default();
        let of_pod = all.iter().filter(|event| event["regarding"]["name"] == pod);
        of_pod
            .map(|event| {
                format!(
                    "{} {}",
                    event["reason"].as_str().unwrap_or_default(),
                    event["note"].as_str().unwrap_or_default()
                )
            })
            .collect()
    }

    /// Returns a client of the agent itself, with the API server's certificate or with a token.
    fn of_agent(&self, node: &Node, token: Option<&str>) -> Client {
        let found = self
            .get(&format!("/api/v1/nodes/{}", node.name))
            .expect("it is there");
        let port = &found["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
        let user = match token {
            Some(token) => format!("token: \"{token}\""),
            None => format!(
                "client-certificate: {}, client-key: {}",
                self.caller.certificate.display(),
                self.caller.key.display()
            ),
        };
        let server =
            format!("server: \"https://127.0.0.1:{port}\", insecure-skip-tls-verify: true");
        let config = Kubeconfig::from_yaml(&kubeconfig(&server, &user)).expect("it fits");
        self.runtime.block_on(async {
            let config =
                Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
            Client::try_from(config.expect("it fits")).expect("a client")
        })
    }

    /// Returns the agent's answer, with its status (0: there is none), to a caller with this token; the API server's certificate without one.
    pub fn ask_agent(&self, node: &Node, path: &str, token: Option<&str>) -> (u16, String) {
        let client = self.of_agent(node, token);
        let request = Request::get(path).body(Vec::new()).expect("a request");
        match self.runtime.block_on(client.request_text(request)) {
            Ok(text) => (200, text),
            Err(kube::Error::Api(error)) => (error.code, error.message.clone()),
            // An agent that has just started is not where the node says yet.
            Err(error) => (0, error.to_string()),
        }
    }

    /// Reads figures of a node with the token of somebody who may.
    pub fn figures(&self, node: &Node) -> String {
        let token = matches!(self.server, Server::Double(_)).then_some(READER);
        let (code, text) = self.ask_agent(node, "/metrics/resource", token);
        assert_eq!(code, 200, "{text}");
        text
    }

    /// Runs a command in a pod's container, as the API server passes it on. Returns whether it succeeded, and its output.
    pub fn exec(
        &self,
        node: &Node,
        (pod, container): (&str, &str),
        words: &[&str],
    ) -> (bool, String) {
        let words: Vec<_> = words.iter().map(|word| format!("command={word}")).collect();
        let options = format!("{}&stdout=true&stderr=true", words.join("&"));
        let (client, path) = match self.server {
            Server::Double(_) => (
                self.of_agent(node, None),
                format!("/exec/default/{pod}/{container}?{options}"),
            ),
            Server::Own(_) => (
                self.client.clone(),
                format!("{PODS}/{pod}/exec?container={container}&{options}"),
            ),
        };
        let request = Request::get(path).body(Vec::new()).expect("a request");
        self.runtime.block_on(async {
            let connected = client.connect(request).await.expect("a connection");
            let mut messages = connected.into_stream();
            let (mut said, mut is_done) = (String::new(), false);
            while let Some(Ok(message)) = messages.next().await {
                let data = message.into_data();
                match data.split_first() {
                    Some((1 | 2, text)) => said.push_str(&String::from_utf8_lossy(text)),
                    Some((3, outcome)) => {
                        let outcome: Value = serde_json::from_slice(outcome).expect("JSON");
                        is_done = outcome["status"] == "Success";
                    }
                    _ => {}
                }
            }
            (is_done, said)
        })
    }
}

/// Returns the status of a condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let mut all = object["status"]["conditions"].as_array()?.iter();
    all.find(|it| it["type"] == kind)?["status"].as_str()
}

/// Returns the status of a pod's container.
pub fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let all = pod["status"]["containerStatuses"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    all.iter()
        .find(|it| it["name"] == name)
        .unwrap_or(&Value::Null)
}
