//! Prometheus' text format, version 0.0.4.

use crate::types::{
    ChainStats, CongestionStats, GroupStats, InstanceStats, IoStats, PoolStatus, PortStats, Stats,
    TemplateStatus, UplinkStats, WayStats,
};
use std::fmt::Write;

/// One metric family with all of its samples.
struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl<'a> Family<'a> {
    fn new(out: &'a mut String, name: &'static str, kind: &str, help: &str) -> Self {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { out, name }
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.out.push_str(self.name);
        for (i, (name, text)) in labels.iter().enumerate() {
            self.out.push_str(if i == 0 { "{" } else { "," });
            let _ = write!(self.out, "{name}=\"");
            escape(self.out, text);
            self.out.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{end} {value}");
    }
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

/// Writes all figures of a snapshot.
pub fn prometheus(stats: &Stats) -> String {
    let mut out = String::new();
    ports(&mut out, &stats.ports);
    instances(&mut out, &stats.instances);
    uplinks(&mut out, &stats.uplinks);
    groups(&mut out, &stats.groups);
    chains(&mut out, stats);
    if let Some(stats) = &stats.io {
        io(&mut out, stats);
    }
    pools(&mut out, &stats.pools);
    templates(&mut out, &stats.templates);
    if let Some(stats) = &stats.congestion {
        congestion(&mut out, stats);
    }
    out
}

fn ports(out: &mut String, ports: &[PortStats]) {
    type Read = fn(&PortStats) -> u64;
    let counters: [(&'static str, &str, Read); 5] = [
        (
            "nfluid_port_rx_packets_total",
            "Frames delivered into the port.",
            |p| p.counters.rx_packets,
        ),
        (
            "nfluid_port_rx_bytes_total",
            "Bytes delivered into the port.",
            |p| p.counters.rx_bytes,
        ),
        (
            "nfluid_port_tx_packets_total",
            "Frames taken over from the port's owner.",
            |p| p.counters.tx_packets,
        ),
        (
            "nfluid_port_tx_bytes_total",
            "Bytes taken over from the port's owner.",
            |p| p.counters.tx_bytes,
        ),
        (
            "nfluid_port_marked_packets_total",
            "Frames delivered into the port with a congestion signal, an ECN mark.",
            |p| p.counters.marked_packets,
        ),
    ];
    for (name, help, read) in counters {
        let mut family = Family::new(out, name, "counter", help);
        for port in ports {
            family.sample(&[("port", &port.name)], read(port));
        }
    }
    let mut drops = Family::new(
        out,
        "nfluid_port_drops_total",
        "counter",
        "Frames sent by the port's owner and dropped.",
    );
    for port in ports {
        for (reason, count) in &port.counters.drops {
            drops.sample(&[("port", &port.name), ("reason", reason)], count);
        }
    }
    type Gauge = fn(&PortStats) -> Option<f64>;
    let optional: [(&'static str, &str, &str, Gauge); 6] = [
        (
            "nfluid_port_rx_ring_used",
            "gauge",
            "Frames that wait in the RX ring.",
            |p| p.rx_ring_used.map(f64::from),
        ),
        (
            "nfluid_port_rx_ring_size",
            "gauge",
            "Slots of the RX ring.",
            |p| p.rx_ring_size.map(f64::from),
        ),
        (
            "nfluid_port_calls_total",
            "counter",
            "Hyperio calls by the port's owner.",
            |p| p.calls.map(|calls| calls as f64),
        ),
        (
            "nfluid_port_cpu_seconds_total",
            "counter",
            "CPU time of the port's instance, split among its ports by frames received.",
            |p| p.cpu_ns.map(seconds),
        ),
        (
            "nfluid_port_mark_probability",
            "gauge",
            "How likely a frame for the port is marked or dropped for congestion, 0 to 1.",
            |p| p.signal.map(|signal| signal.probability),
        ),
        (
            "nfluid_port_refuses",
            "gauge",
            "1: all frames for the port are refused, since further on in its chain a ring is full.",
            |p| p.signal.map(|signal| f64::from(u8::from(signal.refuses))),
        ),
    ];
    for (name, kind, help, read) in optional {
        let mut family = Family::new(out, name, kind, help);
        for port in ports {
            if let Some(value) = read(port) {
                family.sample(&[("port", &port.name)], value);
            }
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn instances(out: &mut String, instances: &[InstanceStats]) {
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
            "CPU time of the I/O thread that makes its calls and no other's.",
            |i| i.io_cpu_ns.map(seconds),
        ),
        (
            "nfluid_instance_uplink_cpu_seconds_total",
            "counter",
            "Time of the kernel's receive side at uplinks on frames for it.",
            |i| i.uplink_ns.map(seconds),
        ),
        (
            "nfluid_instance_cost_ns",
            "gauge",
            "CPU time that a packet takes of late, in nanoseconds.",
            |i| i.cost_ns,
        ),
        (
            "nfluid_instance_mean_cost_ns",
            "gauge",
            "CPU time that a packet has taken since the daemon began to measure, in nanoseconds.",
            |i| i.mean_cost_ns,
        ),
        (
            "nfluid_instance_throttled_seconds_total",
            "counter",
            "Time held back by the cap.",
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
            "Whether the instance passes its health check; only of those that have one.",
            |i| i.healthy.map(f64::from),
        ),
        (
            "nfluid_instance_unhealthy_total",
            "counter",
            "How often its health check found it unhealthy.",
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
        "Metrics of the NF's own, by name.",
    );
    for instance in instances {
        for (metric, value) in &instance.metrics {
            own.sample(&[("instance", &instance.name), ("metric", metric)], value);
        }
    }
}

fn uplinks(out: &mut String, uplinks: &[UplinkStats]) {
    let mut time = Family::new(
        out,
        "nfluid_uplink_receive_seconds_total",
        "counter",
        "Time of the kernel's receive side in the uplink's program, charged by the kernel to others.",
    );
    for uplink in uplinks {
        time.sample(&[("uplink", &uplink.name)], seconds(uplink.receive_ns));
    }
    let mut cost = Family::new(
        out,
        "nfluid_uplink_receive_frame_seconds",
        "gauge",
        "What a received frame costs there.",
    );
    for uplink in uplinks {
        if let Some(ns) = uplink.frame_ns {
            cost.sample(&[("uplink", &uplink.name)], ns / 1e9);
        }
    }
}

fn groups(out: &mut String, groups: &[GroupStats]) {
    type Read = fn(&GroupStats) -> Option<f64>;
    let figures: [(&'static str, &str, &str, Read); 4] = [
        (
            "nfluid_group_cpu_seconds_total",
            "counter",
            "CPU time of all in the group.",
            |g| Some(seconds(g.cpu_ns)),
        ),
        (
            "nfluid_group_io_cpu_seconds_total",
            "counter",
            "CPU time of I/O threads that make the calls of one of its instances and no other's.",
            |g| g.io_cpu_ns.map(seconds),
        ),
        (
            "nfluid_group_throttled_seconds_total",
            "counter",
            "Time held back by the group's cap.",
            |g| g.throttled_ns.map(seconds),
        ),
        (
            "nfluid_group_cpu_share",
            "gauge",
            "Proportion among those beside it, 1 for a core.",
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

fn chains(out: &mut String, stats: &Stats) {
    let mut packets = Family::new(
        out,
        "nfluid_chain_packets_total",
        "counter",
        "Frames sent into the chain.",
    );
    for chain in &stats.chains {
        let forward = [("chain", chain.name.as_str()), ("direction", "forward")];
        packets.sample(&forward, chain.forward_packets);
        let back = [("chain", chain.name.as_str()), ("direction", "return")];
        packets.sample(&back, chain.return_packets);
    }
    let mut waiting = Family::new(
        out,
        "nfluid_chain_waiting_packets",
        "gauge",
        "Frames that wait in the rings on the way.",
    );
    for chain in &stats.chains {
        let directions = [
            ("forward", chain.forward_waiting),
            ("return", chain.return_waiting),
        ];
        for (direction, frames) in directions {
            if let Some(frames) = frames {
                let labels = [("chain", chain.name.as_str()), ("direction", direction)];
                waiting.sample(&labels, frames);
            }
        }
    }
    held_up(out, &stats.chains);
}

fn ways(chain: &ChainStats) -> [(&'static str, &WayStats); 2] {
    [("forward", &chain.forward), ("return", &chain.back)]
}

fn held_up(out: &mut String, chains: &[ChainStats]) {
    let mut refused = Family::new(
        out,
        "nfluid_chain_refused_packets_total",
        "counter",
        "Frames refused at the chain's entry, since a ring further on was full.",
    );
    for chain in chains {
        for (direction, way) in ways(chain) {
            let labels = [("chain", chain.name.as_str()), ("direction", direction)];
            refused.sample(&labels, way.refused_packets);
        }
    }
    let mut bottleneck = Family::new(
        out,
        "nfluid_chain_bottleneck",
        "gauge",
        "1: the instance that holds the chain up.",
    );
    for chain in chains {
        for (direction, way) in ways(chain) {
            if let Some(instance) = &way.bottleneck {
                let labels = [
                    ("chain", chain.name.as_str()),
                    ("direction", direction),
                    ("instance", instance),
                ];
                bottleneck.sample(&labels, 1);
            }
        }
    }
}

fn congestion(out: &mut String, stats: &CongestionStats) {
    let name = "nfluid_congestion_cpu_seconds_total";
    let help = "CPU time of the thread that measures costs and decides on marks.";
    Family::new(out, name, "counter", help).sample(&[], seconds(stats.cpu_ns));
    let mut cores = Family::new(
        out,
        "nfluid_core_mark_probability",
        "gauge",
        "How likely a frame for the core's cheapest instance is marked, 0 to 1.",
    );
    for core in &stats.cores {
        cores.sample(&[("core", &core.core.to_string())], core.probability);
    }
}

fn templates(out: &mut String, templates: &[TemplateStatus]) {
    type Read = fn(&TemplateStatus) -> u64;
    let families: [(&'static str, &'static str, &str, Read); 3] = [
        (
            "nfluid_template_clients",
            "gauge",
            "Clients of the template that have an instance.",
            |template| template.clients.into(),
        ),
        (
            "nfluid_template_made_total",
            "counter",
            "Instances that were made when a client's first frame came.",
            |template| template.made,
        ),
        (
            "nfluid_template_ended_total",
            "counter",
            "Instances of clients that were ended.",
            |template| template.ended,
        ),
    ];
    for (name, kind, help, read) in families {
        let mut family = Family::new(out, name, kind, help);
        for template in templates {
            family.sample(&[("template", &template.name)], read(template));
        }
    }
    let name = "nfluid_template_refused_total";
    let help = "Frames of clients without an instance that were refused, by reason.";
    let mut family = Family::new(out, name, "counter", help);
    for template in templates {
        for (reason, frames) in &template.refused {
            family.sample(&[("template", &template.name), ("reason", reason)], *frames);
        }
    }
}

fn pools(out: &mut String, pools: &[PoolStatus]) {
    type Read = fn(&PoolStatus) -> u64;
    let families: [(&'static str, &'static str, &str, Read); 4] = [
        (
            "nfluid_pool_wanted",
            "gauge",
            "Shells that the pool is to have.",
            |pool| pool.wanted.into(),
        ),
        (
            "nfluid_pool_ready",
            "gauge",
            "Shells that it has.",
            |pool| pool.ready.into(),
        ),
        (
            "nfluid_pool_taken_total",
            "counter",
            "Instances that were made from a shell.",
            |pool| pool.taken,
        ),
        (
            "nfluid_pool_missed_total",
            "counter",
            "Instances that would have been, and found none.",
            |pool| pool.missed,
        ),
    ];
    for (name, kind, help, read) in families {
        let mut family = Family::new(out, name, kind, help);
        for pool in pools {
            family.sample(&[("pool", &pool.name)], read(pool));
        }
    }
}

fn io(out: &mut String, stats: &IoStats) {
    let name = "nfluid_io_cpu_seconds_total";
    Family::new(out, name, "counter", "CPU time of all I/O threads.")
        .sample(&[], seconds(stats.cpu_ns));
    if let Some(ns) = stats.throttled_ns {
        let name = "nfluid_io_throttled_seconds_total";
        Family::new(out, name, "counter", "Time held back by their cap.").sample(&[], seconds(ns));
    }
    let mut threads = Family::new(
        out,
        "nfluid_io_thread_cpu_seconds_total",
        "counter",
        "CPU time of an I/O thread; of one that all split instances share if it names no instance.",
    );
    for thread in &stats.threads {
        let labels = [
            ("thread", thread.name.as_str()),
            ("model", &thread.model),
            ("instance", thread.only_instance().unwrap_or_default()),
        ];
        threads.sample(&labels, seconds(thread.cpu_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{CoreSignal, Counters, IoThread, PortSignal};

    // promise: 8.3
    #[test]
    fn every_sample_has_its_family_and_labels_are_escaped() {
        let stats = Stats {
            io: Some(IoStats {
                cpu_ns: 1_500_000_000,
                threads: vec![IoThread {
                    name: "split 1".into(),
                    model: "split".into(),
                    instances: vec!["fw1".into()],
                    core: Some(1),
                    cpu_ns: 500_000_000,
                }],
                ..IoStats::default()
            }),
            ports: vec![PortStats {
                name: "fw\"1.in".into(),
                counters: Counters {
                    rx_packets: 7,
                    drops: [("ring_full".to_owned(), 3)].into(),
                    ..Counters::default()
                },
                signal: Some(PortSignal {
                    probability: 0.25,
                    refuses: true,
                }),
                ..PortStats::default()
            }],
            instances: vec![InstanceStats {
                name: "fw1".into(),
                cost_ns: Some(712.5),
                ..InstanceStats::default()
            }],
            chains: vec![ChainStats {
                name: "web".into(),
                forward: WayStats {
                    refused_packets: 9,
                    bottleneck: Some("fw1".into()),
                },
                ..ChainStats::default()
            }],
            congestion: Some(CongestionStats {
                cpu_ns: 2_000_000_000,
                cores: vec![CoreSignal {
                    core: 1,
                    probability: 0.125,
                }],
            }),
            pools: vec![PoolStatus {
                name: "small".into(),
                ready: 5,
                taken: 12,
                ..PoolStatus::default()
            }],
            ..Stats::default()
        };
        let text = prometheus(&stats);
        assert!(text.contains("nfluid_port_rx_packets_total{port=\"fw\\\"1.in\"} 7\n"));
        assert!(
            text.contains("nfluid_port_drops_total{port=\"fw\\\"1.in\",reason=\"ring_full\"} 3\n")
        );
        assert!(text.contains("nfluid_io_cpu_seconds_total 1.5\n"));
        let thread = "{thread=\"split 1\",model=\"split\",instance=\"\"} 0.5\n";
        assert!(text.contains(&format!("nfluid_io_thread_cpu_seconds_total{thread}")));
        for sample in [
            "nfluid_port_mark_probability{port=\"fw\\\"1.in\"} 0.25",
            "nfluid_port_refuses{port=\"fw\\\"1.in\"} 1",
            "nfluid_instance_cost_ns{instance=\"fw1\"} 712.5",
            "nfluid_chain_refused_packets_total{chain=\"web\",direction=\"forward\"} 9",
            "nfluid_chain_bottleneck{chain=\"web\",direction=\"forward\",instance=\"fw1\"} 1",
            "nfluid_core_mark_probability{core=\"1\"} 0.125",
            "nfluid_congestion_cpu_seconds_total 2",
            "nfluid_pool_ready{pool=\"small\"} 5",
            "nfluid_pool_taken_total{pool=\"small\"} 12",
        ] {
            assert!(text.contains(sample), "{sample}");
        }
        assert!(
            !text.contains("nfluid_port_calls_total{"),
            "absent, not zero"
        );
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
        }
    }
}
