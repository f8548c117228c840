//! Nodes without hosts: the agents that real nodes have, before hosts in memory. What a scheduler, a quota, a dashboard or the controller does with a thousand
//! nodes can be tried on one machine.

use crate::agent;
use crate::settings::{ServiceSettings, Settings};
use anyhow::Context;
use nfluid_api::server::Server as _;
use nfluid_api::types::ApplyRequest;
use nfluid_engine::simulated::{Description, SimulatedHost};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

/// The nodes to simulate.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The nodes are `PREFIX-0`, `PREFIX-1`, ...
    pub prefix: String,
    /// Their number.
    pub count: u32,
    /// The facts of each host.
    pub host: Description,
    /// The deployment with which each of their hosts begins: YAML, and the file's name.
    pub deployment: Option<(String, String)>,
    /// True if pods need no toleration for the nodes.
    pub is_open: bool,
}

/// Simulates nodes until it is cancelled. The nodes stay in Kubernetes, as those of hosts that fail.
///
/// # Errors
/// Kubernetes does not answer at the start, the deployment has a fault, or this process has no file or port left.
pub async fn run(kubernetes: kube::Config, simulation: Simulation) -> anyhow::Result<()> {
    // Each node has several connections.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).context("the limit of open files")?;
    let folder = tempfile::tempdir().context("a folder for the sockets of simulated hosts")?;
    let mut parts = JoinSet::new();
    for number in 0..simulation.count {
        let node = format!("{}-{number}", simulation.prefix);
        let host = SimulatedHost::new(simulation.host.clone())?;
        if let Some((text, file)) = &simulation.deployment {
            let request = ApplyRequest {
                text: text.clone(),
                file: Some(file.clone()),
                ..ApplyRequest::default()
            };
            host.apply(request)
                .map_err(|problem| anyhow::anyhow!("{problem}"))?;
        }
        let socket = folder.path().join(&node);
        let listener = UnixListener::bind(&socket).context("a socket of a simulated host")?;
        parts.spawn(async move {
            let served = Arc::new(host).serve(listener).await;
            served.context("a simulated host")
        });
        // Each agent has its own connections, as agents of real nodes have.
        let client = kube::Client::try_from(kubernetes.clone())?;
        let settings = settings(node, &socket, simulation.is_open);
        parts.spawn(agent::run(client, settings));
    }
    tracing::info!(nodes = simulation.count, "simulated");
    while let Some(ended) = parts.join_next().await {
        ended.context("a part of the simulation")??;
    }
    Ok(())
}

fn settings(node: String, socket: &Path, is_open: bool) -> Settings {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Settings {
        node,
        address: loopback.to_string(),
        is_open,
        socket: socket.to_owned(),
        host_volumes: Vec::new(),
        service: ServiceSettings {
            listen: SocketAddr::new(loopback, 0),
            identity: None,
            client_ca: None,
        },
    }
}
