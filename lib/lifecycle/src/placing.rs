//! Placement of instances on cores: measured, chosen and changed by [`nfluid_control::balance`].

use crate::cores::{pinned_to, usable, width};
use crate::machine;
use crate::running::Running;
use crate::services::{Services, report};
use crate::table::Instances;
use anyhow::Context as _;
use nfluid_api::types::EventKind;
use nfluid_control::balance::{Move, Placed, Rules, first_core, moves, violated_guarantees};
use nfluid_control::group::Groups;
use nfluid_control::placement::Placement;
use nfluid_control::promise::parts;
use nfluid_control::quantity::{Millis, Share};
use nfluid_control::spec::{InstanceSpec, Resources};
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval between calls of [`balance`] and [`report_guarantees`].
pub const ROUND: Duration = Duration::from_secs(1);

/// Returns an instance on a core without any measurement yet.
fn on_core(name: &str, spec: &InstanceSpec, core: u32, promised: f64) -> Placed {
    let guaranteed = spec
        .resources
        .guarantee
        .map_or(0, |it| it.hundredths(machine::cpu_count()));
    Placed {
        name: name.to_owned(),
        core,
        width: width(spec),
        allowed: usable(&spec.resources),
        placement: spec.resources.placement,
        load: 0.0,
        promised,
        guaranteed: guaranteed as f64 / f64::from(Share::FULL.hundredths()),
        since: Millis(0),
    }
}

/// The instances on each core and their promised shares, while a plan places instances.
#[derive(Default)]
pub struct Placings {
    placed: Vec<Placed>,
    promised: BTreeMap<String, f64>,
}

impl Placings {
    /// Chooses the core for an instance that is to start, and counts the instance for later calls. `None` if the
    /// kernel places the instance.
    pub fn core_for(&mut self, name: &str, spec: &InstanceSpec) -> Option<u32> {
        if spec.resources.placement == Placement::Free {
            return None;
        }
        let promised = self.promised.get(name).copied().unwrap_or(0.0);
        let mut one = on_core(name, spec, 0, promised);
        one.core = first_core(&self.placed, &one, Rules::default())?;
        let core = one.core;
        self.placed.push(one);
        Some(core)
    }
}

impl Instances {
    /// Returns the promised shares of the running instances, and of those in `coming` as they will be.
    fn promised(&self, coming: &[(&str, &InstanceSpec)], groups: &Groups) -> BTreeMap<String, f64> {
        let is_coming = |name: &str| coming.iter().any(|(other, _)| *other == name);
        let running = self
            .iter()
            .filter(|(name, _)| !is_coming(name))
            .map(|(name, running)| (name.as_str(), &running.spec.resources));
        let coming = coming.iter().map(|(name, spec)| (*name, &spec.resources));
        let all: Vec<(&str, &Resources)> = running.chain(coming).collect();
        let parts = parts(groups, &all, machine::cpu_count());
        parts
            .into_iter()
            .map(|(name, part)| (name.to_owned(), part))
            .collect()
    }

    /// Returns all instances that are on a core by their placement.
    fn placed(&self, promised: &BTreeMap<String, f64>) -> Vec<Placed> {
        let placed = |(name, running): (&String, &Running)| {
            let promised = promised.get(name).copied().unwrap_or(0.0);
            Some(Placed {
                load: running.load.mean.unwrap_or(0.0),
                since: running.moved_at,
                ..on_core(name, &running.spec, running.core?, promised)
            })
        };
        self.iter().filter_map(placed).collect()
    }

    /// Returns the cores and promised shares of all placed instances, as they will be in `groups` once `coming` have
    /// been added. Empty if the kernel places all of `coming`.
    pub fn placings(&self, coming: &[(&str, &InstanceSpec)], groups: &Groups) -> Placings {
        let is_put =
            |(_, spec): &(&str, &InstanceSpec)| spec.resources.placement != Placement::Free;
        if !coming.iter().any(is_put) {
            return Placings::default();
        }
        let promised = self.promised(coming, groups);
        let mut placed = self.placed(&promised);
        placed.retain(|one| !coming.iter().any(|(name, _)| *name == one.name));
        Placings { placed, promised }
    }

    /// Returns the shares promised to instances that have I/O threads, as a part of a core.
    pub fn promised_to_served(&self, groups: &Groups) -> f64 {
        let promised = self.promised(&[], groups);
        let served = self
            .iter()
            .filter(|(_, running)| running.spec.io.has_threads());
        served.filter_map(|(name, _)| promised.get(name)).sum()
    }

    /// Moves a running instance to the CPUs that `resources` name. Does nothing if the instance is there already.
    ///
    /// # Errors
    /// The kernel refuses, and the instance is where it was.
    pub fn put_on_cores(
        &mut self,
        name: &str,
        resources: &Resources,
        groups: &Groups,
    ) -> anyhow::Result<()> {
        let running = self.find(name)?;
        let stays = running.core.filter(|core| {
            resources.placement != Placement::Free && usable(resources).contains(core)
        });
        let spec = InstanceSpec {
            resources: resources.clone(),
            ..running.spec.clone()
        };
        let core = stays.or_else(|| {
            let mut placings = self.placings(&[(name, &spec)], groups);
            placings.core_for(name, &spec)
        });
        self.move_to(name, &spec, core)
    }

    fn move_to(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
        core: Option<u32>,
    ) -> anyhow::Result<()> {
        let now = self.now();
        let running = self.find_mut(name)?;
        running.workload.run_on(&pinned_to(spec, core))?;
        if running.core != core {
            running.core = core;
            running.moved_at = now;
            running.workload.record_mut().core = core;
            running
                .workload
                .save_record()
                .context("writing down its core")?;
        }
        Ok(())
    }
}

/// Reports each instance whose core cannot give it its guaranteed CPU share. Each violation is reported once, until
/// the guarantee holds again.
pub fn report_guarantees(services: &mut dyn Services) {
    let has_one =
        |running: &Running| running.core.is_some() && running.spec.resources.guarantee.is_some();
    let instances = services.instances();
    if instances.violated_guarantees.is_empty() && !instances.values().any(has_one) {
        return;
    }
    let placed = instances.placed(&instances.promised(&[], services.groups()));
    let now: BTreeMap<String, f64> = violated_guarantees(&placed)
        .into_iter()
        .map(|(one, left)| (one.name.clone(), left))
        .collect();
    let before = std::mem::take(&mut services.instances_mut().violated_guarantees);
    for (name, left) in &now {
        if !before.contains(name) {
            let percent = left * 100.0;
            let message = format!(
                "its guarantee does not hold: when all on its core want the CPU, {percent:.1}% is left; lower shares there, \
                 or give it other 'cpus'"
            );
            report(services, EventKind::Warning, name, message);
        }
    }
    services.instances_mut().violated_guarantees = now.into_keys().collect();
}

/// Measures loads, and moves instances to better cores.
pub fn balance(services: &mut dyn Services) {
    let instances = services.instances_mut();
    let is_moved = |running: &Running| running.spec.resources.placement.is_moved();
    if !instances.values().any(is_moved) {
        return;
    }
    for running in instances.values_mut() {
        if running.has_process() && running.core.is_some() {
            running.load.measure(running.workload.busy_time());
        }
    }
    let instances = services.instances();
    let placed = instances.placed(&instances.promised(&[], services.groups()));
    for step in moves(&placed, instances.now(), Rules::default()) {
        carry_out(services, &step);
    }
}

fn carry_out(services: &mut dyn Services, step: &Move) {
    let instances = services.instances_mut();
    let Some(running) = instances.get(&step.name) else {
        return;
    };
    let spec = running.spec.clone();
    match instances.move_to(&step.name, &spec, Some(step.to)) {
        Ok(()) => {
            let message = format!("from core {} to {}: {}", step.from, step.to, step.why);
            report(services, EventKind::Moved, &step.name, message);
        }
        Err(why) => {
            // Not tried again before the instance's dwell time has passed.
            let now = instances.now();
            if let Some(running) = instances.get_mut(&step.name) {
                running.moved_at = now;
            }
            let message = format!("not moved from core {} to {}: {why:#}", step.from, step.to);
            report(services, EventKind::Warning, &step.name, message);
        }
    }
}
