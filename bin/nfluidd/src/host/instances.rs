//! Creation and end of instances, as a plan orders them.

use super::farewell::prepare_end;
use super::platform::HostPlatform;
use super::{Host, Shared, lock};
use nfluid_api::types::{EventKind, Kind, UpgradeReport};
use nfluid_control::access::Stop;
use nfluid_control::action::Action;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::setting::PlatformSetting;
use nfluid_control::spec::InstanceSpec;
use nfluid_instance::tenants;
use nfluid_lifecycle::errors::failed;
use nfluid_lifecycle::runtime::{Batch, Runtime as _};
use nfluid_lifecycle::services::Services;
use nfluid_lifecycle::{creation, scaling, supervision, upgrade};
use nfluid_protocol::Request;
use serde_json::Value;
use std::collections::BTreeSet;

/// Returns the instances that these actions create and end. `None` if the actions do more than create, end and
/// connect instances.
fn made_and_ended(actions: &[Action]) -> Option<BTreeSet<String>> {
    let about = |action: &Action| match action {
        Action::Instance(diff) if diff.old.is_none() || diff.new.is_none() => {
            Some(Some(diff.name.clone()))
        }
        Action::Wire { .. } | Action::Drain { .. } => Some(None),
        _ => None,
    };
    let names: Option<Vec<Option<String>>> = actions.iter().map(about).collect();
    Some(names?.into_iter().flatten().collect())
}

/// The instances that these actions create.
fn created(actions: &[Action]) -> impl Iterator<Item = (&str, &InstanceSpec)> {
    let created = actions.iter().filter_map(Action::created);
    created.filter(|(_, spec)| !spec.is_fast_path())
}

impl Host {
    /// Begins all instances that a plan will create, and creates the ports of all at once. A failure of one instance
    /// is reported when the plan comes to the instance.
    ///
    /// # Errors
    /// A pipe of an instance that is to be replaced cannot be created.
    pub(super) fn begin(&mut self, actions: &[Action]) -> anyhow::Result<Box<dyn Batch>> {
        self.groups_change = tenants::is_about_groups(actions);
        self.plan_is_about = made_and_ended(actions);
        self.laps.clear();
        let mut replaced = Vec::new();
        for action in actions {
            match action {
                Action::Wire {
                    port,
                    new: Some(to),
                    ..
                } => self.wires.plan(port, to),
                Action::Platform {
                    new: PlatformSetting::Pools(pools),
                    ..
                } => self.maker.groups.plan_pools(pools),
                _ => {}
            }
            if let Some((name, spec)) = action.replaced()
                && !spec.is_fast_path()
            {
                // A peer that starts earlier is given this doorbell.
                self.processes.make_doorbell(name)?;
                replaced.push(spec);
            }
        }
        let made = created(actions).map(|(_, spec)| spec).chain(replaced);
        self.processes.plan(&made.collect::<Vec<_>>());
        let coming: Vec<(&str, &InstanceSpec)> = created(actions).collect();
        let groups = tenants::planned(self.tenants.groups(), actions);
        let planned = creation::planned_instances(self, &coming, groups);
        Ok(self.processes.prepare(planned))
    }

    /// Ends an instance, before another instance takes its place.
    pub(super) fn take_out(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
    ) -> Result<(), PlatformError> {
        if spec.is_fast_path() {
            return self.with_fast(|fast| fast.reserve(name));
        }
        let mut ended = creation::end(self, name).map_err(failed)?;
        if let Some(ended) = &mut ended {
            ended.keep_doorbell();
        }
        Ok(())
    }

    pub(super) fn put_in(&mut self, name: &str, spec: &InstanceSpec) -> Result<(), PlatformError> {
        if spec.is_fast_path() {
            return self.with_fast(|fast| fast.create(name, spec));
        }
        self.create_instance(name, spec).map_err(failed)
    }

    /// Creates and starts an instance. Takes everything back if a step fails.
    pub(super) fn create_instance(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
    ) -> anyhow::Result<()> {
        let prepared = match self.prepared.remove(name) {
            Some(prepared) => prepared?,
            None => {
                // The end that is being undone may be this instance's own.
                self.ended.retain(|ended| ended.name() != name);
                creation::start(self, name, spec)?
            }
        };
        let laps = creation::take_up(self, name, spec, prepared)?;
        self.laps.extend(laps);
        self.set_io_weights();
        Ok(())
    }

    /// Restarts an instance on an operator's request.
    ///
    /// # Errors
    /// The instance goes on as before, or the restart policy decides about it.
    pub fn restart(&mut self, name: &str) -> Result<(), PlatformError> {
        if self.is_fast(name) {
            return self.with_fast(|fast| fast.restart(name));
        }
        supervision::restart(self, name)
    }

    /// Returns the reason why the I/O threads do not work, if they do not.
    pub fn io_problem(&self) -> Option<String> {
        self.io.problem(&self.instances)
    }
}

impl HostPlatform {
    /// Creates and starts an instance.
    pub(super) fn create_instance(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
    ) -> Result<(), PlatformError> {
        let mut host = lock(&self.host);
        host.put_in(name, spec)?;
        if spec.is_fast_path() {
            // The fast paths report their own events.
            return Ok(());
        }
        if host.instances.is_doubtful(name)
            && let Some(running) = host.instances.get(name)
        {
            // The ports stay shut until the instance has wires.
            running.workload.set_ports_up(false);
        }
        host.event(
            EventKind::Started,
            Some((Kind::Instance, name)),
            format!("{} runs", spec.program.name()),
        );
        Ok(())
    }

    /// Replaces an instance with another one.
    pub(super) fn replace_instance(
        &mut self,
        name: &str,
        old: &InstanceSpec,
        new: &InstanceSpec,
    ) -> Result<(), PlatformError> {
        // An instance that another host has can be removed here, but not replaced.
        lock(&self.host).instances.check_settled(name)?;
        let _ending = prepare_end(&self.host, name, Stop::default());
        let mut host = lock(&self.host);
        host.take_out(name, old)?;
        let put = host.put_in(name, new).map_err(|why| {
            // The replacement failed: the old instance is started again.
            match host.put_in(name, old) {
                Ok(()) => why,
                Err(again) => PlatformError {
                    message: format!(
                        "the former instance could not be started again ({again}): {}",
                        why.message
                    ),
                    ..why
                },
            }
        });
        host.with_fast(|fast| fast.release_reserved(name));
        put?;
        host.event(
            EventKind::Replaced,
            Some((Kind::Instance, name)),
            "replaced",
        );
        Ok(())
    }

    /// Gives a running NF a new configuration.
    pub(super) fn reconfigure(&mut self, name: &str, config: &Value) -> Result<(), PlatformError> {
        if lock(&self.host).is_fast(name) {
            return lock(&self.host).with_fast(|fast| fast.reconfigure(name, config));
        }
        let (control, old, new) = {
            let host = lock(&self.host);
            host.instances.check_awake(name)?;
            let running = host.instances.find(name)?;
            let seed = running.record().seed;
            let seeded =
                |config| nfluid_instance::seed::seeded(&running.spec.program, config, seed);
            let control = running.workload.control().to_owned();
            (control, seeded(&running.spec.config), seeded(config))
        };
        let budget = &mut self.budget;
        let mut request = |config: &Value| {
            let request = Request::Reconfigure {
                config: config.clone(),
            };
            budget.ask_about(&control, &request, None)
        };
        request(&new)
            .map_err(|why| PlatformError::new(PlatformErrorKind::Refused, format!("{why:#}")))?;
        let changed = {
            let mut host = lock(&self.host);
            host.instances
                .change_spec(name, |spec| spec.config = config.clone())
        };
        changed.map_err(|why| {
            if let Err(again) = request(&old) {
                tracing::warn!(instance = name, error = %format!("{again:#}"), "the new configuration stays");
            }
            failed(why)
        })
    }

    /// Stops and removes an instance.
    pub(super) fn remove_instance(&mut self, name: &str) -> Result<(), PlatformError> {
        let _ending = prepare_end(&self.host, name, Stop::default());
        let counts = scaling::counts_of(&self.host, name, &mut self.budget);
        let mut host = lock(&self.host);
        if host.is_fast(name) {
            host.with_fast(|fast| fast.remove(name))?;
        } else {
            let ended = creation::end(&mut *host, name).map_err(failed)?;
            host.ended.extend(ended);
            host.instances.forget_doorbell(name);
        }
        host.event(EventKind::Removed, Some((Kind::Instance, name)), "removed");
        drop(host);
        if let Some(counts) = counts {
            counts.leave(&mut self.budget);
        }
        Ok(())
    }
}

/// Upgrades an instance to the program that is installed now.
///
/// # Errors
/// The running process goes on.
pub fn upgrade(host: &Shared, name: &str) -> Result<UpgradeReport, PlatformError> {
    let spec = {
        let host = lock(host);
        let spec = upgrade::spec_to_upgrade(&*host, name)?;
        host.maker.programs.renew().map_err(failed)?;
        spec
    };
    upgrade::succeed(host, name, &spec)
}
