//! Metrics of chains.

use super::family::Family;
use crate::types::{ChainStats, Stats, WayStats};

pub(super) fn chains(out: &mut String, stats: &Stats) {
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
        "1: the instance is the bottleneck of the chain.",
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
