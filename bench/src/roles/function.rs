//! Hosts an NF as `nfluid-nf` does, so that what is measured is what runs.

use super::{Work, monotonic_ns};
use crate::experiments::subject::Subject;
use anyhow::Context;
use nfluid_nf::{Nanos, NetworkFunction, PortInfo};
use nfluid_ring::Batch;
use nfluid_ring::attach::Attached;
use nfluid_ring::engine::{Engine, flush_all};
use nfluid_ring::port::{Port, PortsOutbox};
use nfluid_wire::ether::MacAddr;
use std::time::Duration;

/// Between two ticks while traffic flows.
const TICK: Nanos = Nanos(50_000_000);
/// Passes over all ports between two looks at the clock.
const PASSES_PER_LOOK: u32 = 16;
/// Longest sleep: a run must end when it is over.
const SLEEP: Duration = Duration::from_millis(20);

/// An NF on its ports.
pub struct Function {
    nf: Box<dyn NetworkFunction>,
    engine: Engine,
    last_tick: Nanos,
}

impl Function {
    pub fn new(attached: &Attached, subject: &Subject) -> anyhow::Result<Self> {
        let ports = port_infos(&attached.ports);
        let nf = nfluid_nf::catalogue::build(subject.nf(), &subject.config(), &ports);
        Ok(Function {
            nf: nf.context("building the NF")?,
            engine: Engine::new(),
            last_tick: Nanos(0),
        })
    }

    fn pass(&mut self, now: Nanos, ports: &mut [Port]) -> u64 {
        let mut taken = 0;
        for port in 0..ports.len() {
            let mut decide = |batch: &mut Batch<'_, '_>| self.nf.process(now, batch);
            taken += self.engine.run_once(ports, port as u8, &mut decide);
        }
        taken as u64
    }
}

impl Work for Function {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let Attached { ports, doorbell } = attached;
        let now = Nanos(monotonic_ns());
        let mut frames = 0;
        for _ in 0..PASSES_PER_LOOK {
            let taken = self.pass(now, ports);
            frames += taken;
            if taken == 0 {
                // An error here shows as missing throughput.
                let _ = doorbell.wait(ports, None, SLEEP);
                break;
            }
        }
        if now.since(self.last_tick) >= TICK {
            self.last_tick = now;
            self.nf.tick(now, &mut PortsOutbox(ports));
            flush_all(ports);
        }
        frames
    }
}

fn port_infos(ports: &[Port]) -> Vec<PortInfo> {
    let info = |port: &Port| PortInfo {
        name: port.entry().name().to_owned(),
        mac: MacAddr(port.entry().mac),
        mtu: port.entry().mtu,
    };
    ports.iter().map(info).collect()
}
