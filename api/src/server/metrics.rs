//! Prometheus' text format, version 0.0.4.

use crate::types::{InstanceStats, PortStats, Stats};
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
    chains(&mut out, stats);
    out
}

fn ports(out: &mut String, ports: &[PortStats]) {
    type Read = fn(&PortStats) -> u64;
    let counters: [(&'static str, &str, Read); 4] = [
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
    type Gauge = fn(&PortStats) -> Option<u64>;
    let optional: [(&'static str, &str, &str, Gauge); 3] = [
        (
            "nfluid_port_rx_ring_used",
            "gauge",
            "Frames that wait in the RX ring.",
            |p| p.rx_ring_used.map(u64::from),
        ),
        (
            "nfluid_port_rx_ring_size",
            "gauge",
            "Slots of the RX ring.",
            |p| p.rx_ring_size.map(u64::from),
        ),
        (
            "nfluid_port_calls_total",
            "counter",
            "Hyperio calls by the port's owner.",
            |p| p.calls,
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
    let figures: [(&'static str, &str, &str, Read); 6] = [
        (
            "nfluid_instance_cpu_seconds_total",
            "counter",
            "CPU time used.",
            |i| Some(seconds(i.cpu_ns)),
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Counters;

    #[test]
    fn every_sample_has_its_family_and_labels_are_escaped() {
        let stats = Stats {
            ports: vec![PortStats {
                name: "fw\"1.in".into(),
                counters: Counters {
                    rx_packets: 7,
                    drops: [("ring_full".to_owned(), 3)].into(),
                    ..Counters::default()
                },
                ..PortStats::default()
            }],
            ..Stats::default()
        };
        let text = prometheus(&stats);
        assert!(text.contains("nfluid_port_rx_packets_total{port=\"fw\\\"1.in\"} 7\n"));
        assert!(
            text.contains("nfluid_port_drops_total{port=\"fw\\\"1.in\",reason=\"ring_full\"} 3\n")
        );
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
