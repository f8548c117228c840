//! Metrics of instances, and of groups of tenants.

use super::family::{Family, seconds};
use crate::types::{GroupStats, InstanceStats};

pub(super) fn instances(out: &mut String, instances: &[InstanceStats]) {
    type Read = fn(&InstanceStats) -> Option<f64>;
    let figures: [(&'static str, &str, &str, Read); 13] = [
        (
            "nfluid_instance_cpu_seconds_total",
            "counter",
            "CPU time used.",
            |i| Some(seconds(i.cpu_ns)),
        ),
        (
            "nfluid_instance_io_cpu_seconds_total",
            "counter",
            "CPU time of the I/O thread that makes only this instance's system calls.",
            |i| i.io_cpu_ns.map(seconds),
        ),
        (
            "nfluid_instance_uplink_cpu_seconds_total",
            "counter",
            "Time of the kernel's receive side at uplinks on frames for the instance.",
            |i| i.uplink_ns.map(seconds),
        ),
        (
            "nfluid_instance_cost_ns",
            "gauge",
            "Recent CPU time per packet, in nanoseconds.",
            |i| i.cost_ns,
        ),
        (
            "nfluid_instance_mean_cost_ns",
            "gauge",
            "CPU time per packet since the daemon began to measure, in nanoseconds.",
            |i| i.mean_cost_ns,
        ),
        (
            "nfluid_instance_throttled_seconds_total",
            "counter",
            "Time for which the instance was throttled by its cap.",
            |i| i.throttled_ns.map(seconds),
        ),
        (
            "nfluid_instance_cpu_share",
            "gauge",
            "Promised share of one core, 0 to 1.",
            |i| i.share_percent.map(|percent| percent / 100.0),
        ),
        (
            "nfluid_instance_memory_bytes",
            "gauge",
            "Memory in use.",
            |i| i.memory_bytes.map(|n| n as f64),
        ),
        (
            "nfluid_instance_memory_limit_bytes",
            "gauge",
            "Memory limit.",
            |i| i.memory_limit_bytes.map(|n| n as f64),
        ),
        (
            "nfluid_instance_restarts_total",
            "counter",
            "Restarts.",
            |i| Some(i.restarts as f64),
        ),
        (
            "nfluid_instance_paused",
            "gauge",
            "1 while the instance is paused.",
            |i| i.paused.then_some(1.0),
        ),
        (
            "nfluid_instance_healthy",
            "gauge",
            "1: the instance passes its health checks, 0: it fails; only instances with health checks.",
            |i| i.healthy.map(f64::from),
        ),
        (
            "nfluid_instance_unhealthy_total",
            "counter",
            "Number of times that the instance became unhealthy.",
            |i| i.healthy.map(|_| i.unhealthy_total as f64),
        ),
    ];
    for (name, kind, help, read) in figures {
        let mut family = Family::new(out, name, kind, help);
        for instance in instances {
            if let Some(value) = read(instance) {
                family.sample(&[("instance", &instance.name)], value);
            }
        }
    }
    let mut own = Family::new(
        out,
        "nfluid_nf_metric",
        "untyped",
        "Metrics of the NF, by name.",
    );
    for instance in instances {
        for (metric, value) in &instance.metrics {
            own.sample(&[("instance", &instance.name), ("metric", metric)], value);
        }
    }
}

pub(super) fn groups(out: &mut String, groups: &[GroupStats]) {
    type Read = fn(&GroupStats) -> Option<f64>;
    let figures: [(&'static str, &str, &str, Read); 4] = [
        (
            "nfluid_group_cpu_seconds_total",
            "counter",
            "CPU time of all members of the group.",
            |g| Some(seconds(g.cpu_ns)),
        ),
        (
            "nfluid_group_io_cpu_seconds_total",
            "counter",
            "CPU time of I/O threads that make the system calls of a single instance in the group.",
            |g| g.io_cpu_ns.map(seconds),
        ),
        (
            "nfluid_group_throttled_seconds_total",
            "counter",
            "Time for which threads were throttled by the group's cap.",
            |g| g.throttled_ns.map(seconds),
        ),
        (
            "nfluid_group_cpu_share",
            "gauge",
            "Weight among its siblings, 1 for a core.",
            |g| g.share_percent.map(|percent| percent / 100.0),
        ),
    ];
    for (name, kind, help, read) in figures {
        let mut family = Family::new(out, name, kind, help);
        for group in groups {
            if let Some(value) = read(group) {
                family.sample(&[("group", &group.name)], value);
            }
        }
    }
}
