//! The life of an NF: build it, attach its ports, then batch after batch.

use crate::control::{Answer, Control, Request, port_stats};
use crate::inheritance;
use nfluid_nf::{Metric, Nanos, NetworkFunction, PortInfo};
use nfluid_ring::Batch;
use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::AGEING;
use nfluid_ring::engine::{Engine, flush_all};
use nfluid_ring::port::{Port, PortsOutbox};
use nfluid_wire::ether::MacAddr;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::time::Duration;

/// Between two ticks of the NF while traffic flows.
const TICK: Nanos = Nanos(50_000_000);
/// Longest sleep while the NF has timers.
const TIMER: Duration = Duration::from_millis(500);
/// Rounds over all ports between two looks at the clock and the control socket.
const ROUNDS_PER_LOOK: u32 = 16;

/// Hosts the NF until the process is killed.
pub fn run() -> anyhow::Result<()> {
    let attached = Attached::from_env()?;
    let ports = port_infos(&attached.ports);
    let nf =
        nfluid_nf::catalogue::build(&inheritance::nf_name()?, &inheritance::config()?, &ports)?;
    let control = inheritance::control_socket()?
        .map(Control::start)
        .transpose()?;
    let mut host = Host {
        nf,
        attached,
        infos: ports,
        engine: Engine::new(),
        last_tick: Nanos(0),
    };
    eprintln!("nfluid-nf: running on {} ports", host.infos.len());
    loop {
        host.round(control.as_ref())?;
    }
}

struct Host {
    nf: Box<dyn NetworkFunction>,
    attached: Attached,
    infos: Vec<PortInfo>,
    engine: Engine,
    last_tick: Nanos,
}

impl Host {
    /// Works while frames wait, then blocks until one comes.
    fn round(&mut self, control: Option<&Control>) -> anyhow::Result<()> {
        let mut now = monotonic();
        for _ in 0..ROUNDS_PER_LOOK {
            if self.pass(now) == 0 {
                let wake = control.map(|control| &control.wake);
                self.attached.doorbell.wait(
                    &self.attached.ports,
                    wake,
                    if self.nf.has_timers() { TIMER } else { AGEING },
                )?;
                now = monotonic();
                break;
            }
        }
        self.tick(now);
        if let Some(control) = control {
            control.answer(|request| self.handle(now, request));
        }
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
            Request::Reconfigure { config } => match self.nf.reconfigure(&config, &self.infos) {
                Ok(()) => Answer::Ok(Value::Null),
                Err(error) => Answer::Error(error.to_string()),
            },
        }
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

fn port_infos(ports: &[Port]) -> Vec<PortInfo> {
    let info = |port: &Port| {
        let entry = port.entry();
        PortInfo {
            name: entry.name().to_owned(),
            mac: MacAddr(entry.mac),
            mtu: entry.mtu,
        }
    };
    ports.iter().map(info).collect()
}

fn monotonic() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
