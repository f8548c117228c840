//! Hosts an NF as `nfluid-nf` does, so that the measured code is the shipped code.

use super::work::{SLEEP, Waits, Work, print_ready};
use crate::host::machine;
use crate::workload::Workload;
use anyhow::Context;
use nfluid_nf::attached::port_info;
use nfluid_nf::{Nanos, NetworkFunction};
use nfluid_ring::Batch;
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::doorbell::AGEING;
use nfluid_ring::engine::{Engine, flush_all};
use nfluid_ring::port::{Port, PortsOutbox};
use nfluid_vmm::Image;
use rustix::thread::sched_yield;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io::stdin;
use std::process::exit;
use std::thread::Builder;
use std::time::Duration;

/// Interval of ticks while traffic flows.
const TICK: Nanos = Nanos(50_000_000);
/// Passes over all ports per reading of the clock.
const PASSES_PER_LOOK: u32 = 16;
/// Cycles of one step of [`burn`]: a multiplication (3), a shift and an exclusive or, each of which depends on the
/// previous operation.
const CYCLES_PER_STEP: u32 = 5;

/// How an NF shares its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    /// Cycles of work on each frame, in addition to the NF's own.
    pub cycles: u32,
    /// Behaviour while no frame waits.
    pub waits: Waits,
    /// True if the NF yields after each batch.
    pub yields: bool,
}

impl Manner {
    /// The behaviour of `nfluid-nf`.
    pub const HOSTED: Manner = Manner {
        cycles: 0,
        waits: Waits::Sleeping,
        yields: false,
    };
}

/// An NF on its ports.
pub struct Function {
    nf: Box<dyn NetworkFunction>,
    engine: Engine,
    manner: Manner,
    sleep: Duration,
    last_tick: Nanos,
}

impl Function {
    /// Makes an NF hosted as in `nfluid-nf`.
    pub fn new(attached: &Attached, workload: &Workload) -> anyhow::Result<Self> {
        Function::on(&attached.ports, workload)
    }

    /// Makes an NF in a KVM guest, hosted as in `nfluid-vmm`.
    pub fn in_guest(attached: &Attached, workload: &Workload) -> anyhow::Result<Self> {
        let infos: Vec<_> = attached
            .ports
            .iter()
            .map(|it| port_info(it.entry()))
            .collect();
        let mut guest = machine::start(Image::functions()?, Some(&attached.pool))?;
        guest.build(workload.nf(), &workload.config(), &infos)?;
        Ok(Function::hosting(Box::new(guest), Manner::HOSTED))
    }

    /// Makes an NF on some of its instance's ports.
    pub fn on(ports: &[Port], workload: &Workload) -> anyhow::Result<Self> {
        Function::in_manner(ports, workload, Manner::HOSTED)
    }

    fn in_manner(ports: &[Port], workload: &Workload, manner: Manner) -> anyhow::Result<Self> {
        let ports: Vec<_> = ports.iter().map(|port| port_info(port.entry())).collect();
        let nf = nfluid_nf::catalogue::build(workload.nf(), &workload.config(), &ports);
        Ok(Function::hosting(nf.context("building the NF")?, manner))
    }

    fn hosting(nf: Box<dyn NetworkFunction>, manner: Manner) -> Self {
        Function {
            nf,
            engine: Engine::new(),
            manner,
            sleep: SLEEP,
            last_tick: Nanos(0),
        }
    }

    fn pass(&mut self, now: Nanos, ports: &mut [Port]) -> u64 {
        let Manner { cycles, yields, .. } = self.manner;
        let mut taken = 0;
        for port in 0..ports.len() {
            let mut decide = |batch: &mut Batch<'_, '_>| {
                if cycles > 0 {
                    batch.frames().iter().for_each(|_| burn(cycles));
                }
                self.nf.process(now, batch);
            };
            let batch = self.engine.run_once(ports, port as u8, &mut decide);
            if batch > 0 && yields {
                sched_yield();
            }
            taken += batch;
        }
        taken as u64
    }

    fn wait(&self, attached: &mut Attached) {
        match self.manner.waits {
            Waits::Spinning => std::hint::spin_loop(),
            Waits::Yielding => sched_yield(),
            Waits::Sleeping => {
                let Attached {
                    ports, doorbell, ..
                } = attached;
                // An error here shows as missing throughput.
                let _ = doorbell.wait(ports, None, self.sleep);
            }
        }
    }
}

impl Work for Function {
    /// A burst is many batches: a millisecond of expensive frames.
    fn bursts_per_look(&self) -> u32 {
        1
    }

    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let now = Nanos(monotonic_ns());
        let mut frames = 0;
        for _ in 0..PASSES_PER_LOOK {
            let taken = self.pass(now, &mut attached.ports);
            frames += taken;
            if taken == 0 {
                self.wait(attached);
                break;
            }
        }
        let ports = &mut attached.ports;
        if now.since(self.last_tick) >= TICK {
            self.last_tick = now;
            self.nf.tick(now, &mut PortsOutbox(ports));
            flush_all(ports);
        }
        frames
    }
}

/// Hosts the NF until standard input ends.
pub fn host(workload: &Workload, manner: Manner) -> anyhow::Result<()> {
    let mut attached = Attached::from_env()?;
    let mut function = Function::in_manner(&attached.ports, workload, manner)?;
    function.sleep = AGEING;
    Builder::new()
        .name("end".to_owned())
        .spawn(|| {
            // An error ends the thread as well.
            let _ = std::io::copy(&mut stdin(), &mut std::io::sink());
            exit(0)
        })
        .context("a thread that waits for the end")?;
    print_ready()?;
    loop {
        function.burst(&mut attached);
    }
}

/// Works for `cycles` cycles. Time in which the process does not run is not counted; a loop that waits for a time stamp
/// would count it.
fn burn(cycles: u32) {
    let mut word = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..cycles / CYCLES_PER_STEP {
        word = (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    black_box(word);
}
