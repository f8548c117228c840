//! The actions of a plan, one by one.

use super::errors::{error, exhausted};
use super::terminator::drain;
use super::{Shared, lock};
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::action::Action;
use nfluid_control::apply::{Platform, PlatformError, PlatformErrorKind};
use nfluid_control::congestion::Congestion;
use nfluid_control::group::Group;
use nfluid_control::health::Health;
use nfluid_control::inventory::Ways;
use nfluid_control::io::{IoModel, IoSettings};
use nfluid_control::model::{PortRef, Restart, Switch as SwitchModel};
use nfluid_control::pool::Pools;
use nfluid_control::spec::{InstanceSpec, Resources, UplinkSpec};
use nfluid_control::stopwatch::Lap;
use nfluid_control::wake::Wake;
use nfluid_control::wiring::Destination;
use nfluid_lifecycle::services::Services as _;
use nfluid_lifecycle::{creation, limits, scaling, upgrade};
use nfluid_protocol::Request;
use nfluid_protocol::daemon::Budget;
use serde_json::Value;

/// The host as the controller's platform, and how long the change that it carries out may still wait for NFs.
pub struct HostPlatform(Shared, Budget);

impl HostPlatform {
    /// Of this host.
    pub fn new(host: Shared) -> Self {
        HostPlatform(host, Budget::default())
    }
}

impl Platform for HostPlatform {
    fn create_group(&mut self, name: &str, spec: &Group) -> Result<(), PlatformError> {
        lock(&self.0).tenants.make(name, spec).map_err(error)
    }

    fn change_group(&mut self, name: &str, new: &Group) -> Result<(), PlatformError> {
        let host = &mut *lock(&self.0);
        let changed = host.tenants.change(&mut host.instances, name, new);
        changed.map_err(error)?;
        host.weigh_io();
        Ok(())
    }

    fn remove_group(&mut self, name: &str) -> Result<(), PlatformError> {
        // The cgroup goes when the plan is carried out: what is left of instances that the plan has ended is taken down then.
        let mut host = lock(&self.0);
        host.tenants.remove(name);
        host.groups_change = true;
        Ok(())
    }

    fn prepare(&mut self, actions: &[Action]) -> Result<(), PlatformError> {
        let begun = lock(&self.0).begin(actions).map_err(error)?;
        // Not under the lock: others go on meanwhile.
        let made = begun.complete();
        lock(&self.0).prepared.extend(made);
        Ok(())
    }

    fn finish(&mut self) {
        self.1 = Budget::default();
        let (unused, ended) = {
            let host = &mut *lock(&self.0);
            host.wires.end_plan();
            match host.plan_is_about.take() {
                Some(names) => names.iter().for_each(|name| host.note_change_of(name)),
                None => host.note_change(),
            }
            host.io.end_idle(&host.instances);
            (
                std::mem::take(&mut host.prepared),
                std::mem::take(&mut host.ended),
            )
        };
        // Not under the lock: what was made and is not used, and what was ended, is removed here.
        drop(unused);
        drop(ended);
        let mut host = lock(&self.0);
        if std::mem::take(&mut host.groups_change) {
            host.tenants.remove_empty();
            host.pool.enter_groups(host.tenants.groups().clone());
        }
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
        let members = host.wires.on_switch(name);
        for id in members.filter_map(|port| host.port_id(port)) {
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
        lock(&self.0).uplinks.remove(name)
    }

    fn create_instance(&mut self, name: &str, spec: &InstanceSpec) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        if spec.is_fast_path() {
            return host.with_fast(|fast| fast.create(name, spec));
        }
        host.create_instance(name, spec).map_err(error)?;
        if host.instances.is_doubtful(name)
            && let Some(running) = host.instances.get(name)
        {
            // Before it has wires.
            running.workload.set_ports_up(false);
        }
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
        drain(&self.0, name);
        let mut host = lock(&self.0);
        host.take_out(name, old)?;
        let put = host.put_in(name, new).map_err(|why| {
            // As before: the old one is started again.
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

    fn upgrade_instance(
        &mut self,
        name: &str,
        _old: &InstanceSpec,
        new: &InstanceSpec,
    ) -> Result<(), PlatformError> {
        upgrade::succeed(&self.0, name, new).map(drop)
    }

    fn reconfigure(&mut self, name: &str, config: &Value) -> Result<(), PlatformError> {
        if lock(&self.0).is_fast(name) {
            return lock(&self.0).with_fast(|fast| fast.reconfigure(name, config));
        }
        let (control, old, new) = {
            let host = lock(&self.0);
            host.instances.check_awake(name)?;
            let running = host.instances.find(name)?;
            let seed = running.record().seed;
            let seeded =
                |config| nfluid_instance::launch::seeded(&running.spec.program, config, seed);
            let control = running.workload.control().to_owned();
            (control, seeded(&running.spec.config), seeded(config))
        };
        let budget = &mut self.1;
        let mut request = |config: &Value| {
            let request = Request::Reconfigure {
                config: config.clone(),
            };
            budget.ask_about(&control, &request, None)
        };
        request(&new)
            .map_err(|why| PlatformError::new(PlatformErrorKind::Refused, format!("{why:#}")))?;
        let changed = {
            let mut host = lock(&self.0);
            host.instances
                .change_spec(name, |spec| spec.config = config.clone())
        };
        changed.map_err(|why| {
            if let Err(again) = request(&old) {
                tracing::warn!(instance = name, error = %format!("{again:#}"), "the new configuration stays");
            }
            error(why)
        })
    }

    fn resize(&mut self, name: &str, resources: &Resources) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        host.instances.find(name)?;
        limits::resize(&mut *host, name, resources).map_err(error)
    }

    fn set_restart(&mut self, name: &str, restart: &Restart) -> Result<(), PlatformError> {
        let mut host = lock(&self.0);
        host.instances
            .change_spec(name, |spec| spec.restart = *restart)
            .map_err(error)?;
        if let Some(running) = host.instances.get_mut(name) {
            running.supervisor.set_restart(*restart);
        }
        Ok(())
    }

    fn set_wake(&mut self, name: &str, wake: Option<Wake>) -> Result<(), PlatformError> {
        let instances = &mut lock(&self.0).instances;
        let running = instances.find(name)?;
        let old = running.spec.wake;
        running
            .workload
            .set_wake(wake)
            .and_then(|()| instances.change_spec(name, |spec| spec.wake = wake))
            .map_err(|why| {
                let running = instances.get(name);
                if let Some(Err(again)) = running.map(|it| it.workload.set_wake(old)) {
                    tracing::warn!(instance = name, error = %format!("{again:#}"), "some ports keep the new wake");
                }
                error(why)
            })
    }

    fn set_health(&mut self, name: &str, health: Option<&Health>) -> Result<(), PlatformError> {
        let changed = {
            let mut host = lock(&self.0);
            host.instances
                .change_spec(name, |spec| spec.health = health.cloned())
        };
        changed.map_err(error)
    }

    fn set_order(&mut self, name: &str, order: Option<u16>) -> Result<(), PlatformError> {
        lock(&self.0).with_fast(|fast| fast.set_order(name, order))
    }

    fn set_io(&mut self, name: &str, model: IoModel) -> Result<(), PlatformError> {
        let host = &mut *lock(&self.0);
        let changed = host.io.change_model(&mut host.instances, name, model);
        changed.map_err(error)?;
        host.weigh_io();
        Ok(())
    }

    fn set_io_settings(&mut self, settings: &IoSettings) -> Result<(), PlatformError> {
        lock(&self.0).io.change_settings(settings).map_err(error)
    }

    fn set_congestion(&mut self, congestion: &Congestion) -> Result<(), PlatformError> {
        let orders = lock(&self.0).congestion();
        orders.change_orders(|orders| orders.set_laws(congestion));
        Ok(())
    }

    fn set_ways(&mut self, ways: &Ways) -> Result<(), PlatformError> {
        let orders = lock(&self.0).congestion();
        orders.change_orders(|orders| orders.set_ways(ways));
        Ok(())
    }

    fn set_pools(&mut self, pools: &Pools) -> Result<(), PlatformError> {
        let pool = {
            let host = lock(&self.0);
            host.maker.groups.plan_pools(pools);
            host.pool()
        };
        pool.set(pools);
        Ok(())
    }

    fn scale(&mut self, name: &str, old: u16, new: u16) -> Result<(), PlatformError> {
        scaling::scale(&self.0, name, old, new)
    }

    fn remove_instance(&mut self, name: &str) -> Result<(), PlatformError> {
        drain(&self.0, name);
        let counts = scaling::counts_of(&self.0, name, &mut self.1);
        let mut host = lock(&self.0);
        if host.is_fast(name) {
            host.with_fast(|fast| fast.remove(name))?;
        } else {
            let ended = creation::end(&mut *host, name).map_err(error)?;
            host.ended.extend(ended);
            host.instances.forget_doorbell(name);
        }
        host.event(EventKind::Removed, Some((Kind::Instance, name)), "removed");
        drop(host);
        if let Some(counts) = counts {
            counts.leave(&mut self.1);
        }
        Ok(())
    }

    fn wire(&mut self, port: &PortRef, to: Option<&Destination>) -> Result<(), PlatformError> {
        lock(&self.0).connect(port, to)
    }

    fn laps(&mut self) -> Vec<Lap> {
        std::mem::take(&mut lock(&self.0).laps)
    }
}
