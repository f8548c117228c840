//! Through nfluid's switch.

use super::{APART, Lane, cores_in_words, idle_percent};
use crate::peer::Peer;
use crate::report::Report;
use crate::roles::{Role, Task};
use crate::statistics::Samples;
use nfluid_switch::scratch::Scratch;

const RING: u32 = 256;

pub fn lane(
    scratch: &mut Scratch,
    id: String,
    len: usize,
    batch: usize,
    cores: [usize; 2],
) -> anyhow::Result<Lane> {
    let yields = cores[0] == cores[1];
    let mut sender = scratch.instance(1, RING, 64)?;
    let mut receiver = scratch.instance(1, RING, 64)?;
    scratch.link((&mut sender, 0), (&mut receiver, 0))?;
    let send = Task::Send {
        len,
        batch,
        flows: 64,
        yields,
    };
    let receive = Task::Receive { batch, yields };
    let role = |core, task| Role { core, task };
    let peers = vec![
        Peer::start(&sender, &role(cores[0], send))?,
        Peer::start(&receiver, &role(cores[1], receive))?,
    ];
    Ok(Lane {
        id,
        conditions: format!(
            "{}{}, batch {batch}, {RING} slots",
            cores_in_words(cores),
            if yields { ", sched_yield" } else { "" },
        ),
        len: None,
        sender_copies: true,
        peers,
        mpps: Samples::default(),
        _instances: vec![sender, receiver],
    })
}

/// A receiver that sleeps.
pub fn idle(report: &mut Report, scratch: &mut Scratch) -> anyhow::Result<()> {
    let mut sender = scratch.instance(1, RING, 64)?;
    let mut receiver = scratch.instance(1, RING, 64)?;
    scratch.link((&mut sender, 0), (&mut receiver, 0))?;
    let role = Role {
        core: APART[1],
        task: Task::Sleep,
    };
    let mut peers = [Peer::start(&receiver, &role)?];
    let percent = idle_percent(report, &mut peers)?;
    let conditions = "a receiver that nobody sends to: it sleeps, and looks up every 20 ms";
    report.figure("nonf.idle_cpu_percent", &percent, "%", conditions);
    Ok(())
}
