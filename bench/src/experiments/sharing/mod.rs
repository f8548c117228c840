//! NFs that share a core, by weight or by the kernel's default scheduling.

mod busy_core;
mod core_sharing;
mod cost_fairness;
mod noisy;
mod ring_size;
mod share_change;
mod shares;

use crate::experiment::{Experiment, Topic};
use crate::needs::{NETNS, NOTHING, Needs};

/// The experiments of this topic.
pub const TOPIC: Topic = Topic {
    title: "Shares of a core",
    experiments: &[
        Experiment {
            name: "shares",
            aliases: &["h8"],
            summary: "two NFs that share a core by weight: error of their throughput, by I/O model",
            needs: Needs {
                required: &[NETNS],
                compared: &[],
            },
            run: shares::run,
        },
        Experiment {
            name: "share-change",
            aliases: &["share"],
            summary: "how soon a change of shares takes effect",
            needs: NOTHING,
            run: share_change::run,
        },
        Experiment {
            name: "core-sharing",
            aliases: &["r1"],
            summary: "1 to 30 forwarders on one core, with work on each frame: what is left of one's throughput",
            needs: NOTHING,
            run: core_sharing::run,
        },
        Experiment {
            name: "ring-size",
            aliases: &["r2"],
            summary: "ten forwarders on one core, by the size of their rings",
            needs: NOTHING,
            run: ring_size::run,
        },
        Experiment {
            name: "cost-fairness",
            aliases: &["r3"],
            summary: "two NFs of different cost on one core: CPU time and packets of each",
            needs: NOTHING,
            run: cost_fairness::run,
        },
        Experiment {
            name: "busy-core",
            aliases: &["r4"],
            summary: "ping through an idle NF that shares its core with 0, 10 and 25 busy ones",
            needs: NOTHING,
            run: busy_core::run,
        },
        Experiment {
            name: "noisy",
            aliases: &[],
            summary: "one NF spins, floods, fills its memory, or rings for nothing; the others before and meanwhile",
            needs: NOTHING,
            run: noisy::run,
        },
    ],
};
