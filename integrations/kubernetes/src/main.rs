//! The program that runs on each node, and once in a cluster.
#![forbid(unsafe_code)]

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use kube::config::{KubeConfigOptions, Kubeconfig};
use nfluid_engine::program::{run, until_asked_to_end};
use nfluid_engine::simulated::{Description, Size};
use nfluid_kubernetes::settings::{ServiceSettings, Settings};
use nfluid_kubernetes::simulation::{self, Simulation};
use nfluid_kubernetes::{agent, controller, crds};
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

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
    /// Make nodes without hosts, to try a cluster that is larger than one has
    Simulate(Simulate),
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

/// Instances of these nodes are what Kubernetes and its users see of them: nothing runs and nothing is forwarded. Configurations of functions are not
/// checked. The nodes stay when this ends, as those of hosts that fail: remove them by 'kubectl delete node -l label.nfluid.io/simulated'.
#[derive(Debug, Args)]
struct Simulate {
    /// Number of nodes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: u32,
    /// Beginning of their names, before '-0', '-1', ...
    #[arg(long, default_value = "simulated", value_name = "NAME")]
    prefix: String,
    /// CPUs of each
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus: u32,
    /// Memory of each, in GiB
    #[arg(long, default_value_t = 128, value_name = "GIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    memory: u64,
    /// A network function that they have; can be repeated
    #[arg(long, value_name = "NAME", default_values = ["bridge", "firewall", "nat", "router"])]
    nf: Vec<String>,
    /// The deployment with which each begins, for example uplinks; interfaces need not exist
    #[arg(long, value_name = "FILE")]
    deployment: Option<PathBuf>,
    /// Let pods come that do not tolerate the taint nfluid.io/node
    #[arg(long)]
    no_taint: bool,
}

fn main() -> anyhow::Result<()> {
    run(until_asked_to_end(perform(Arguments::parse())))
}

async fn perform(arguments: Arguments) -> anyhow::Result<()> {
    let config = async {
        let config = config(arguments.kubeconfig).await;
        config.context("how to reach Kubernetes")
    };
    match arguments.command {
        Command::Agent(agent) => {
            let settings = agent.settings()?;
            agent::run(kube::Client::try_from(config.await?)?, settings).await
        }
        Command::Controller => controller::run(kube::Client::try_from(config.await?)?).await,
        Command::Definitions => Ok(write!(std::io::stdout(), "{}", crds::text()?)?),
        Command::Simulate(simulate) => {
            let simulation = simulate.simulation()?;
            simulation::run(config.await?, simulation).await
        }
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
        ensure!(
            is_node_name(&node),
            "'{node}' is no name of a node ({NODE_NAME}): give another one by --node-name"
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

impl Simulate {
    fn simulation(self) -> anyhow::Result<Simulation> {
        let Simulate { prefix, .. } = &self;
        ensure!(
            is_node_name(prefix),
            "--prefix {prefix}: the beginning of a node's name is expected ({NODE_NAME})"
        );
        let read = |path: PathBuf| {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(&path).with_context(|| name.clone())?;
            Ok::<_, anyhow::Error>((text, name))
        };
        Ok(Simulation {
            prefix: self.prefix,
            count: self.nodes,
            host: Description {
                size: Size {
                    cpus: self.cpus,
                    memory_bytes: self.memory << 30,
                },
                nfs: self.nf,
                labels: [("simulated".to_owned(), "true".to_owned())].into(),
            },
            deployment: self.deployment.map(read).transpose()?,
            is_open: self.no_taint,
        })
    }
}

/// The characters of a node's name, for users.
const NODE_NAME: &str = "lower-case letters, digits, '-' and '.'";

fn is_node_name(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    !text.is_empty() && text.chars().all(is_of_name)
}

async fn config(file: Option<PathBuf>) -> anyhow::Result<kube::Config> {
    let Some(file) = file else {
        return Ok(kube::Config::infer().await?);
    };
    let read = Kubeconfig::read_from(&file).with_context(|| file.display().to_string())?;
    Ok(kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?)
}
