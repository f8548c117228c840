//! Rates: the differences of two snapshots.

use super::{
    ChainStats, Counters, GroupStats, InstanceStats, IoThread, PortStats, SliceRates, Stats,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The rates of all objects in the later of two snapshots. An object that is not in the earlier snapshot, or was
/// created again since, counts from zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Time between the snapshots, in seconds.
    pub seconds: f64,
    /// By instance.
    pub instances: Vec<InstanceRates>,
    /// By port.
    pub ports: Vec<PortRates>,
    /// By uplink.
    pub uplinks: Vec<UplinkRates>,
    /// By group of tenants.
    pub groups: Vec<GroupRates>,
    /// By chain.
    pub chains: Vec<ChainRates>,
    /// By I/O thread.
    pub io: Vec<IoThreadRates>,
    /// By slice.
    pub slices: Vec<SliceRates>,
}

/// The rates of an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InstanceRates {
    /// The instance.
    pub name: String,
    /// CPU time of the instance, in percent of one core, including the time spent for it at uplinks.
    pub got_percent: f64,
    /// CPU time that the instance itself used, in percent of one core.
    pub cpu_percent: f64,
    /// CPU time spent for the instance at uplinks, in percent of one core.
    pub uplink_percent: Option<f64>,
    /// Promised CPU share, in percent of one core.
    pub share_percent: Option<f64>,
    /// The core that the placement has chosen.
    pub core: Option<u32>,
    /// Memory in use, in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory limit, in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Packets received per second, on all of its ports.
    pub rx_pps: f64,
    /// Packets sent per second, on all of its ports.
    pub tx_pps: f64,
    /// Packets dropped per second, on all of its ports.
    pub drop_pps: f64,
    /// CPU time of the I/O thread that makes only this instance's system calls, in percent of one core.
    pub io_cpu_percent: Option<f64>,
    /// Recent CPU time per packet, in nanoseconds, as the daemon measures it.
    pub cost_ns: Option<f64>,
    /// Restarts since the instance was created.
    pub restarts: u64,
    /// True if the instance is paused.
    pub paused: bool,
}

/// The cost of receiving at an uplink.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UplinkRates {
    /// The uplink.
    pub name: String,
    /// CPU time of the kernel's receive side in the uplink's program, in percent of one core.
    pub receive_percent: f64,
    /// CPU time of a received frame there, in nanoseconds.
    pub frame_ns: Option<f64>,
}

/// The rates of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupRates {
    /// The group.
    pub name: String,
    /// CPU time of all members of the group, in percent of one core, including the I/O threads of single instances.
    pub cpu_percent: f64,
    /// Weight among its siblings, in percent of one core.
    pub share_percent: Option<f64>,
}

/// The rates of an I/O thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IoThreadRates {
    /// Name of the thread in the kernel.
    pub name: String,
    /// The I/O model of the thread.
    pub model: String,
    /// The instances whose system calls the thread makes.
    pub instances: Vec<String>,
    /// The core on which the thread ran last.
    pub core: Option<u32>,
    /// CPU time of the thread, in percent of one core.
    pub cpu_percent: f64,
}

/// The rates of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortRates {
    /// The port.
    pub name: String,
    /// Packets received per second.
    pub rx_pps: f64,
    /// Bits received per second, without FCS.
    pub rx_bps: f64,
    /// Packets sent per second.
    pub tx_pps: f64,
    /// Bits sent per second, without FCS.
    pub tx_bps: f64,
    /// Packets delivered per second with a congestion signal, an ECN mark.
    pub marked_pps: f64,
    /// Packets dropped per second, by reason; only reasons that occurred.
    pub drop_pps: BTreeMap<String, f64>,
    /// Packets dropped since the port was created, by reason; only reasons that occurred.
    pub drops: BTreeMap<String, u64>,
    /// Part of the RX ring in use now, in percent.
    pub ring_percent: Option<f64>,
    /// Waiting time of a frame in the RX ring, in nanoseconds: an estimate by Little's law.
    pub queue_delay_ns: Option<u64>,
    /// Packets sent per hyperio call.
    pub batch: Option<f64>,
    /// Probability that a packet is marked now, in percent; absent: packets are not marked.
    pub mark_percent: Option<f64>,
}

/// The rates of a chain.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChainRates {
    /// The chain.
    pub name: String,
    /// Packets per second that enter at the `from` end.
    pub forward_pps: f64,
    /// Packets per second that enter at the `to` end.
    pub return_pps: f64,
    /// Waiting time of a frame in the rings from `from` to `to`, in nanoseconds: an estimate by Little's law.
    pub forward_delay_ns: Option<u64>,
    /// Waiting time of a frame in the rings from `to` to `from`, in nanoseconds.
    pub return_delay_ns: Option<u64>,
    /// Packets per second that are refused at either end, since a ring further on is full.
    pub refused_pps: f64,
    /// The bottleneck on the way from `from` to `to`, if an instance is one.
    pub forward_bottleneck: Option<String>,
    /// The bottleneck on the way from `to` to `from`.
    pub return_bottleneck: Option<String>,
}

impl Rates {
    /// Returns the rates between `earlier` and `later`; empty if no time has passed.
    pub fn between(earlier: &Stats, later: &Stats) -> Self {
        let ns = later.time_ns.saturating_sub(earlier.time_ns);
        if ns == 0 {
            return Rates::default();
        }
        let per = PerSecond(ns as f64 / 1e9);
        let ports: Vec<PortRates> = pairs(&earlier.ports, &later.ports, |p| &p.name)
            .map(|(old, new)| port_rates(per, old, new))
            .collect();
        Rates {
            seconds: per.0,
            instances: pairs(&earlier.instances, &later.instances, |i| &i.name)
                .map(|(old, new)| instance_rates(per, old, new, &ports))
                .collect(),
            uplinks: pairs(&earlier.uplinks, &later.uplinks, |u| &u.name)
                .map(|(old, new)| UplinkRates {
                    name: new.name.clone(),
                    receive_percent: per
                        .rate(old.map_or(0, |uplink| uplink.receive_ns), new.receive_ns)
                        / 1e7,
                    frame_ns: new.frame_ns,
                })
                .collect(),
            groups: pairs(&earlier.groups, &later.groups, |g| &g.name)
                .map(|(old, new)| GroupRates {
                    name: new.name.clone(),
                    cpu_percent: per.rate(old.map_or(0, spent_for), spent_for(new)) / 1e7,
                    share_percent: new.share_percent,
                })
                .collect(),
            chains: pairs(&earlier.chains, &later.chains, |c| &c.name)
                .map(|(old, new)| chain_rates(per, old, new))
                .collect(),
            io: io_rates(per, earlier, later),
            slices: pairs(&earlier.instances, &later.instances, |i| &i.name)
                .flat_map(|(old, new)| SliceRates::of(old, new, per.0))
                .collect(),
            ports,
        }
    }
}

/// Returns each later item with the earlier item of the same name.
fn pairs<'a, T>(
    earlier: &'a [T],
    later: &'a [T],
    name: impl Fn(&T) -> &str,
) -> impl Iterator<Item = (Option<&'a T>, &'a T)> {
    let by_name: BTreeMap<String, &T> = earlier
        .iter()
        .map(|item| (name(item).to_owned(), item))
        .collect();
    later
        .iter()
        .map(move |item| (by_name.get(name(item)).copied(), item))
}

/// Divides by the time between the snapshots.
#[derive(Clone, Copy)]
struct PerSecond(f64);

impl PerSecond {
    fn rate(self, old: u64, new: u64) -> f64 {
        growth(old, new) as f64 / self.0
    }
}

/// Returns the growth of a counter. A counter that is smaller than before belongs to an object that was created again.
fn growth(old: u64, new: u64) -> u64 {
    if new >= old { new - old } else { new }
}

/// Estimates the waiting time of a frame by Little's law (Operations Research 9(3), 1961): the number of waiting
/// frames, divided by the frames per second. The number is the mean of two samples, so single estimates scatter. The
/// processing time within an NF is not included. `None`: no frames arrived, or the number was not sampled.
pub fn queue_delay_ns(waiting: [Option<u64>; 2], per_second: f64) -> Option<u64> {
    let [Some(before), Some(now)] = waiting else {
        return None;
    };
    let mean = (before as f64 + now as f64) / 2.0;
    (per_second > 0.0).then(|| (mean / per_second * 1e9) as u64)
}

fn port_rates(per: PerSecond, old: Option<&PortStats>, new: &PortStats) -> PortRates {
    let none = Counters::default();
    let before = old.map_or(&none, |port| &port.counters);
    let now = &new.counters;
    let occurred = || now.drops.iter().filter(|(_, count)| **count > 0);
    let calls = growth(
        old.and_then(|port| port.calls).unwrap_or(0),
        new.calls.unwrap_or(0),
    );
    let waiting = |port: &PortStats| port.rx_ring_used.map(u64::from);
    let sent = growth(before.tx_packets, now.tx_packets);
    PortRates {
        name: new.name.clone(),
        rx_pps: per.rate(before.rx_segments, now.rx_segments),
        rx_bps: per.rate(before.rx_wire_bytes, now.rx_wire_bytes) * 8.0,
        tx_pps: per.rate(before.tx_segments, now.tx_segments),
        tx_bps: per.rate(before.tx_wire_bytes, now.tx_wire_bytes) * 8.0,
        marked_pps: per.rate(before.marked_packets, now.marked_packets),
        drop_pps: occurred()
            .map(|(reason, count)| {
                let old = before.drops.get(reason).copied().unwrap_or(0);
                (reason.clone(), per.rate(old, *count))
            })
            .collect(),
        drops: occurred().map(|(reason, n)| (reason.clone(), *n)).collect(),
        ring_percent: new
            .rx_ring_used
            .zip(new.rx_ring_size.filter(|size| *size > 0))
            .map(|(used, size)| f64::from(used) * 100.0 / f64::from(size)),
        queue_delay_ns: queue_delay_ns(
            [old.and_then(waiting), waiting(new)],
            per.rate(before.rx_packets, now.rx_packets),
        ),
        batch: (calls > 0).then(|| sent as f64 / calls as f64),
        mark_percent: new.signal.map(|signal| signal.probability * 100.0),
    }
}

fn instance_rates(
    per: PerSecond,
    old: Option<&InstanceStats>,
    new: &InstanceStats,
    ports: &[PortRates],
) -> InstanceRates {
    let cpu_ns = per.rate(old.map_or(0, |instance| instance.cpu_ns), new.cpu_ns);
    let io_before = old.and_then(|instance| instance.io_cpu_ns).unwrap_or(0);
    let io_cpu_ns = new.io_cpu_ns.map(|now| per.rate(io_before, now));
    let uplink_before = old.and_then(|instance| instance.uplink_ns).unwrap_or(0);
    let uplink_ns = new.uplink_ns.map(|now| per.rate(uplink_before, now));
    let mut rates = InstanceRates {
        name: new.name.clone(),
        got_percent: (cpu_ns + uplink_ns.unwrap_or(0.0)) / 1e7,
        cpu_percent: cpu_ns / 1e7,
        uplink_percent: uplink_ns.map(|ns| ns / 1e7),
        io_cpu_percent: io_cpu_ns.map(|ns| ns / 1e7),
        share_percent: new.share_percent,
        core: new.core,
        memory_bytes: new.memory_bytes,
        memory_limit_bytes: new.memory_limit_bytes,
        restarts: new.restarts,
        paused: new.paused,
        cost_ns: new.cost_ns,
        ..InstanceRates::default()
    };
    let is_own = |port: &&PortRates| {
        port.name
            .strip_prefix(&new.name)
            .is_some_and(|rest| rest.starts_with('.'))
    };
    for port in ports.iter().filter(is_own) {
        rates.rx_pps += port.rx_pps;
        rates.tx_pps += port.tx_pps;
        rates.drop_pps += port.drop_pps.values().sum::<f64>();
    }
    rates
}

fn io_rates(per: PerSecond, earlier: &Stats, later: &Stats) -> Vec<IoThreadRates> {
    let threads = |stats: &'_ Stats| {
        stats
            .io
            .as_ref()
            .map_or(Vec::new(), |io| io.threads.clone())
    };
    let before = threads(earlier);
    let rates = |now: IoThread| {
        let is_same = |thread: &&IoThread| {
            thread.name == now.name && thread.only_instance() == now.only_instance()
        };
        let old = before
            .iter()
            .find(is_same)
            .map_or(0, |thread| thread.cpu_ns);
        IoThreadRates {
            cpu_percent: per.rate(old, now.cpu_ns) / 1e7,
            name: now.name,
            model: now.model,
            instances: now.instances,
            core: now.core,
        }
    };
    threads(later).into_iter().map(rates).collect()
}

/// Returns the CPU time of all members of a group, and of I/O threads that serve a single member.
fn spent_for(group: &GroupStats) -> u64 {
    group.cpu_ns + group.io_cpu_ns.unwrap_or(0)
}

fn chain_rates(per: PerSecond, old: Option<&ChainStats>, new: &ChainStats) -> ChainRates {
    let before = |read: fn(&ChainStats) -> u64| old.map_or(0, read);
    let forward_pps = per.rate(before(|c| c.forward_packets), new.forward_packets);
    let return_pps = per.rate(before(|c| c.return_packets), new.return_packets);
    let both = |read: fn(&ChainStats) -> Option<u64>| [old.and_then(read), read(new)];
    ChainRates {
        name: new.name.clone(),
        forward_pps,
        return_pps,
        forward_delay_ns: queue_delay_ns(both(|c| c.forward_waiting), forward_pps),
        return_delay_ns: queue_delay_ns(both(|c| c.return_waiting), return_pps),
        refused_pps: per.rate(
            before(|c| c.forward.refused_packets),
            new.forward.refused_packets,
        ) + per.rate(before(|c| c.back.refused_packets), new.back.refused_packets),
        forward_bottleneck: new.forward.bottleneck.clone(),
        return_bottleneck: new.back.bottleneck.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::IoStats;

    fn snapshot(time_s: u64, packets: u64, cpu_ms: u64, calls: u64) -> Stats {
        Stats {
            pools: Vec::new(),
            templates: Vec::new(),
            io: None,
            congestion: None,
            time_ns: time_s * 1_000_000_000,
            ports: vec![PortStats {
                name: "fw.in".into(),
                counters: Counters {
                    rx_packets: packets,
                    rx_bytes: packets * 100,
                    tx_packets: packets,
                    tx_bytes: packets * 100,
                    rx_segments: packets,
                    rx_wire_bytes: packets * 100,
                    tx_segments: packets,
                    tx_wire_bytes: packets * 100,
                    marked_packets: 0,
                    forwarded_packets: 0,
                    drops: [
                        ("ring_full".to_owned(), packets / 10),
                        ("bad".to_owned(), 0),
                    ]
                    .into(),
                },
                rx_ring_used: Some(16),
                rx_ring_size: Some(64),
                calls: Some(calls),
                ..PortStats::default()
            }],
            instances: vec![InstanceStats {
                name: "fw".into(),
                cpu_ns: cpu_ms * 1_000_000,
                cost_ns: Some(700.0),
                ..InstanceStats::default()
            }],
            uplinks: vec![],
            groups: vec![],
            chains: vec![],
        }
    }

    #[test]
    fn io_threads_have_rates_of_their_own() {
        let with_thread = |time_s, packets, cpu_ms, io_ms: u64| {
            let mut stats = snapshot(time_s, packets, cpu_ms, 1);
            let thread = |model: &str, instances: &[&str]| IoThread {
                name: format!("{model} x"),
                model: model.into(),
                instances: instances.iter().map(|name| (*name).to_owned()).collect(),
                core: None,
                cpu_ns: io_ms * 1_000_000,
            };
            let threads = vec![thread("merge", &["fw"]), thread("split", &["a"])];
            assert_eq!(threads[0].only_instance(), Some("fw"));
            assert_eq!(threads[1].only_instance(), None, "others may come");
            stats.instances[0].io_cpu_ns = Some(threads[0].cpu_ns);
            stats.io = Some(IoStats {
                threads,
                ..IoStats::default()
            });
            stats
        };
        let rates = Rates::between(
            &with_thread(10, 1_000, 100, 50),
            &with_thread(12, 5_000, 600, 350),
        );
        let instance = &rates.instances[0];
        assert_eq!(instance.io_cpu_percent, Some(15.0));
        let threads: Vec<f64> = rates.io.iter().map(|thread| thread.cpu_percent).collect();
        assert_eq!(threads, [15.0, 15.0]);
    }

    #[test]
    fn figures_are_differences_over_time() {
        let rates = Rates::between(
            &snapshot(10, 1_000, 100, 10),
            &snapshot(12, 5_000, 600, 110),
        );
        let port = &rates.ports[0];
        assert_eq!((port.rx_pps, port.rx_bps), (2_000.0, 1_600_000.0));
        assert_eq!(port.drop_pps.get("ring_full"), Some(&200.0));
        assert_eq!(port.drop_pps.get("bad"), None, "it never occurred");
        assert_eq!((port.ring_percent, port.batch), (Some(25.0), Some(40.0)));
        let instance = &rates.instances[0];
        assert_eq!(instance.cpu_percent, 25.0);
        assert_eq!(instance.cost_ns, Some(700.0), "as the daemon says");
    }

    #[test]
    fn a_counter_that_starts_anew_never_gives_a_negative_rate() {
        let rates = Rates::between(&snapshot(1, 9_000, 900, 9), &snapshot(2, 100, 10, 1));
        assert_eq!(rates.ports[0].rx_pps, 100.0);
        assert_eq!(rates.instances[0].cpu_percent, 1.0);
    }

    // promise: 7.22
    #[test]
    fn the_delay_is_what_waits_over_what_passes() {
        let rates = Rates::between(&snapshot(10, 1_000, 0, 0), &snapshot(12, 5_000, 0, 0));
        // 16 frames wait, 2,000 arrive per second.
        assert_eq!(rates.ports[0].queue_delay_ns, Some(8_000_000));
        assert_eq!(queue_delay_ns([Some(0), Some(10)], 1e6), Some(5_000));
        assert_eq!(queue_delay_ns([Some(3), Some(3)], 0.0), None);
        assert_eq!(queue_delay_ns([None, Some(3)], 1.0), None);
    }

    #[test]
    fn no_time_gives_no_figures() {
        let now = snapshot(1, 1, 1, 1);
        assert_eq!(Rates::between(&now, &now), Rates::default());
    }
}
