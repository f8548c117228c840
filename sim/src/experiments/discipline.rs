//! The disciplines that are compared at a core: how it queues, serves and signals.

use crate::network::{Class, Marking, Service};
use crate::plan::Node;
use nfluid_marking::{Law, Pie, Red};

/// Slots of a ring: the data plane's default.
const SLOTS: usize = 1024;
/// After this a kernel takes the CPU from a process that others wait for: about Linux's base slice (2.8 ms
/// from 8 cores on).
const QUANTUM_NS: u64 = 3_000_000;

/// How a core (or a link) queues, serves and signals.
#[derive(Clone, Copy, Debug)]
pub struct Discipline {
    /// In tables and plots.
    pub name: &'static str,
    /// In figures.
    pub id: &'static str,
    /// True: a single ring for all functions; false: a ring for each function.
    has_one_ring: bool,
    service: Service,
    /// Signals before a ring is full: by cost if true, alike for all if false. `None`: no such signals.
    signals_by_cost: Option<bool>,
}

/// Batch by batch, whatever it takes.
const BATCHES: Service = Service::Turns { quantum_ns: None };

/// A single ring for all, which drops when it is full.
pub const DROP_TAIL: Discipline = Discipline {
    name: "drop-tail",
    id: "drop_tail",
    has_one_ring: true,
    service: BATCHES,
    signals_by_cost: None,
};

/// A ring for each function, served batch by batch in turn: packet-fair.
pub const PACKET_FAIR: Discipline = Discipline {
    name: "packet-fair",
    id: "packet_fair",
    has_one_ring: false,
    ..DROP_TAIL
};

/// `DROP_TAIL` with a ring for each function, but the kernel takes the CPU away after a quantum.
pub const TURNS: Discipline = Discipline {
    name: "turns",
    id: "turns",
    service: Service::Turns {
        quantum_ns: Some(QUANTUM_NS),
    },
    ..PACKET_FAIR
};

/// A ring for each function, served fairly in CPU time, as a kernel does it: fair queueing.
pub const CPU_FAIR: Discipline = Discipline {
    name: "fair queueing",
    id: "cpu_fair",
    service: Service::CpuFair {
        quantum_ns: Some(QUANTUM_NS),
    },
    ..PACKET_FAIR
};

/// A single ring for all, signals alike for all.
pub const RED: Discipline = Discipline {
    name: "RED",
    id: "red",
    signals_by_cost: Some(false),
    ..DROP_TAIL
};

/// Fair queueing, signals alike for all, from what waits in all rings.
pub const RED_MQ: Discipline = Discipline {
    name: "RED MQ",
    id: "redmq",
    signals_by_cost: Some(false),
    ..CPU_FAIR
};

/// A single ring for all, signals by cost.
pub const RED4: Discipline = Discipline {
    name: "RED_4",
    id: "red4",
    signals_by_cost: Some(true),
    ..DROP_TAIL
};

/// Signals by cost, from what waits in all rings, which the kernel serves fairly in CPU time.
pub const RED4_MQ: Discipline = Discipline {
    name: "RED_4 MQ",
    id: "red4mq",
    signals_by_cost: Some(true),
    ..CPU_FAIR
};

/// RED_4 on rings that are served batch by batch.
pub const RED4_MQ_PACKET_FAIR: Discipline = Discipline {
    name: "RED_4 MQ, packet-fair",
    id: "red4mq_packet_fair",
    service: BATCHES,
    ..RED4_MQ
};

/// RED_4 on rings that are served with the kernel's quantum.
pub const RED4_MQ_TURNS: Discipline = Discipline {
    name: "RED_4 MQ, turns",
    id: "red4mq_turns",
    service: TURNS.service,
    ..RED4_MQ
};

impl Discipline {
    /// A core with a function (or a link with a flow) of each cost. `law` is used by those that signal.
    pub fn node(&self, costs_ns: &[u64], batch: usize, law: Law) -> Node {
        let classes = costs_ns.iter().enumerate().map(|(index, &cost_ns)| Class {
            ring: if self.has_one_ring { 0 } else { index },
            cost_ns,
        });
        let marking = |by_cost| Marking { law, by_cost };
        Node {
            classes: classes.collect(),
            slots: SLOTS,
            service: self.service,
            batch,
            marking: self.signals_by_cost.map(marking),
        }
    }
}

/// The law that tunes itself to a queue delay.
pub fn self_tuning(target_ns: u64) -> Law {
    Law::Pie(Pie::with_target(target_ns))
}

/// Thresholds set by hand: so many packets, a probability of 1/10 at the upper one, an average over 10 ms.
pub fn thresholds(min_frames: u32, max_frames: u32) -> Law {
    Law::Red(Red {
        min_frames,
        max_frames,
        probability_max: u32::MAX / 10,
        average_ns: 10_000_000,
    })
}
