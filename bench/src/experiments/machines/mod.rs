//! Instances of tier `microvm`: KVM guests that are one network function.

mod io;
mod life;
mod start;

use crate::experiment::{Experiment, Topic};
use crate::needs::{CONTAINERS, NETNS, NOTHING, Needs, QEMU};

/// The experiments of this topic.
pub const TOPIC: Topic = Topic {
    title: "Virtual machines",
    experiments: &[
        Experiment {
            name: "microvm",
            aliases: &["l1"],
            summary: "guests and processes side by side: start, creation beside many, memory, save and restore, just in time; fork+exec, crun, QEMU",
            needs: Needs {
                required: &[NETNS],
                compared: &[CONTAINERS, QEMU],
            },
            run: life::run,
        },
        Experiment {
            name: "microvm-io",
            aliases: &["h9"],
            summary: "NFs in guests in every I/O model: throughput, exits per packet, cost of an exit",
            needs: NOTHING,
            run: io::run,
        },
    ],
};
