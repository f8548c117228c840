//! Graphs of small tasks, executed once per interval: queues, the control loop, schedules, an LTE uplink.

mod control;
mod graphs;
mod idle;
mod lte;
mod queues;
mod rows;
mod schedules;
mod slice;
mod tasks;

use crate::experiment::{Experiment, Topic};
use crate::needs::{NETNS, NOTHING, Needs};

/// The experiments of this topic.
pub const TOPIC: Topic = Topic {
    title: "Dataflow",
    experiments: &[
        Experiment {
            name: "dataflow-queues",
            aliases: &["m5"],
            summary: "a message between threads: our queue, rtrb, crossbeam's ArrayQueue, mutex and condition variable",
            needs: NOTHING,
            run: queues::run,
        },
        Experiment {
            name: "dataflow-control",
            aliases: &[],
            summary: "a chain of dependent tasks: the control loop with the core manager on another core, and on the PE",
            needs: NOTHING,
            run: control::run,
        },
        Experiment {
            name: "dataflow-tasks",
            aliases: &["m7"],
            summary: "tasks per millisecond, utilisation and makespan by length of tasks, smallest task worth its message",
            needs: NOTHING,
            run: tasks::run,
        },
        Experiment {
            name: "dataflow-schedules",
            aliases: &["m6"],
            summary: "static schedulers against the optimum; composing and decisions; replayed on up to 64 PEs",
            needs: NOTHING,
            run: schedules::run,
        },
        Experiment {
            name: "dataflow-lte",
            aliases: &[],
            summary: "an LTE uplink of 832 tasks per subframe: the serial program, rayon, one and two PEs",
            needs: NOTHING,
            run: lte::run,
        },
        Experiment {
            name: "dataflow-slice",
            aliases: &[],
            summary: "the same as a slice in a chain: from the last sample sent to the last transport block, by pace",
            needs: Needs {
                required: &[NETNS],
                compared: &[],
            },
            run: slice::run,
        },
        Experiment {
            name: "dataflow-idle",
            aliases: &[],
            summary: "CPU of an engine without a slice, and with an empty interval per millisecond",
            needs: NOTHING,
            run: idle::run,
        },
    ],
};
