//! The life of an NF: build it, attach its ports, then batch after batch.

use crate::control::{Answer, Control, Request, port_stats};
use crate::{inheritance, queues};
use anyhow::bail;
use nfluid_nf::attached::port_infos;
use nfluid_nf::{Metric, Nanos, NetworkFunction, PortInfo};
use nfluid_ring::Batch;
use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::AGEING;
use nfluid_ring::engine::{Engine, flush_all};
use nfluid_ring::port::PortsOutbox;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::time::Duration;

/// Between two ticks of the NF while traffic flows.
const TICK: Nanos = Nanos(50_000_000);
/// Longest sleep while the NF has timers.
const TIMER: Duration = Duration::from_millis(500);
/// Rounds over all ports between two looks at the clock and the control socket.
const ROUNDS_PER_LOOK: u32 = 16;

/// Hosts the NF until the process is killed: one NF and one thread per queue of its ports.
pub fn run() -> anyhow::Result<()> {
    let attached = Attached::from_env()?;
    let (name, config) = (inheritance::nf_name()?, inheritance::config()?);
    let (queues, doorbell) = queues::divide(attached)?;
    let controls = Control::start(inheritance::control_socket()?, queues.len())?;
    let divided = queues.len() > 1;
    let mut hosts = Vec::with_capacity(queues.len());
    for attached in queues {
        let infos = port_infos(&attached.ports);
        let nf = nfluid_nf::catalogue::build(&name, &config, &infos)?;
        if divided && let Err(why) = nf.divides_by_flow() {
            bail!("the NF '{name}' cannot have several queues: {why}");
        }
        hosts.push(Host {
            name: name.clone(),
            divided,
            nf,
            attached,
            infos,
            engine: Engine::new(),
            last_tick: Nanos(0),
        });
    }
    if let Some(host) = hosts.first() {
        let (ports, queues) = (host.infos.len(), hosts.len());
        eprintln!("nfluid-nf: running on {ports} ports, {queues} queues each");
    }
    queues::run(hosts, controls, doorbell)
}

/// An NF on one queue of its ports.
pub struct Host {
    name: String,
    /// There are others of it, on other queues.
    divided: bool,
    nf: Box<dyn NetworkFunction>,
    attached: Attached,
    infos: Vec<PortInfo>,
    engine: Engine,
    last_tick: Nanos,
}

impl Host {
    /// Works while frames wait, then blocks until one comes.
    pub fn round(&mut self, control: &Control) -> anyhow::Result<()> {
        let mut now = monotonic();
        for _ in 0..ROUNDS_PER_LOOK {
            if self.pass(now) == 0 {
                self.attached.doorbell.wait(
                    &self.attached.ports,
                    Some(&control.wake),
                    if self.nf.has_timers() { TIMER } else { AGEING },
                )?;
                now = monotonic();
                break;
            }
        }
        self.tick(now);
        control.answer(|request| self.handle(now, request));
        Ok(())
    }

    /// One batch from each port. Returns the number of frames.
    fn pass(&mut self, now: Nanos) -> usize {
        let ports = &mut self.attached.ports;
        let mut taken = 0;
        for port in 0..ports.len() {
            let mut decide = |batch: &mut Batch<'_, '_>| self.nf.process(now, batch);
            taken += self.engine.run_once(ports, port as u8, &mut decide);
        }
        taken
    }

    fn tick(&mut self, now: Nanos) {
        if now.since(self.last_tick) < TICK {
            return;
        }
        self.last_tick = now;
        let ports = &mut self.attached.ports;
        self.nf.tick(now, &mut PortsOutbox(ports));
        flush_all(ports);
    }

    fn handle(&mut self, now: Nanos, request: Request) -> Answer {
        match request {
            Request::Metrics => Answer::Ok(self.metrics()),
            Request::Command { name, args } => match self.nf.command(now, &name, &args) {
                Ok(value) => Answer::Ok(value),
                Err(error) => Answer::Error(error.to_string()),
            },
            Request::Reconfigure { config } => match self.reconfigure(&config) {
                Ok(()) => Answer::Ok(Value::Null),
                Err(error) => Answer::Error(error.to_string()),
            },
        }
    }

    fn reconfigure(&mut self, config: &Value) -> anyhow::Result<()> {
        if self.divided {
            let new = nfluid_nf::catalogue::build(&self.name, config, &self.infos)?;
            if let Err(why) = new.divides_by_flow() {
                bail!("it has several queues, and cannot have that configuration: {why}");
            }
        }
        Ok(self.nf.reconfigure(config, &self.infos)?)
    }

    fn metrics(&self) -> Value {
        let mut metrics = serde_json::Map::new();
        self.nf.metrics(&mut |metric: Metric| {
            metrics.insert(metric_name(&metric), json!(metric.value));
        });
        let engine = self.engine.stats();
        let doorbell = self.attached.doorbell.stats();
        let ports: Vec<Value> = self
            .attached
            .ports
            .iter()
            .map(|port| port_stats(port.entry().name(), &port.stats()))
            .collect();
        json!({
            "nf": metrics,
            "engine": {
                "received": engine.received,
                "forwarded": engine.forwarded,
                "discarded": engine.discarded,
                "no_such_port": engine.no_such_port,
                "batches": engine.batches,
            },
            "doorbell": {
                "sleeps": doorbell.sleeps,
                "wakes": doorbell.wakes,
                "spurious": doorbell.spurious,
                "spins_hit": doorbell.spins_hit,
            },
            "ports": ports,
        })
    }
}

/// The name with its labels, as Prometheus writes it.
fn metric_name(metric: &Metric) -> String {
    if metric.labels.is_empty() {
        return metric.name.to_owned();
    }
    let label = |(name, value): &(&str, String)| {
        format!(
            "{name}=\"{}\"",
            value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
        )
    };
    let labels: Vec<String> = metric.labels.iter().map(label).collect();
    format!("{}{{{}}}", metric.name, labels.join(","))
}

fn monotonic() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
