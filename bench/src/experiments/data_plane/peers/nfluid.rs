//! nfluid itself: its switch alone, and a bridge NF in its own process.

use super::resources::Resources;
use super::way::{Round, Way};
use crate::peer::{Peer, run_together};
use crate::roles::{Role, Task};
use crate::setups::pairs::{self, Pair};
use crate::workload::Workload;
use anyhow::Context;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};

const RING: u32 = 256;
const BATCH: usize = 32;

/// The processes for frames of one length.
struct Variant {
    len: usize,
    /// The forwarding and the receiving process.
    pair: Pair,
}

/// A variant for each length, and the kind of processes.
struct Nfluid {
    variants: Vec<Variant>,
    /// A process that waits for frames that never arrive.
    idle: Peer,
    conditions: String,
    _idle_instance: ScratchInstance,
}

impl Way for Nfluid {
    fn conditions(&self) -> String {
        self.conditions.clone()
    }

    fn round(&mut self, len: usize, seconds: f64) -> anyhow::Result<Round> {
        let variant = self.variants.iter_mut().find(|variant| variant.len == len);
        let variant = variant.context("a length that was not prepared")?;
        let outcomes = run_together(&mut variant.pair.peers, seconds)?;
        let (forwarding, traffic) = (outcomes[0], outcomes[1]);
        Ok(Round {
            frames: traffic.frames,
            seconds: traffic.seconds,
            forwarding_seconds: forwarding.cpu_seconds,
            traffic_seconds: traffic.cpu_seconds,
        })
    }

    fn idle_begin(&mut self, seconds: f64) -> anyhow::Result<()> {
        self.idle.start_run(seconds, None)
    }

    fn idle_end(&mut self) -> anyhow::Result<f64> {
        Ok(self.idle.outcome()?.cpu_seconds)
    }
}

fn variants(
    resources: &mut Resources,
    pair: impl Fn(&mut Scratch, usize) -> anyhow::Result<Pair>,
) -> anyhow::Result<Vec<Variant>> {
    let variant = |len: &usize| {
        let pair = pair(&mut resources.scratch, *len)?;
        Ok(Variant { len: *len, pair })
    };
    resources.sizes.iter().map(variant).collect()
}

fn role(core: usize, task: Task) -> Role {
    Role { core, task }
}

/// Path: sender -> switch -> receiver.
pub fn link(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    let variants = variants(resources, |scratch, len| {
        pairs::one_way(scratch, len, BATCH, RING, [0, 1])
    })?;
    let instance = resources.scratch.instance(1, RING, 64)?;
    Ok(Box::new(Nfluid {
        variants,
        idle: Peer::start(&instance, &role(0, Task::Sleep))?,
        conditions: format!(
            "no NF; the switch runs in the sender, whose whole CPU time counts as forwarding; the \
             receiver, on the other core, reads the payload; batch {BATCH}; idle: a sleeping \
             receiver"
        ),
        _idle_instance: instance,
    }))
}

/// Path: traffic -> bridge NF -> traffic.
pub fn bridge(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    around(resources, Workload::Bridge, "bridge NF")
}

/// Path: traffic -> NF -> traffic.
pub fn around(
    resources: &mut Resources,
    workload: Workload,
    name: &str,
) -> anyhow::Result<Box<dyn Way>> {
    let variants = variants(resources, |scratch, len| {
        pairs::around(scratch, workload, len, BATCH, RING)
    })?;
    let instance = resources.scratch.instance(2, RING, 64)?;
    Ok(Box::new(Nfluid {
        variants,
        idle: Peer::start(&instance, &role(0, Task::Nf { workload }))?,
        conditions: format!(
            "{name}, a process on core 0, asleep when nothing waits; sender and receiver are one \
             process on core 1; batch {BATCH}; CPU time of the NF's process"
        ),
        _idle_instance: instance,
    }))
}
