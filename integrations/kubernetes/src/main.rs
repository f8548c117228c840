//! The program that runs on each node.
#![forbid(unsafe_code)]

use anyhow::{Context, ensure};
use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use nfluid_kubernetes::agent::{self, Settings};
use nfluid_kubernetes::service;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// A node agent for Kubernetes: this host of nfluid is a node, and the pods bound to it are instances.
///
/// The agent runs beside nfluidd. It finds Kubernetes by --kubeconfig, by KUBECONFIG, or from within a pod by its service account.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Name of the node
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,
    /// Address of this host at which the API server reaches the agent
    #[arg(long, env = "NODE_IP", value_name = "ADDR")]
    node_ip: IpAddr,
    /// Address and port of logs, commands and metrics
    #[arg(long, default_value = "0.0.0.0:10250", value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Certificate of this service, PEM; without it, the agent makes one
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of that certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Authorities of the certificates of callers, such as the API server (its --kubelet-client-certificate), PEM
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Folder of this host below which pods may have hostPath volumes; can be repeated
    #[arg(long, value_name = "FOLDER")]
    host_volume: Vec<PathBuf>,
    /// Let pods come that do not tolerate the taint nfluid.io/node
    #[arg(long)]
    no_taint: bool,
    /// How to reach Kubernetes
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The daemon's socket
    #[arg(
        long,
        env = "NFLUID_SOCKET",
        default_value = "/run/nfluid/nfluidd.sock",
        value_name = "PATH"
    )]
    socket: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false)
        .init();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(run(arguments))
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let node = match arguments.node_name {
        Some(name) => name,
        None => {
            let name = rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .to_lowercase();
            name
        }
    };
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    ensure!(
        !node.is_empty() && node.chars().all(is_name),
        "'{node}' is no name of a node (lower-case letters, digits, '-' and '.'): give another one by --node-name"
    );
    for folder in &arguments.host_volume {
        ensure!(
            folder.is_absolute(),
            "--host-volume {}: an absolute path is expected",
            folder.display()
        );
    }
    let settings = Settings {
        node,
        address: arguments.node_ip.to_string(),
        is_open: arguments.no_taint,
        socket: arguments.socket,
        host_volumes: arguments.host_volume,
        service: service::Settings {
            listen: arguments.listen,
            identity: arguments.cert.zip(arguments.key),
            client_ca: arguments.client_ca,
        },
    };
    let config = config(arguments.kubeconfig)
        .await
        .context("how to reach Kubernetes")?;
    let client = kube::Client::try_from(config)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        ended = agent::run(client, settings) => ended,
        // Instances go on; the next agent finds them.
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

async fn config(file: Option<PathBuf>) -> anyhow::Result<kube::Config> {
    let Some(file) = file else {
        return Ok(kube::Config::infer().await?);
    };
    let read = Kubeconfig::read_from(&file).with_context(|| file.display().to_string())?;
    Ok(kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?)
}
