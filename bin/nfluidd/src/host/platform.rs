//! The actions of a plan, one method each.

use super::drain::drain;
use super::{Shared, lock};
use nfluid_control::action::Action;
use nfluid_control::apply::{Platform, PlatformError};
use nfluid_control::diff::Diff;
use nfluid_control::group::Group;
use nfluid_control::model::{PortRef, Switch as SwitchModel};
use nfluid_control::setting::{PlatformSetting, Setting};
use nfluid_control::spec::{InstanceSpec, UplinkSpec};
use nfluid_control::stopwatch::Lap;
use nfluid_control::wiring::Destination;
use nfluid_instance::tenants::is_about_groups;
use nfluid_lifecycle::errors::failed;
use nfluid_lifecycle::services::Services as _;
use nfluid_lifecycle::{machine, scaling, upgrade};
use nfluid_protocol::daemon::Budget;

/// The host as the controller's platform, with the time for which the change in progress may still wait for NFs.
pub struct HostPlatform {
    pub(super) host: Shared,
    pub(super) budget: Budget,
}

impl HostPlatform {
    /// Creates the platform of this host.
    pub fn new(host: Shared) -> Self {
        HostPlatform {
            host,
            budget: Budget::default(),
        }
    }
}

impl Platform for HostPlatform {
    fn prepare(&mut self, actions: &[Action]) -> Result<(), PlatformError> {
        if is_about_groups(actions) {
            // Not under the lock: each shell that goes is killed, and waited for.
            let pool = lock(&self.host).pool();
            pool.leave_groups();
        }
        let begun = lock(&self.host).begin(actions).map_err(failed)?;
        // Done without the lock, so that other requests go on.
        let made = begun.complete();
        lock(&self.host).prepared.extend(made);
        Ok(())
    }

    fn finish(&mut self) {
        self.budget = Budget::default();
        let (unused, ended) = {
            let host = &mut *lock(&self.host);
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
        // Done without the lock: prepared instances that are not used, and ended instances, are removed here.
        drop(unused);
        drop(ended);
        let mut host = lock(&self.host);
        if std::mem::take(&mut host.groups_change) {
            host.tenants.remove_empty();
            host.pool.enter_groups(host.tenants.groups().clone());
        }
    }

    fn check_stays(&self, instance: &str) -> Result<(), PlatformError> {
        lock(&self.host).instances.check_stays(instance)
    }

    fn leaving(&self) -> Vec<String> {
        lock(&self.host).instances.leaving().cloned().collect()
    }

    fn cpus(&self) -> usize {
        machine::cpu_count()
    }

    fn guarantee(&mut self, hundredths: u64) {
        lock(&self.host).tenants.weigh(hundredths);
    }

    fn group(&mut self, change: &Diff<Group>) -> Result<(), PlatformError> {
        let host = &mut *lock(&self.host);
        match (&change.old, &change.new) {
            (None, Some(spec)) => host.tenants.make(&change.name, spec).map_err(failed),
            (_, Some(new)) => {
                let changed = host.tenants.change(&mut host.instances, &change.name, new);
                changed.map_err(failed)?;
                host.set_io_weights();
                Ok(())
            }
            (_, None) => {
                // The cgroup is removed when the plan has been carried out. Leftovers of instances that the plan has
                // ended are taken down then.
                host.tenants.remove(&change.name);
                host.groups_change = true;
                Ok(())
            }
        }
    }

    fn switch(&mut self, change: &Diff<SwitchModel>) -> Result<(), PlatformError> {
        let mut host = lock(&self.host);
        match (&change.old, &change.new) {
            (None, Some(spec)) => host.create_switch(&change.name, spec)?,
            (_, Some(new)) => host.update_switch(&change.name, new),
            (_, None) => host.remove_switch(&change.name),
        }
        Ok(())
    }

    fn uplink(&mut self, change: &Diff<UplinkSpec>) -> Result<(), PlatformError> {
        let mut host = lock(&self.host);
        match &change.new {
            Some(spec) => host.create_uplink(&change.name, spec),
            None => host.uplinks.remove(&change.name),
        }
    }

    fn instance(&mut self, change: &Diff<Box<InstanceSpec>>) -> Result<(), PlatformError> {
        let name = &change.name;
        match (&change.old, &change.new) {
            (None, Some(spec)) => self.create_instance(name, spec),
            (Some(old), Some(new)) => self.replace_instance(name, old, new),
            (_, None) => self.remove_instance(name),
        }
    }

    fn upgrade(&mut self, name: &str, new: &InstanceSpec) -> Result<(), PlatformError> {
        upgrade::succeed(&self.host, name, new).map(drop)
    }

    fn set(&mut self, name: &str, setting: &Setting) -> Result<(), PlatformError> {
        match setting {
            Setting::Config(config) => self.reconfigure(name, config),
            _ => lock(&self.host).set(name, setting),
        }
    }

    fn set_order(&mut self, name: &str, order: Option<u16>) -> Result<(), PlatformError> {
        lock(&self.host).with_fast(|fast| fast.set_order(name, order))
    }

    fn set_platform(&mut self, setting: &PlatformSetting) -> Result<(), PlatformError> {
        let pool = {
            let mut host = lock(&self.host);
            host.set_platform(setting)?;
            host.pool()
        };
        if let PlatformSetting::Pools(pools) = setting {
            // Not under the lock: each shell that goes is killed, and waited for.
            pool.set(pools);
        }
        Ok(())
    }

    fn scale(&mut self, name: &str, old: u16, new: u16) -> Result<(), PlatformError> {
        scaling::scale(&self.host, name, old, new)
    }

    fn drain(&mut self, instances: &[String]) -> Result<(), PlatformError> {
        drain(&self.host, instances)
    }

    fn wire(&mut self, port: &PortRef, to: Option<&Destination>) -> Result<(), PlatformError> {
        lock(&self.host).connect(port, to)
    }

    fn laps(&mut self) -> Vec<Lap> {
        std::mem::take(&mut lock(&self.host).laps)
    }
}
