//! I/O models: the switch runs in an NF's own thread, or in an I/O thread.

mod chain_models;
mod consolidation;
mod dynamic_load;
mod io_models;
mod static_split;
mod sync_cost;
mod sync_roundtrip;

use crate::experiment::{Experiment, Topic};
use crate::needs::NOTHING;

/// The experiments of this topic.
pub const TOPIC: Topic = Topic {
    title: "I/O models",
    experiments: &[
        Experiment {
            name: "io-models",
            aliases: &["h5"],
            summary: "no NF, bridge, firewall, router in each I/O model: frames per CPU-second",
            needs: NOTHING,
            run: io_models::run,
        },
        Experiment {
            name: "static-split",
            aliases: &["h2"],
            summary: "10 to 90 % of a core for a firewall, the rest for its I/O thread",
            needs: NOTHING,
            run: static_split::run,
        },
        Experiment {
            name: "sync-roundtrip",
            aliases: &["h3"],
            summary: "one frame: I/O thread's round trip, same and other core, against a hyperio call",
            needs: NOTHING,
            run: sync_roundtrip::run,
        },
        Experiment {
            name: "sync-cost",
            aliases: &["h4"],
            summary: "batch asked for and batch seen by the switch, cost of synchronisation per packet",
            needs: NOTHING,
            run: sync_cost::run,
        },
        Experiment {
            name: "consolidation",
            aliases: &["h7"],
            summary: "1 to 200 firewalls on the same cores, in each I/O model",
            needs: NOTHING,
            run: consolidation::run,
        },
        Experiment {
            name: "dynamic-load",
            aliases: &["h10"],
            summary: "30 firewalls whose rates and number change, in each I/O model: forwarded of offered",
            needs: NOTHING,
            run: dynamic_load::run,
        },
        Experiment {
            name: "chain-models",
            aliases: &["h11"],
            summary: "chains of firewalls in each I/O model: throughput and round trip",
            needs: NOTHING,
            run: chain_models::run,
        },
    ],
};
