//! Prometheus' text format, version 0.0.4.

mod chains;
mod family;
mod instances;
mod ports;
mod supply;
mod threads;

use crate::types::Stats;
use chains::chains;
use instances::{groups, instances};
use ports::{ports, uplinks};
use supply::{pools, templates};
use threads::{congestion, io};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{
        ChainStats, CongestionStats, CoreSignal, Counters, InstanceStats, IoStats, IoThread,
        PoolStatus, PortSignal, PortStats, WayStats,
    };

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
