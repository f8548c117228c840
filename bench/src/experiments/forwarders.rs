//! Forwarding processes that share one core, and their traffic on the other (Sharing CPUs by congestion
//! control, KBNets '17).

use super::fleet::{Fleet, Member, Plan};
use super::models::Model;
use super::subject::Subject;
use crate::report::significant;
use crate::roles::fan::Fan;
use crate::roles::function::Manner;
use crate::roles::{Role, Task};
use crate::statistics::Samples;
use nfluid_testbed::scratch::Scratch;

/// Bytes of a frame, and slots of a ring, as in the literature.
pub const LEN: usize = 128;
pub const RING: u32 = 1024;

/// What [`Lane::cells`] shows.
pub const COLUMNS: [&str; 5] = [
    "Mpps",
    "spread",
    "Mpps per CPU-second",
    "batch",
    "late or lost",
];

/// So many forwarders.
pub struct Lane {
    pub count: usize,
    pub fleet: Fleet,
    /// Frames per second, in millions.
    pub mpps: Samples,
    /// Frames per second of the forwarders' CPU time, in millions.
    pub per_cpu: Samples,
    /// Frames per call of the switch.
    pub batch: Samples,
    pub lost: u64,
}

impl Lane {
    /// Starts them, on rings of `ring` slots.
    pub fn new(
        scratch: &mut Scratch,
        count: usize,
        manner: Manner,
        ring: u32,
    ) -> anyhow::Result<Self> {
        Ok(Lane {
            count,
            fleet: Fleet::start(scratch, forwarders(count, manner, ring))?,
            mpps: Samples::default(),
            per_cpu: Samples::default(),
            batch: Samples::default(),
            lost: 0,
        })
    }

    /// A repetition; one that does not count warms up.
    pub fn measure(&mut self, scratch: &Scratch, seconds: f64, counts: bool) -> anyhow::Result<()> {
        let measured = self.fleet.measure(scratch, seconds)?;
        if counts {
            self.mpps.push(measured.mpps());
            self.per_cpu.push(measured.per_cpu_mpps());
            self.batch.push(measured.batch());
            self.lost += measured.lost();
        }
        Ok(())
    }

    /// What was measured, as cells of a table with [`COLUMNS`].
    pub fn cells(&self) -> Vec<String> {
        vec![
            significant(self.mpps.median()),
            format!("{:.0} %", self.mpps.spread_percent()),
            significant(self.per_cpu.median()),
            significant(self.batch.median()),
            self.lost.to_string(),
        ]
    }
}

/// So many forwarders on one core, which always have work.
pub fn forwarders(count: usize, manner: Manner, ring: u32) -> Plan {
    let member = Member {
        core: Model::nf_core(),
        subject: Subject::Bridge,
        manner,
    };
    Plan {
        members: vec![member; count],
        ring,
        traffic: vec![traffic(LEN, ring, false)],
        io: None,
    }
}

/// Traffic on the other core: a ring of frames under way through each NF.
pub fn traffic(len: usize, ring: u32, pings: bool) -> Role {
    let (core, waits) = Model::Inline.traffic();
    Role {
        core,
        task: Task::Fan {
            subject: Subject::Bridge,
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
