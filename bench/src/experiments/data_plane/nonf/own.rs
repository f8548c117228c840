//! Transfer through nfluid's switch.

use super::{TWO_CORES, Transfer, cores_in_words, idle_percent};
use crate::peer::Peer;
use crate::report::Report;
use crate::roles::{Role, Task};
use crate::setups::pairs;
use crate::sweep::Side;
use nfluid_testbed::scratch::Scratch;

/// Slots of a ring. A small ring stays in a core's own cache, which is best for both sides on one core. The slots of a
/// large ring have left the receiver's cache when the sender writes them again, which is best for long frames on two
/// cores.
pub const RINGS: [u32; 2] = [256, 1024];

pub fn side(
    scratch: &mut Scratch,
    id: String,
    len: usize,
    batch: usize,
    slots: u32,
    cores: [usize; 2],
) -> anyhow::Result<Side<Transfer>> {
    let conditions = format!(
        "{}{}, batch {batch}, {slots} slots",
        cores_in_words(cores),
        if cores[0] == cores[1] {
            ", sched_yield"
        } else {
            ""
        },
    );
    let transfer = Transfer {
        pair: pairs::one_way(scratch, len, batch, slots, cores)?,
        len: None,
        sender_copies: true,
    };
    Ok(super::side(id, &conditions, transfer))
}

/// Measures a sleeping receiver without traffic.
pub fn idle(report: &mut Report, scratch: &mut Scratch) -> anyhow::Result<()> {
    let mut sender = scratch.instance(1, RINGS[0], 64)?;
    let mut receiver = scratch.instance(1, RINGS[0], 64)?;
    scratch.link((&mut sender, 0), (&mut receiver, 0))?;
    let role = Role {
        core: TWO_CORES[1],
        task: Task::Sleep,
    };
    let mut peers = [Peer::start(&receiver, &role)?];
    let percent = idle_percent(report, &mut peers)?;
    let conditions = "a receiver that nobody sends to: it sleeps, and looks up every 20 ms";
    report.figure("nonf.idle_cpu_percent", &percent, "%", conditions);
    Ok(())
}
