//! A server with OpenVIM's interface, `nfluid-openvim`, as a process of a test's or an experiment's own.

use crate::http;
use crate::port::free_ports;
use crate::process::{Service, signal};
use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time after which a server will not serve.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server; ended when dropped. Its database stays in its folder.
#[derive(Debug)]
pub struct OpenVim {
    program: PathBuf,
    folder: PathBuf,
    arguments: Vec<String>,
    /// The ports of users and of administrators.
    ports: [u16; 2],
    service: Option<Service>,
}

impl OpenVim {
    /// Prepares a server with its database in `folder`, and further arguments.
    ///
    /// # Errors
    /// No port is free.
    pub fn new(program: PathBuf, folder: &Path, arguments: Vec<String>) -> anyhow::Result<Self> {
        Ok(OpenVim {
            program,
            folder: folder.to_owned(),
            arguments,
            ports: free_ports()?,
            service: None,
        })
    }

    /// Starts the server, and waits until it serves.
    ///
    /// # Errors
    /// The server ends, or does not serve in time.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let [users, administrators] = self.ports.map(|port| format!("127.0.0.1:{port}"));
        let mut command = Command::new(&self.program);
        command
            .args(["--listen", &users, "--admin-listen", &administrators])
            .arg("--database")
            .arg(self.folder.join("openvim.redb"))
            .args(&self.arguments);
        let log = self.folder.join("openvim.log");
        let service = Service::start("nfluid-openvim", &mut command, log)?;
        let server = self.server();
        let service = self.service.insert(service);
        service.await_service(PATIENCE, || {
            http::request(server, "GET", "/openvim/", &Value::Null).is_ok()
        })
    }

    /// Kills the server, and does not wait for its end.
    pub fn crash(&self) {
        if let Some(service) = &self.service {
            signal(service.pid(), Signal::KILL);
        }
    }

    /// Ends the server as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut service) = self.service.take() {
            service.kill();
        }
    }

    fn server(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports[1]).into()
    }

    /// Returns the address of administrators.
    pub fn administrators(&self) -> String {
        format!("http://127.0.0.1:{}/openvim", self.ports[1])
    }

    /// Sends a request of an administrator, and returns status and answer.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        let path = format!("/openvim/{path}");
        let (status, text) = http::request(self.server(), method, &path, body)?;
        let answer = serde_json::from_str(&text).with_context(|| text.clone())?;
        Ok((status, answer))
    }

    /// Sends a request that has to succeed.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn must(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (status, answer) = self.ask(method, path, body)?;
        ensure!(status == 200, "{method} {path}: {answer}");
        Ok(answer)
    }

    /// Makes an object, and returns its id.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn make(&self, path: &str, word: &str, object: Value) -> anyhow::Result<String> {
        let answer = self.must("POST", path, &json!({ word: object }))?;
        let id = answer[word]["id"].as_str().context("no id")?;
        Ok(id.to_owned())
    }

    /// Makes a network on an interface, which is named as for `binding:switch_port`; returns its id, and that of the external port.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn network_on(&self, interface: &str) -> anyhow::Result<[String; 2]> {
        let network = json!({ "name": interface, "type": "data" });
        let network = self.make("networks", "network", network)?;
        let port =
            json!({ "name": interface, "network_id": network, "binding:switch_port": interface });
        let port = self.make("ports", "port", port)?;
        Ok([network, port])
    }
}

/// A tenant, and what its servers are made of: a bridge with a share.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The path of its servers.
    pub servers: String,
    /// The path of its images.
    pub images: String,
    flavor: String,
    image: String,
}

impl Tenant {
    /// Makes a tenant, with a flavor of this share.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn new(manager: &OpenVim, share: &str) -> anyhow::Result<Self> {
        let tenant = manager.make("tenants", "tenant", json!({ "name": "acme" }))?;
        let flavor = json!({ "name": "small", "ram": 16, "extended": { "nfluid": { "share": share, "flavor": "small" } } });
        let flavor = manager.make(&format!("{tenant}/flavors"), "flavor", flavor)?;
        let images = format!("{tenant}/images");
        let image = json!({ "name": "bridge", "path": "/nf/bridge" });
        let image = manager.make(&images, "image", image)?;
        Ok(Tenant {
            servers: format!("{tenant}/servers"),
            images,
            flavor,
            image,
        })
    }

    /// Returns the request for a server with a port on each of these networks.
    pub fn server(&self, name: &str, networks: &[&str]) -> Value {
        let networks = networks.iter().map(|uuid| json!({ "uuid": uuid }));
        let networks: Vec<Value> = networks.collect();
        json!({ "server": { "name": name, "flavorRef": self.flavor, "imageRef": self.image, "networks": networks } })
    }
}
