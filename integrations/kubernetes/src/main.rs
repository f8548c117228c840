//! The program that runs on each node, and once in a cluster.
#![forbid(unsafe_code)]

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use kube::config::{KubeConfigOptions, Kubeconfig};
use nfluid_kubernetes::settings::{ServiceSettings, Settings};
use nfluid_kubernetes::{agent, controller, crds};
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// nfluid for Kubernetes: hosts are nodes, pods are instances, chains are objects.
///
/// Kubernetes is found by --kubeconfig, by KUBECONFIG, or from within a pod by its service account.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// How to reach Kubernetes
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make this host a node: run it beside nfluidd
    Agent(Agent),
    /// Make pods of network functions and chains: run one in a cluster
    Controller,
    /// Print the definitions of network functions and chains, for 'kubectl apply -f -'
    Definitions,
}

#[derive(Debug, Args)]
struct Agent {
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
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        ended = perform(arguments) => ended,
        // Pods and instances go on; the next one finds them.
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

async fn perform(arguments: Arguments) -> anyhow::Result<()> {
    let client = async {
        let config = config(arguments.kubeconfig).await;
        let config = config.context("how to reach Kubernetes")?;
        Ok::<_, anyhow::Error>(kube::Client::try_from(config)?)
    };
    match arguments.command {
        Command::Agent(agent) => {
            let settings = agent.settings()?;
            agent::run(client.await?, settings).await
        }
        Command::Controller => controller::run(client.await?).await,
        Command::Definitions => Ok(write!(std::io::stdout(), "{}", crds::text()?)?),
    }
}

impl Agent {
    fn settings(self) -> anyhow::Result<Settings> {
        let host = || {
            rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .to_lowercase()
        };
        let node = self.node_name.unwrap_or_else(host);
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        ensure!(
            !node.is_empty() && node.chars().all(is_of_name),
            "'{node}' is no name of a node (lower-case letters, digits, '-' and '.'): give another one by --node-name"
        );
        for folder in &self.host_volume {
            let folder = folder.display();
            ensure!(
                folder.to_string().starts_with('/'),
                "--host-volume {folder}: an absolute path is expected"
            );
        }
        Ok(Settings {
            node,
            address: self.node_ip.to_string(),
            is_open: self.no_taint,
            socket: self.socket,
            host_volumes: self.host_volume,
            service: ServiceSettings {
                listen: self.listen,
                identity: self.cert.zip(self.key),
                client_ca: self.client_ca,
            },
        })
    }
}

async fn config(file: Option<PathBuf>) -> anyhow::Result<kube::Config> {
    let Some(file) = file else {
        return Ok(kube::Config::infer().await?);
    };
    let read = Kubeconfig::read_from(&file).with_context(|| file.display().to_string())?;
    Ok(kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?)
}
