//! The CPU time and the memory of a task, as Nomad counts them.

use crate::protocol::drivers::cpu_usage::Fields as CpuFields;
use crate::protocol::drivers::memory_usage::Fields as MemoryFields;
use crate::protocol::drivers::{
    CpuUsage, LinuxResources, MemoryUsage, TaskConfig, TaskResourceUsage, TaskStats,
};
use nfluid_api::types::InstanceSnapshot;

/// Compares snapshots with the one before.
pub struct Meter {
    id: String,
    /// Nomad's MHz for a CPU that is fully used.
    ticks: f64,
    before: Option<(u64, u64)>,
}

impl Meter {
    /// Creates the meter of a task on a host with so many CPUs.
    pub fn new(task: &TaskConfig, cpus: usize) -> Self {
        let none = LinuxResources::default();
        let resources = task.resources.as_ref();
        let given = resources
            .and_then(|resources| resources.linux_resources.as_ref())
            .unwrap_or(&none);
        let is_told = given.percent_ticks > 0.0;
        let total = if is_told {
            given.cpu_shares as f64 / given.percent_ticks
        } else {
            0.0
        };
        Meter {
            id: task.id.clone(),
            ticks: total / cpus.max(1) as f64,
            before: None,
        }
    }

    /// Returns what a task uses.
    pub fn measure(&mut self, snapshot: &InstanceSnapshot) -> TaskStats {
        let instance = &snapshot.instance;
        let used = instance
            .cpu_ns
            .saturating_add(instance.io_cpu_ns.unwrap_or(0));
        let now = (snapshot.time_ns, used);
        let (then, used_then) = self.before.replace(now).unwrap_or(now);
        let passed = snapshot.time_ns.saturating_sub(then);
        let cores = match passed {
            0 => 0.0,
            passed => used.saturating_sub(used_then) as f64 / passed as f64,
        };
        let memory = instance.memory_bytes.unwrap_or(0);
        TaskStats {
            id: self.id.clone(),
            timestamp: Some(std::time::SystemTime::now().into()),
            agg_resource_usage: Some(TaskResourceUsage {
                cpu: Some(CpuUsage {
                    total_ticks: cores * self.ticks,
                    throttled_time: instance.throttled_ns.unwrap_or(0),
                    percent: cores * 100.0,
                    measured_fields: [
                        CpuFields::Percent,
                        CpuFields::TotalTicks,
                        CpuFields::ThrottledTime,
                    ]
                    .map(i32::from)
                    .into(),
                }),
                memory: Some(MemoryUsage {
                    rss: memory,
                    usage: memory,
                    measured_fields: [MemoryFields::Rss, MemoryFields::Usage]
                        .map(i32::from)
                        .into(),
                }),
            }),
            resource_usage_by_pid: Default::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::drivers::Resources;
    use nfluid_api::types::InstanceStats;

    #[test]
    fn cpu_time_is_the_difference_of_two_snapshots() {
        let given = LinuxResources {
            cpu_shares: 100,
            percent_ticks: 0.025,
            ..LinuxResources::default()
        };
        let task = TaskConfig {
            resources: Some(Resources {
                linux_resources: Some(given),
                ..Resources::default()
            }),
            ..TaskConfig::default()
        };
        let mut meter = Meter::new(&task, 2);
        let mut measure = |time_ns, cpu_ns| {
            let stats = meter.measure(&InstanceSnapshot {
                time_ns,
                instance: InstanceStats {
                    cpu_ns,
                    memory_bytes: Some(5),
                    ..InstanceStats::default()
                },
                ports: Vec::new(),
            });
            let usage = stats.agg_resource_usage.expect("usage");
            assert_eq!(usage.memory.expect("memory").rss, 5);
            let cpu = usage.cpu.expect("cpu");
            (cpu.percent, cpu.total_ticks)
        };
        assert_eq!(measure(1_000, 500), (0.0, 0.0));
        assert_eq!(measure(2_000, 1_000), (50.0, 1_000.0));
        // A new daemon's clock begins anew.
        assert_eq!(measure(100, 1_000), (0.0, 0.0));
    }
}
