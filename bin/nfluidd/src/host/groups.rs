//! Groups of tenants, for the API.

use super::Host;
use nfluid_api::types::{GroupStats, GroupStatus};
use nfluid_control::group::{Group, path};
use nfluid_instance::tenants::instances_in;
use nfluid_lifecycle::machine;
use std::collections::BTreeMap;

impl Host {
    /// All groups.
    pub fn group_statuses(&self) -> Vec<GroupStatus> {
        let cpus = machine::cpu_count();
        let status = |(name, spec): (&String, &Group)| {
            let percent = |portion: Option<nfluid_control::portion::Portion>| {
                portion.map(|portion| portion.percent(cpus))
            };
            let groups = self.tenants.groups().iter();
            let groups = groups.filter(|(_, other)| other.group.as_ref() == Some(name));
            GroupStatus {
                name: name.clone(),
                group: spec.group.clone(),
                share_percent: percent(spec.share),
                cap_percent: percent(spec.cap),
                guarantee_percent: percent(spec.guarantee),
                groups: groups.map(|(name, _)| name.clone()).collect(),
                instances: instances_in(&self.instances, std::slice::from_ref(name)),
            }
        };
        self.tenants.groups().iter().map(status).collect()
    }

    /// Returns what the groups have used. `own_io` is, by instance, the CPU time of I/O threads that make the calls
    /// of this instance alone: all I/O threads are one process, in a cgroup of its own.
    pub(super) fn group_stats(&self, own_io: &BTreeMap<&str, u64>) -> Vec<GroupStats> {
        let cpus = machine::cpu_count();
        let stats = |(name, spec): (&String, &Group)| {
            let used = self.tenants.usage(name);
            GroupStats {
                name: name.clone(),
                cpu_ns: used.cpu_usage_ns.unwrap_or(0),
                io_cpu_ns: self.io_of_group(name, own_io),
                share_percent: spec.share.map(|share| share.percent(cpus)),
                throttled_ns: used.throttled_ns,
            }
        };
        self.tenants.groups().iter().map(stats).collect()
    }

    /// Returns the CPU time that I/O threads have used for the instances of a group and of the groups in it.
    fn io_of_group(&self, name: &str, own_io: &BTreeMap<&str, u64>) -> Option<u64> {
        let is_inside = |instance: &str| {
            let running = self.instances.get(instance);
            let group = running.and_then(|running| running.spec.resources.group.as_deref());
            path(self.tenants.groups(), group).contains(&name)
        };
        let used = own_io.iter().filter(|(instance, _)| is_inside(instance));
        let all: Vec<u64> = used.map(|(_, ns)| *ns).collect();
        (!all.is_empty()).then(|| all.iter().sum())
    }
}
