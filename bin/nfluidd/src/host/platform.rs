//! The actions of a plan, one by one.

use super::instance::{set_resources, supervisor_time};
use super::making::{self, Making};
use super::wires::failed;
use super::{Host, Shared, launch, lock, nf_socket};
use anyhow::Context;
use nfluid_api::types::{EventKind, InstanceState, Kind};
use nfluid_control::action::Action;
use nfluid_control::apply::{Platform, PlatformError, PlatformErrorKind};
use nfluid_control::model::{PortRef, Restart, Switch as SwitchModel};
use nfluid_control::spec::{InstanceSpec, Resources, UplinkSpec};
use nfluid_control::supervise::Supervisor;
use nfluid_control::wiring::Destination;
use serde_json::{Value, json};
use std::time::Instant;

/// The host as the controller's platform.
pub struct HostPlatform(pub Shared);

/// An error of the actuator, for the operator.
fn error(error: anyhow::Error) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Failed, format!("{error:#}"))
}

impl Platform for HostPlatform {
    fn prepare(&mut self, actions: &[Action]) -> Result<(), PlatformError> {
        let begun = lock(&self.0).begin(actions).map_err(error)?;
        // Not under the lock: others go on meanwhile.
        let made = Making::complete_all(begun);
        lock(&self.0).prepared.extend(made);
        Ok(())
    }

    fn finish(&mut self) {
        let (mut unused, mut ended) = {
            let mut host = lock(&self.0);
            host.planned.clear();
            let prepared = std::mem::take(&mut host.prepared);
            let unused: Vec<Making> = prepared.into_values().flatten().collect();
            (unused, std::mem::take(&mut host.ended))
        };
        unused.append(&mut ended);
        Making::take_back(&mut unused);
    }

    fn create_switch(&mut self, name: &str, spec: &SwitchModel) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        let id = host
            .number_switch(name)
            .ok_or_else(|| exhausted("switches"))?;
        host.switches.insert(name.to_owned(), (id, *spec));
        host.record_switches();
        Ok(())
    }

    fn update_switch(&mut self, name: &str, new: &SwitchModel) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        if let Some((_, model)) = host.switches.get_mut(name) {
            *model = *new;
        }
        let members = host
            .wires
            .iter()
            .filter(|(_, to)| to.switch() == Some(name));
        for id in members.filter_map(|(port, _)| host.port_id(port)) {
            host.limit_learning(id, new);
        }
        Ok(())
    }

    fn remove_switch(&mut self, name: &str) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        if let Some((id, _)) = host.switches.remove(name) {
            host.switch_ids.free(id);
            host.record_switches();
        }
        Ok(())
    }

    fn create_uplink(&mut self, name: &str, spec: &UplinkSpec) -> Result<(), PlatformError> {
        lock(&self.0).create_uplink(name, spec)
    }

    fn remove_uplink(&mut self, name: &str) -> Result<(), PlatformError> {
        lock(&self.0).remove_uplink(name)
    }

    fn create_instance(&mut self, name: &str, spec: &InstanceSpec) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        host.create_instance(name, spec).map_err(error)?;
        host.event(
            EventKind::Started,
            Some((Kind::Instance, name)),
            format!("{} runs", spec.program.name()),
        );
        Ok(())
    }

    fn replace_instance(
        &mut self,
        name: &str,
        old: &InstanceSpec,
        new: &InstanceSpec,
    ) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        let mut ended = host.end_instance(name).map_err(error)?;
        if let Some(ended) = &mut ended {
            ended.leave_bell();
        }
        drop(ended);
        if let Err(why) = host.create_instance(name, new) {
            // As before: the old one is started again.
            return Err(error(match host.create_instance(name, old) {
                Ok(()) => why,
                Err(again) => why.context(format!(
                    "the former instance could not be started again ({again:#})"
                )),
            }));
        }
        host.event(
            EventKind::Replaced,
            Some((Kind::Instance, name)),
            "replaced",
        );
        Ok(())
    }

    fn reconfigure(&mut self, name: &str, config: &Value) -> Result<(), PlatformError> {
        let (control, old, new) = {
            let host = lock(&self.0);
            let running = host.instances.get(name).ok_or_else(|| no_instance(name))?;
            let seeded =
                |config| launch::seeded(&running.spec.program, config, running.record.seed);
            let control = host.settings.paths.control(name);
            (control, seeded(&running.spec.config), seeded(config))
        };
        let request = |config: &Value| {
            let request = json!({ "op": "reconfigure", "config": config });
            nf_socket::ask(&control, &request)
        };
        request(&new)
            .map_err(|why| PlatformError::new(PlatformErrorKind::Refused, format!("{why:#}")))?;
        let changed = lock(&self.0).change_spec(name, |spec| spec.config = config.clone());
        changed.map_err(|why| {
            if let Err(again) = request(&old) {
                tracing::warn!(instance = name, error = %format!("{again:#}"), "the new configuration stays");
            }
            error(why)
        })
    }

    fn resize(&mut self, name: &str, resources: &Resources) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        let running = host.instances.get(name).ok_or_else(|| no_instance(name))?;
        let old = running.spec.resources.clone();
        set_resources(&running.cgroup, resources)
            .and_then(|()| host.change_spec(name, |spec| spec.resources = resources.clone()))
            .map_err(|why| {
                let running = host.instances.get(name);
                if let Some(Err(again)) =
                    running.map(|running| set_resources(&running.cgroup, &old))
                {
                    tracing::warn!(instance = name, error = %format!("{again:#}"), "some of the new limits stay");
                }
                error(why)
            })
    }

    fn set_restart(&mut self, name: &str, restart: &Restart) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        host.change_spec(name, |spec| spec.restart = *restart)
            .map_err(error)?;
        if let Some(running) = host.instances.get_mut(name) {
            running.supervisor.set_restart(*restart);
        }
        Ok(())
    }

    fn remove_instance(&mut self, name: &str) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        let ended = host.end_instance(name).map_err(error)?;
        host.ended.extend(ended);
        host.forget_bell(name);
        host.event(EventKind::Removed, Some((Kind::Instance, name)), "removed");
        Ok(())
    }

    fn wire(&mut self, port: &PortRef, to: Option<&Destination>) -> Result<(), PlatformError> {
        lock(&self.0).connect(port, to)
    }
}

fn exhausted(what: &str) -> PlatformError {
    PlatformError::new(
        PlatformErrorKind::Exhausted,
        format!("the platform has no room for more {what}"),
    )
}

fn no_instance(name: &str) -> PlatformError {
    PlatformError::new(
        PlatformErrorKind::NotFound,
        format!("there is no instance {name}"),
    )
}

impl Host {
    /// Begins all instances that a plan will create, and makes the ports of all at once. What fails
    /// for one of them is told when the plan comes to it.
    ///
    /// # Errors
    /// A pipe of an instance that is to be replaced cannot be made.
    fn begin(&mut self, actions: &[Action]) -> anyhow::Result<Vec<Making>> {
        for action in actions {
            match action {
                Action::Wire {
                    port,
                    new: Some(to),
                    ..
                } => drop(self.planned.insert(port.clone(), to.clone())),
                // A peer that starts earlier is given this bell.
                Action::ReplaceInstance { name, .. } => self.maker.make_pipes(name)?,
                _ => {}
            }
        }
        let mut begun = Vec::new();
        for action in actions {
            let Action::CreateInstance { name, spec } = action else {
                continue;
            };
            let peers = self.link_peers(name, spec);
            match Making::begin(&self.maker, name, spec, peers) {
                Ok(making) => begun.push(making),
                Err(why) => drop(self.prepared.insert(name.clone(), Err(why))),
            }
        }
        if Making::enter(&mut begun).is_err() {
            // Then one by one, when the plan comes to them: the error is of one of them alone.
            begun.clear();
        }
        Ok(begun)
    }

    /// Makes and starts an instance; takes back everything if that fails.
    fn create_instance(&mut self, name: &str, spec: &InstanceSpec) -> anyhow::Result<()> {
        let making = match self.prepared.remove(name) {
            Some(prepared) => prepared?,
            None => {
                // Its own end may be the one that is being undone.
                self.ended.retain(|ended| ended.name() != name);
                self.make(name, spec)?
            }
        };
        let supervisor = Supervisor::new(spec.restart, supervisor_time(self.started));
        let running = making.keep(supervisor)?;
        self.instances.insert(name.to_owned(), running);
        Ok(())
    }

    fn make(&self, name: &str, spec: &InstanceSpec) -> anyhow::Result<Making> {
        let peers = self.link_peers(name, spec);
        let mut making = Making::begin(&self.maker, name, spec, peers)?;
        Making::enter(std::slice::from_mut(&mut making))?;
        making.complete()?;
        Ok(making)
    }

    /// Kills an instance. What is left of it is taken down when the result is dropped.
    ///
    /// # Errors
    /// It cannot be killed, and runs as before.
    fn end_instance(&mut self, name: &str) -> anyhow::Result<Option<Making>> {
        let Some(running) = self.instances.get_mut(name) else {
            return Ok(None);
        };
        if let Some(process) = &running.process {
            making::end(process)?;
            running.process = None;
        }
        let running = self.instances.remove(name);
        Ok(running.map(|running| Making::of(&self.maker, name, running)))
    }

    /// Notes that nobody can ring instance `name` any more: a later one of that name has another
    /// doorbell, which those that run now do not hold.
    fn forget_bell(&mut self, name: &str) {
        for (holder, running) in &mut self.instances {
            let bells = running.record.bells.iter_mut();
            let stale: Vec<_> = bells.filter(|bell| bell.as_deref() == Some(name)).collect();
            if stale.is_empty() {
                continue;
            }
            stale.into_iter().for_each(|bell| *bell = None);
            if let Err(error) = running.record.save(&self.settings.paths.record(holder)) {
                tracing::warn!(instance = holder, %error, "writing down a bell that is gone");
            }
        }
    }

    /// Starts the successor of an instance that has ended, on the same ports.
    pub(super) fn start_again(&mut self, name: &str) -> anyhow::Result<()> {
        let running = self
            .instances
            .get(name)
            .context("there is no such instance")?;
        let peers = self.link_peers(name, &running.spec);
        let process = self.maker.launch(
            name,
            &running.spec,
            &running.memory,
            &running.cgroup,
            &running.record,
            &peers,
        )?;
        let mut record = running.record.clone();
        record.process = Some(process.identity().into());
        record.bells = peers;
        if let Err(why) = record.save(&self.settings.paths.record(name)) {
            making::end(&process)?;
            return Err(why).context("writing down the instance");
        }
        let time = supervisor_time(self.started);
        let running = self
            .instances
            .get_mut(name)
            .context("there is no such instance")?;
        running.record = record;
        running.process = Some(process);
        running.state = InstanceState::Running;
        running.since = Instant::now();
        running.supervisor.started(time);
        self.switch.revive(&running.memory);
        Ok(())
    }

    /// Writes down a change of an instance's specification, and only then makes it.
    fn change_spec(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut InstanceSpec),
    ) -> anyhow::Result<()> {
        let path = self.settings.paths.record(name);
        let running = self
            .instances
            .get_mut(name)
            .context("there is no such instance")?;
        let mut spec = running.spec.clone();
        change(&mut spec);
        let mut record = running.record.clone();
        record.spec = serde_json::to_string(&spec)?;
        record.save(&path).context("writing down the instance")?;
        running.spec = spec;
        running.record = record;
        Ok(())
    }

    /// An operator's restart: the process is killed, past failures are forgiven.
    pub fn restart(&mut self, name: &str) -> Result<(), PlatformError> {
        let Some(running) = self.instances.get_mut(name) else {
            return Err(no_instance(name));
        };
        running.supervisor.forgive();
        if let Some(process) = &running.process {
            making::end(process).map_err(error)?;
            running.process = None;
        }
        let lost = self
            .switch
            .reclaim(&self.instances[name].memory)
            .map_err(failed)?;
        self.event(
            EventKind::Restarting,
            Some((Kind::Instance, name)),
            format!("restarted on request; {lost} frames lost in its rings"),
        );
        self.start_again(name).map_err(error)
    }
}
