//! Instances on cores: measured, put and moved by [`nfluid_control::balance`].

use super::Host;
use crate::facts::ThisHost;
use anyhow::Context;
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::balance::{Move, Placed, Rules, first_core, moves, unkept};
use nfluid_control::group::Groups;
use nfluid_control::host::Host as _;
use nfluid_control::placement::Placement;
use nfluid_control::promise::parts;
use nfluid_control::quantity::{Millis, Share};
use nfluid_control::spec::{InstanceSpec, Resources};
use nfluid_instance::cores::{pin, pinned_to, usable, width};
use nfluid_instance::machine;
use nfluid_instance::running::{Running, supervisor_time};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often loads are measured and moves thought about.
pub const ROUND: Duration = Duration::from_secs(1);

/// An instance on a core, of which nothing is measured yet.
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

/// Who is where, and what was promised to whom, while instances are put on cores.
#[derive(Default)]
pub struct Placings {
    placed: Vec<Placed>,
    promised: BTreeMap<String, f64>,
}

impl Placings {
    /// The core for an instance that is to start; those that come after it count it. Nothing if the kernel decides.
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

impl Host {
    /// What was promised to the instances that run, those of `coming` as they will be.
    fn promised(&self, coming: &[(&str, &InstanceSpec)], groups: &Groups) -> BTreeMap<String, f64> {
        let is_coming = |name: &str| coming.iter().any(|(other, _)| *other == name);
        let running = self.instances.iter();
        let running = running
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

    /// All instances that are on a core by their placement.
    fn placed(&self, promised: &BTreeMap<String, f64>) -> Vec<Placed> {
        let placed = |(name, running): (&String, &Running)| {
            let promised = promised.get(name).copied().unwrap_or(0.0);
            Some(Placed {
                load: running.load.mean.unwrap_or(0.0),
                since: running.moved_at,
                ..on_core(name, &running.spec, running.core?, promised)
            })
        };
        self.instances.iter().filter_map(placed).collect()
    }

    /// Who is where, for instances that are to come, in the groups that there will be. Nobody is looked at if the kernel
    /// decides for all of them.
    pub(super) fn placings(&self, coming: &[(&str, &InstanceSpec)], groups: &Groups) -> Placings {
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

    /// Tells of guarantees that the cores do not give on which those are who have them, each once, until it holds again.
    pub(super) fn tell_of_guarantees(&mut self) {
        let has_one = |running: &Running| {
            running.core.is_some() && running.spec.resources.guarantee.is_some()
        };
        if self.unkept.is_empty() && !self.instances.values().any(has_one) {
            return;
        }
        let placed = self.placed(&self.promised(&[], &self.tenants));
        let now: BTreeMap<String, f64> = unkept(&placed)
            .into_iter()
            .map(|(one, left)| (one.name.clone(), left))
            .collect();
        let before = std::mem::take(&mut self.unkept);
        for (name, left) in &now {
            if !before.contains(name) {
                let percent = left * 100.0;
                let message = format!(
                    "its guarantee does not hold: when all on its core want the CPU, {percent:.1}% is left; lower shares there, \
                     or give it other 'cpus'"
                );
                self.event(EventKind::Warning, Some((Kind::Instance, name)), message);
            }
        }
        self.unkept = now.into_keys().collect();
    }

    /// What instances that have I/O threads were promised, as a part of a core.
    pub(super) fn promised_to_served(&self) -> f64 {
        let promised = self.promised(&[], &self.tenants);
        let served = self.instances.iter();
        let served = served.filter(|(_, running)| running.spec.io.has_threads());
        served.filter_map(|(name, _)| promised.get(name)).sum()
    }

    /// Puts a running instance where it is to be by what it may use; one that is there already stays.
    ///
    /// # Errors
    /// The kernel refuses, and it is where it was.
    pub(super) fn put_on_cores(&mut self, name: &str, resources: &Resources) -> anyhow::Result<()> {
        let running = self
            .instances
            .get(name)
            .context("there is no such instance")?;
        let stays = running.core.filter(|core| {
            resources.placement != Placement::Free && usable(resources).contains(core)
        });
        let spec = InstanceSpec {
            resources: resources.clone(),
            ..running.spec.clone()
        };
        let core = stays.or_else(|| {
            let mut placings = self.placings(&[(name, &spec)], &self.tenants);
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
        let now = supervisor_time(self.started);
        let path = self.settings.paths.record(name);
        let running = self
            .instances
            .get_mut(name)
            .context("there is no such instance")?;
        let cpus = pinned_to(spec, core);
        if running.pinned.as_ref() != Some(&cpus) {
            if let Some(process) = &running.process {
                let all = if cpus.is_empty() {
                    ThisHost.cpus()
                } else {
                    cpus.clone()
                };
                pin(process, &all)?;
            }
            running.pinned = Some(cpus);
        }
        if running.core != core {
            running.core = core;
            running.moved_at = now;
            running.record.core = core;
            nfluid_records::save(&running.record, &path).context("writing down its core")?;
        }
        Ok(())
    }

    /// Measures, and moves who had better be elsewhere.
    pub(super) fn balance(&mut self) {
        let mut instances = self.instances.values_mut();
        let is_moved = |running: &Running| running.spec.resources.placement.is_moved();
        if !instances.any(|running| is_moved(running)) {
            return;
        }
        for running in self.instances.values_mut() {
            if let (Some(process), Some(_)) = (&running.process, running.core) {
                running.load.measure(process);
            }
        }
        let now = supervisor_time(self.started);
        let placed = self.placed(&self.promised(&[], &self.tenants));
        for step in moves(&placed, now, Rules::default()) {
            self.carry_out(&step);
        }
    }

    fn carry_out(&mut self, step: &Move) {
        let Some(running) = self.instances.get(&step.name) else {
            return;
        };
        let spec = running.spec.clone();
        let subject = Some((Kind::Instance, step.name.as_str()));
        match self.move_to(&step.name, &spec, Some(step.to)) {
            Ok(()) => {
                let message = format!("from core {} to {}: {}", step.from, step.to, step.why);
                self.event(EventKind::Moved, subject, message);
            }
            Err(why) => {
                // Not tried again before it has dwelt.
                let now = supervisor_time(self.started);
                if let Some(running) = self.instances.get_mut(&step.name) {
                    running.moved_at = now;
                }
                let message = format!("not moved from core {} to {}: {why:#}", step.from, step.to);
                self.event(EventKind::Warning, subject, message);
            }
        }
    }
}
