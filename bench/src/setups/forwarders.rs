//! Forwarding processes that share one core, and their traffic on the other core (Sharing CPUs by congestion control,
//! KBNets '17).

use crate::io_model::Model;
use crate::roles::fan::Fan;
use crate::roles::function::Manner;
use crate::roles::{Role, Task};
use crate::setups::fleet::{Fleet, Member, Plan};
use crate::sweep::{Quantity, Shown};
use crate::workload::Workload;
use nfluid_testbed::scratch::Scratch;

/// Bytes of a frame, and slots of a ring, as in the literature.
pub const LEN: usize = 128;
pub const RING: u32 = 1024;

/// The quantities of forwarders, in the order of [`measure`].
pub const QUANTITIES: [Quantity; 4] = [
    Quantity::MPPS,
    // Of the forwarders' CPU time.
    Quantity::new(
        ".per_cpu_mpps",
        "Mpps",
        &[("Mpps per CPU-second", Shown::Median)],
    ),
    // Frames per call of the switch.
    Quantity::shown(&[("batch", Shown::Median)]),
    Quantity::shown(&[("late or lost", Shown::Sum)]),
];

/// Measures one repetition.
pub fn measure(fleet: &mut Fleet, scratch: &Scratch, seconds: f64) -> anyhow::Result<[f64; 4]> {
    let measured = fleet.measure(scratch, seconds)?;
    Ok([
        measured.mpps(),
        measured.per_cpu_mpps(),
        measured.batch(),
        measured.lost() as f64,
    ])
}

/// Returns a plan of `count` forwarders on one core, which always have work.
pub fn forwarders(count: usize, manner: Manner, ring: u32) -> Plan {
    let member = Member {
        core: Model::nf_core(),
        workload: Workload::Bridge,
        manner,
    };
    Plan {
        members: vec![member; count],
        ring,
        traffic: vec![traffic(LEN, ring, false)],
        io: None,
    }
}

/// Returns the traffic on the other core: a ring of frames in flight through each NF.
pub fn traffic(len: usize, ring: u32, pings: bool) -> Role {
    let (core, waits) = Model::Inline.traffic();
    Role {
        core,
        task: Task::Fan {
            workload: Workload::Bridge,
            fan: Fan {
                len,
                batch: 64,
                window: ring,
                waits,
                pings,
            },
        },
    }
}
