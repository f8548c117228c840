//! The actions of a plan, one by one.

use super::instance::{Running, cgroup_name, port_specs, supervisor_time};
use super::record::Record;
use super::wires::failed;
use super::{Host, Shared, bells, launch, lock, nf_socket};
use anyhow::Context;
use nfluid_api::types::{EventKind, InstanceState, Kind};
use nfluid_control::action::Action;
use nfluid_control::apply::{Platform, PlatformError, PlatformErrorKind};
use nfluid_control::model::{PortRef, Restart, Switch as SwitchModel};
use nfluid_control::spec::{InstanceSpec, Resources, UplinkSpec};
use nfluid_control::supervise::Supervisor;
use nfluid_control::wiring::Destination;
use nfluid_sandbox::cgroup::{Cgroup, Share};
use nfluid_switch::InstanceMemory;
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Processes and threads that an instance may have.
const PIDS_MAX: u32 = 256;
/// How long a killed instance may take to be gone.
const DEATH: Duration = Duration::from_secs(5);

/// The host as the controller's platform.
pub struct HostPlatform(pub Shared);

/// An error of the actuator, for the operator.
fn error(error: anyhow::Error) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Failed, format!("{error:#}"))
}

impl Platform for HostPlatform {
    fn prepare(&mut self, actions: &[Action]) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        for action in actions {
            if let Action::Wire {
                port,
                new: Some(to),
                ..
            } = action
            {
                host.planned.insert(port.clone(), to.clone());
            }
            if let Action::CreateInstance { name, .. } | Action::ReplaceInstance { name, .. } =
                action
            {
                // A peer that starts earlier is given this bell.
                host.make_pipes(name).map_err(error)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        lock(&self.0).planned.clear();
    }

    fn create_switch(&mut self, name: &str, spec: &SwitchModel) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        let id = host
            .switch_ids
            .take(1)
            .ok_or_else(|| exhausted("switches"))?;
        host.switches.insert(name.to_owned(), (id, *spec));
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
        host.remove_instance(name).map_err(error)?;
        if let Err(why) = host.create_instance(name, new) {
            // As before: the old one is started again.
            host.create_instance(name, old).map_err(error)?;
            return Err(error(why));
        }
        host.event(
            EventKind::Replaced,
            Some((Kind::Instance, name)),
            "replaced",
        );
        Ok(())
    }

    fn reconfigure(&mut self, name: &str, config: &Value) -> Result<(), PlatformError> {
        let (control, config_with_seed) = {
            let host = lock(&self.0);
            let running = host.instances.get(name).ok_or_else(|| {
                PlatformError::new(
                    PlatformErrorKind::NotFound,
                    format!("there is no instance {name}"),
                )
            })?;
            let seeded = launch::seeded(&running.spec.program, config, running.record.seed);
            (host.settings.paths.control(name), seeded)
        };
        let request = json!({ "op": "reconfigure", "config": config_with_seed });
        nf_socket::ask(&control, &request)
            .map_err(|why| PlatformError::new(PlatformErrorKind::Refused, format!("{why:#}")))?;
        let mut host = lock(&self.0);
        host.change_record(name, |running| running.spec.config = config.clone())
            .map_err(error)
    }

    fn resize(&mut self, name: &str, resources: &Resources) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        if let Some(running) = host.instances.get(name) {
            set_resources(&running.cgroup, resources).map_err(error)?;
        }
        host.change_record(name, |running| running.spec.resources = resources.clone())
            .map_err(error)
    }

    fn set_restart(&mut self, name: &str, restart: &Restart) -> Result<(), PlatformError> {
        let restart = *restart;
        let change = |running: &mut Running| {
            running.spec.restart = restart;
            running.supervisor.set_restart(restart);
        };
        lock(&self.0).change_record(name, change).map_err(error)
    }

    fn remove_instance(&mut self, name: &str) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        host.remove_instance(name).map_err(error)?;
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

/// Weight, cap and memory of an instance's cgroup.
fn set_resources(cgroup: &Cgroup, resources: &Resources) -> anyhow::Result<()> {
    let share = |share: nfluid_control::quantity::Share| {
        Share::from_per_mille(((share.percent() * 10.0).round() as u32).max(1))
    };
    // Without a promise: as little as there is, so that promises hold.
    let weight = resources
        .share
        .map_or_else(|| Share::from_per_mille(1), share)?;
    cgroup.set_weight(weight)?;
    cgroup.set_cap(resources.cap.map(share).transpose()?)?;
    cgroup.set_memory(resources.memory.0)?;
    cgroup.set_pids(PIDS_MAX)?;
    Ok(())
}

impl Host {
    /// The doorbell and the log pipe of an instance, and that the daemon reads the log.
    pub(super) fn make_pipes(&self, name: &str) -> anyhow::Result<()> {
        let paths = &self.settings.paths;
        bells::make(&paths.bell(name)).context("making the doorbell")?;
        bells::make(&paths.log_pipe(name)).context("making the log pipe")?;
        let bell = bells::open_both(&paths.bell(name)).context("opening the doorbell")?;
        let log = bells::open_both(&paths.log_pipe(name)).context("opening the log pipe")?;
        self.logs.follow(name, log, paths.log(name), bell);
        Ok(())
    }

    /// Makes and starts an instance; takes back everything if that fails.
    pub(super) fn create_instance(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
    ) -> anyhow::Result<()> {
        self.make_pipes(name)?;
        let ports = spec.ports.len() as u32;
        let first_port = self
            .port_ids
            .take(ports)
            .context("the platform has no room for more ports")?;
        let pool = self
            .pool_ids
            .take(1)
            .context("the platform has no room for more instances")?;
        let user = self
            .user_ids
            .take(1)
            .context("the platform has no room for more instances")?;
        let spec_text = serde_json::to_string(spec)?;
        let seed = RandomState::new().hash_one(name);
        let record = Record {
            spec: spec_text,
            first_port,
            pool,
            user,
            seed,
            ..Record::default()
        };
        match self.build(name, spec, record.clone()) {
            Ok(running) => {
                self.instances.insert(name.to_owned(), running);
                Ok(())
            }
            Err(why) => {
                self.give_back(name, &record, ports);
                Err(why)
            }
        }
    }

    fn build(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
        mut record: Record,
    ) -> anyhow::Result<Running> {
        let specs = port_specs(spec, record.first_port);
        let mut memory = InstanceMemory::create(&self.switch, record.pool, &specs)?;
        let pins = self.settings.paths.instance_pins(name);
        // Left by a daemon that died in between.
        let _ = std::fs::remove_dir_all(&pins);
        memory.pin(&pins)?;
        let cgroup = match self.cgroups.create(&cgroup_name(name)) {
            Ok(cgroup) => cgroup,
            Err(_) => {
                self.cgroups.open(&cgroup_name(name))?.remove()?;
                self.cgroups.create(&cgroup_name(name))?
            }
        };
        let started = set_resources(&cgroup, &spec.resources)
            .and_then(|()| self.launch(name, spec, &memory, &cgroup, &record));
        let (process, bells) = match started {
            Ok(started) => started,
            Err(why) => {
                let _ = cgroup.remove();
                let _ = self.switch.remove(&memory);
                return Err(why);
            }
        };
        record.process = Some(process.identity().into());
        record.bells = bells;
        record
            .save(&self.settings.paths.record(name))
            .context("writing down the instance")?;
        Ok(Running {
            spec: spec.clone(),
            memory,
            cgroup,
            process: Some(process),
            supervisor: Supervisor::new(spec.restart, supervisor_time(self.started)),
            state: InstanceState::Running,
            last_exit: None,
            since: Instant::now(),
            record,
        })
    }

    fn give_back(&mut self, name: &str, record: &Record, ports: u32) {
        for id in record.first_port..record.first_port + ports {
            self.port_ids.free(id);
        }
        self.pool_ids.free(record.pool);
        self.user_ids.free(record.user);
        let paths = &self.settings.paths;
        let _ = std::fs::remove_dir_all(paths.instance_pins(name));
        for file in [
            paths.record(name),
            paths.bell(name),
            paths.log_pipe(name),
            paths.control(name),
        ] {
            let _ = std::fs::remove_file(file);
        }
        self.logs.forget(name);
    }

    /// Kills and removes an instance.
    pub(super) fn remove_instance(&mut self, name: &str) -> anyhow::Result<()> {
        let Some(running) = self.instances.remove(name) else {
            return Ok(());
        };
        let Running {
            memory,
            cgroup,
            process,
            record,
            ..
        } = running;
        if let Some(process) = process {
            process.kill()?;
            process.wait_timeout(DEATH)?;
        }
        cgroup.remove()?;
        self.switch.remove(&memory)?;
        self.give_back(name, &record, memory.ports.len() as u32);
        Ok(())
    }

    /// Starts the successor of an instance that has ended, on the same ports.
    pub(super) fn start_again(&mut self, name: &str) -> anyhow::Result<()> {
        let running = self
            .instances
            .get(name)
            .context("there is no such instance")?;
        let started = self.launch(
            name,
            &running.spec,
            &running.memory,
            &running.cgroup,
            &running.record,
        );
        let (process, bells) = started?;
        let time = supervisor_time(self.started);
        let path = self.settings.paths.record(name);
        let switch = std::sync::Arc::clone(&self.switch);
        let running = self
            .instances
            .get_mut(name)
            .context("there is no such instance")?;
        running.record.process = Some(process.identity().into());
        running.record.bells = bells;
        running.process = Some(process);
        running.state = InstanceState::Running;
        running.since = Instant::now();
        running.supervisor.started(time);
        running
            .record
            .save(&path)
            .context("writing down the instance")?;
        switch.revive(&running.memory);
        Ok(())
    }

    fn change_record(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Running),
    ) -> anyhow::Result<()> {
        let path = self.settings.paths.record(name);
        let running = self
            .instances
            .get_mut(name)
            .context("there is no such instance")?;
        change(running);
        running.record.spec = serde_json::to_string(&running.spec)?;
        running
            .record
            .save(&path)
            .context("writing down the instance")
    }

    /// An operator's restart: the process is killed, past failures are forgiven.
    pub fn restart(&mut self, name: &str) -> Result<(), PlatformError> {
        let Some(running) = self.instances.get_mut(name) else {
            return Err(PlatformError::new(
                PlatformErrorKind::NotFound,
                format!("there is no instance {name}"),
            ));
        };
        running.supervisor.forgive();
        if let Some(process) = running.process.take() {
            process.kill().map_err(|why| error(why.into()))?;
            process
                .wait_timeout(DEATH)
                .map_err(|why| error(why.into()))?;
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
