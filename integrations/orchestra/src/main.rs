//! A load pusher and a message analyser for engines that run nfluid's instances.
//!
//! `push` asks an engine for work at a rate that does not depend on its answers (`load.rs`, `push.rs`). `analyse` reads what the engine
//! has written of itself - Kubernetes' audit log (`kubernetes.rs`), Nomad's event stream (`nomad.rs`), OpenStack's messages and logs (`openstack.rs`), nfluid's events (`instances.rs`) -
//! and says where the time from the request until it runs has gone (`breakdown.rs`).
#![forbid(unsafe_code)]

mod breakdown;
mod instances;
mod kubernetes;
mod load;
mod nomad;
mod openstack;
mod push;
mod trace;

use anyhow::{Context, ensure};
use breakdown::Breakdown;
use clap::{ArgGroup, Args, Parser, Subcommand};
use instances::Starts;
use load::Load;
use std::fs;
use std::path::PathBuf;

/// Load for engines, and where their time goes.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Ask an engine for work at a rate, whatever it answers
    Push(Push),
    /// Say from the engine's own traces where the time has gone
    Analyse(Analyse),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("engine").required(true)))]
struct Push {
    /// Ask Kubernetes, with this file or, without a value, as kubectl would
    #[arg(long, value_name = "KUBECONFIG", num_args = 0..=1, group = "engine")]
    kubernetes: Option<Option<PathBuf>>,
    /// Ask Nomad's agent at this address
    #[arg(long, value_name = "http://HOST:PORT", group = "engine")]
    nomad: Option<String>,
    /// Ask Nova at this address, with the token in OS_TOKEN ('openstack token issue')
    #[arg(long, value_name = "http://HOST:PORT/v2.1", group = "engine")]
    openstack: Option<String>,
    /// A file with the request: an object of Kubernetes (YAML or JSON), a job of Nomad ('nomad job run -output'), or the request for a server of Nova. Each gets a number behind
    /// its name. Several take turns; FILE=3 gets three turns of each round
    #[arg(long, value_name = "FILE[=TURNS]", required = true)]
    template: Vec<String>,
    /// How many per second and for how long, one after the other: 20x10s,50x5s
    #[arg(long, value_name = "RATExTIME[,...]")]
    load: Load,
    /// Remove afterwards what was made
    #[arg(long)]
    remove: bool,
    /// Where to write a line for each request: its name, when it was due, sent and answered, and the error
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("engine").required(true)))]
struct Analyse {
    /// The audit log of Kubernetes' API server, with pods' requests (docs/guide/orchestra.md has the policy)
    #[arg(long, value_name = "FILE", group = "engine")]
    kubernetes_audit: Option<PathBuf>,
    /// Nomad's event stream (curl -N http://HOST:4646/v1/event/stream)
    #[arg(long, value_name = "FILE", group = "engine")]
    nomad_events: Option<PathBuf>,
    /// OpenStack's messages, as integrations/openstack/lab/trace.py writes them from RabbitMQ
    #[arg(long, value_name = "FILE", group = "engine")]
    openstack_trace: Option<PathBuf>,
    /// A log of nova-api or nova-compute, with times in UTC; can be repeated
    #[arg(long, value_name = "FILE", requires = "openstack_trace")]
    openstack_log: Vec<PathBuf>,
    /// nfluid's events of a host (nfluid events -o json); can be repeated
    #[arg(long, value_name = "FILE")]
    nfluid_events: Vec<PathBuf>,
    /// Only what has a name that begins with this
    #[arg(long, default_value = "", value_name = "TEXT")]
    name: String,
    /// Where to draw the phases
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Push(push) => push.run(),
        Command::Analyse(analyse) => analyse.run(),
    }
}

impl Push {
    fn run(self) -> anyhow::Result<()> {
        let templates = push::templates(&self.template)?;
        let runtime = tokio::runtime::Runtime::new()?;
        let report = runtime.block_on(async {
            let engine = match (self.kubernetes, self.nomad, self.openstack) {
                (Some(kubeconfig), ..) => push::Engine::kubernetes(kubeconfig.as_deref()).await?,
                (_, Some(address), _) => push::Engine::nomad(&address)?,
                (_, _, Some(address)) => push::Engine::openstack(&address)?,
                _ => anyhow::bail!("name the engine: --kubernetes, --nomad or --openstack"),
            };
            push::run(engine, &templates, &self.load, self.remove).await
        })?;
        if let Some(file) = &self.trace {
            let at = || file.display().to_string();
            fs::write(file, report.lines()).with_context(at)?;
        }
        print!("{}", report.summary());
        ensure!(
            report.refused() == 0,
            "{} requests were refused",
            report.refused()
        );
        Ok(())
    }
}

impl Analyse {
    fn run(self) -> anyhow::Result<()> {
        let read = |file: &PathBuf| {
            let text = fs::read_to_string(file);
            text.with_context(|| file.display().to_string())
        };
        let mut starts = Starts::default();
        for file in &self.nfluid_events {
            starts
                .read(&read(file)?)
                .with_context(|| file.display().to_string())?;
        }
        let mut logs = openstack::Logs::default();
        for file in &self.openstack_log {
            logs.read(&read(file)?);
        }
        let traces = [
            &self.kubernetes_audit,
            &self.nomad_events,
            &self.openstack_trace,
        ];
        let file = traces.into_iter().flatten().next();
        let file = file.context("name a trace")?;
        let text = read(file)?;
        let runs = match traces {
            [Some(_), ..] => kubernetes::runs(&text, &starts),
            [_, Some(_), _] => nomad::runs(&text, &starts),
            _ => openstack::runs(&text, &logs),
        };
        let runs = runs.with_context(|| file.display().to_string())?;
        let runs = runs
            .into_iter()
            .filter(|run| run.name.starts_with(&self.name));
        let breakdown = Breakdown::of(runs.collect());
        ensure!(
            breakdown.count() > 0,
            "nothing in the trace has run from its beginning to its end"
        );
        print!("{}", breakdown.text());
        if let Some(file) = &self.plot {
            let at = || file.display().to_string();
            fs::write(file, breakdown.svg()?).with_context(at)?;
        }
        Ok(())
    }
}
