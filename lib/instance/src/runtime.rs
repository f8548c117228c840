//! The runtime of isolation `process`: instances are made from a suitable shell, or from scratch.

use crate::maker::Maker;
use crate::making::Making;
use crate::pool::Pool;
use crate::port_specs::{port_specs, tx_slots};
use crate::process;
use nfluid_control::model::Program;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::stopwatch::Lap;
use nfluid_lifecycle::runtime::{Adopted, Batch, Outcome, PlannedInstance, Prepared, Runtime};
use nfluid_lifecycle::workload::Workload;
use std::sync::Arc;

/// Creates instances that are processes in sandboxes.
pub struct Processes {
    maker: Arc<Maker>,
    pool: Arc<Pool>,
}

impl Processes {
    /// Creates the runtime: `maker` makes instances, `pool` supplies shells.
    pub fn new(maker: Arc<Maker>, pool: Arc<Pool>) -> Self {
        Processes { maker, pool }
    }

    /// Takes a shell for an instance, or begins from scratch.
    fn begin(&self, coming: PlannedInstance) -> anyhow::Result<Making> {
        let PlannedInstance {
            name,
            spec,
            site,
            peers,
        } = &coming;
        // The linkage of a program decides which shell suits.
        let program = match &spec.program {
            Program::Path { program, .. } if self.pool.asks_for_linkage(spec) => {
                self.maker.programs.open(program).ok()
            }
            _ => None,
        };
        let linkage = program.as_ref().map(|open| open.0.linkage());
        if let Some(mut shell) = self.pool.take(name, spec, linkage) {
            shell.set_program(program);
            match shell.become_instance(name, spec, site.clone(), peers.clone()) {
                Ok(()) => return Ok(shell),
                Err(why) => tracing::warn!(instance = name, "a shell is of no use: {why:#}"),
            }
        }
        let begin = || Making::begin(&self.maker, name, spec, site.clone(), peers.clone());
        let begun = begin();
        if begun.is_err() && self.pool.release_shells() {
            // Shells may have held the resource that was lacking.
            return begin();
        }
        begun
    }
}

impl Runtime for Processes {
    fn plan(&self, coming: &[&InstanceSpec]) {
        let members = coming.iter().filter_map(|spec| {
            let ports = port_specs(spec, 0, tx_slots(spec));
            Some((spec.trust.clone()?, ports))
        });
        self.maker.groups.plan(members);
    }

    fn prepare(&self, coming: Vec<PlannedInstance>) -> Box<dyn Batch> {
        let mut begun = Begun::default();
        for one in coming {
            let name = one.name.clone();
            match self.begin(one) {
                Ok(making) => begun.makings.push(making),
                Err(why) => begun.failed.push((name, why)),
            }
        }
        if Making::enter(&mut begun.makings).is_err() {
            // The batch failed, so each instance is begun when the plan comes to it: the error then belongs to that
            // instance alone.
            begun.makings.clear();
        }
        Box::new(begun)
    }

    fn start(&self, coming: PlannedInstance) -> anyhow::Result<Box<dyn Prepared>> {
        let trusts = coming.spec.trust.is_some();
        let mut making = self.begin(coming)?;
        if let Err(why) = Making::enter(std::slice::from_mut(&mut making)) {
            // Shells may hold the room in the trust group that was lacking.
            if !trusts || !self.pool.release_shells() {
                return Err(why);
            }
            Making::enter(std::slice::from_mut(&mut making))?;
        }
        making.complete()?;
        Ok(Box::new(making))
    }

    fn make_doorbell(&self, name: &str) -> anyhow::Result<()> {
        self.maker.make_pipes(name)
    }

    fn adopt(&self, name: &str, spec: &InstanceSpec) -> anyhow::Result<Adopted> {
        process::adopt(&self.maker, name, spec)
    }
}

/// Instances that have their ports.
#[derive(Default)]
struct Begun {
    makings: Vec<Making>,
    failed: Vec<(String, anyhow::Error)>,
}

impl Batch for Begun {
    fn complete(self: Box<Self>) -> Vec<Outcome> {
        let made = Making::complete_all(self.makings).into_iter();
        let boxed = |making| Box::new(making) as Box<dyn Prepared>;
        let made = made.map(|(name, made)| (name, made.map(boxed)));
        let failed = self.failed.into_iter();
        made.chain(failed.map(|(name, why)| (name, Err(why))))
            .collect()
    }
}

impl Prepared for Making {
    fn take_laps(&mut self) -> Vec<Lap> {
        Making::take_laps(self)
    }

    fn core(&self) -> Option<u32> {
        Making::core(self)
    }

    fn keep(self: Box<Self>) -> anyhow::Result<Box<dyn Workload>> {
        Ok(Box::new(Making::keep(*self)?))
    }
}
