//! Thousands of small NFs, by steering of frames, by wake-up, and by ownership of memory.

mod flow_steering;
mod isolated_buffers;
mod massive;
mod polling_nfs;
mod shared_ring;
mod sleeping_nfs;

use crate::experiment::{Experiment, Topic};
use crate::needs::{CLANG, NETNS, NOTHING, Needs};

/// The experiments of this topic.
pub const TOPIC: Topic = Topic {
    title: "Very many small NFs",
    experiments: &[
        Experiment {
            name: "polling-nfs",
            aliases: &["d1"],
            summary: "2 to 8000 NFs that poll, two per frame: throughput, latency, CPU, memory",
            needs: NOTHING,
            run: polling_nfs::run,
        },
        Experiment {
            name: "sleeping-nfs",
            aliases: &["d2"],
            summary: "2 to 8000 NFs that sleep until they are rung, two per frame; idle too",
            needs: NOTHING,
            run: sleeping_nfs::run,
        },
        Experiment {
            name: "shared-ring",
            aliases: &["d3"],
            summary: "10 to 8000 NFs that say in one ring who has frames, for one I/O thread",
            needs: NOTHING,
            run: shared_ring::run,
        },
        Experiment {
            name: "flow-steering",
            aliases: &["d4"],
            summary: "from a wire straight into the first of two NFs per frame, of 2 to 8000, or by a switch; one NF per frame, hybrid",
            needs: Needs {
                required: &[NETNS, CLANG],
                compared: &[],
            },
            run: flow_steering::run,
        },
        Experiment {
            name: "isolated-buffers",
            aliases: &["d5"],
            summary: "2 to 8000 NFs, and NFs in a row, with memory of their own (copies) and in trust groups (exchange of slots)",
            needs: NOTHING,
            run: isolated_buffers::run,
        },
    ],
};
