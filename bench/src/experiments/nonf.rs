//! No NF: sender -> switch -> receiver that reads every byte (H5 "no NF").

use super::two_cores;
use crate::peer::{Peer, run_together};
use crate::report::{Report, significant, table};
use crate::roles::{Role, Task};
use crate::statistics::Samples;
use nfluid_switch::scratch::Scratch;

const BATCH: usize = 64;
const RING: u32 = 256;

/// One way through the switch.
struct Lane {
    peers: Vec<Peer>,
    mpps: Samples,
    cores: &'static str,
    id: String,
    /// What the peers use lives as long as they do.
    _instances: Vec<nfluid_switch::scratch::ScratchInstance>,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let mut scratch = Scratch::new("nonf")?;
    let sizes = report.choose(vec![64, 128, 256, 512, 1024, 1514], vec![64, 1514]);
    let mut lanes = Vec::new();
    for len in sizes {
        lanes.push(lane(&mut scratch, format!("nonf.{len}.mpps"), len, [0, 1])?);
    }
    for len in [64, 1514] {
        lanes.push(lane(
            &mut scratch,
            format!("nonf.samecore.{len}.mpps"),
            len,
            [1, 1],
        )?);
    }
    let (rounds, seconds) = report.choose((11, 0.5), (3, 0.2));
    for round in 0..=rounds {
        for lane in &mut lanes {
            let outcomes = run_together(&mut lane.peers, seconds)?;
            let receiver = outcomes[1];
            // The first round warms up.
            if round > 0 {
                lane.mpps
                    .push(receiver.frames as f64 / receiver.seconds / 1e6);
            }
        }
    }
    let conditions = |lane: &Lane| format!("{}, batch {BATCH}, {RING} slots", lane.cores);
    let row = |lane: &Lane| {
        vec![
            lane.id.clone(),
            significant(lane.mpps.median()),
            format!("{:.0} %", lane.mpps.spread_percent()),
            conditions(lane),
        ]
    };
    let rows: Vec<_> = lanes.iter().map(row).collect();
    table(
        "No NF: sender -> switch -> receiver that reads the payload",
        &["figure", "Mpps", "spread", "conditions"],
        &rows,
    );
    for lane in &lanes {
        report.figure(&lane.id, &lane.mpps, "Mpps", &conditions(lane));
    }
    Ok(())
}

fn lane(scratch: &mut Scratch, id: String, len: usize, cores: [usize; 2]) -> anyhow::Result<Lane> {
    let same = cores[0] == cores[1];
    let mut sender = scratch.instance(1, RING, 64)?;
    let mut receiver = scratch.instance(1, RING, 64)?;
    scratch.link((&mut sender, 0), (&mut receiver, 0))?;
    let peers = vec![
        Peer::start(
            &sender,
            &Role {
                core: cores[0],
                task: Task::Send {
                    len,
                    batch: BATCH,
                    flows: 64,
                    yields: same,
                },
            },
        )?,
        Peer::start(
            &receiver,
            &Role {
                core: cores[1],
                task: Task::Receive { yields: same },
            },
        )?,
    ];
    let cores = if same {
        "one core for both"
    } else {
        "one core each"
    };
    Ok(Lane {
        peers,
        mpps: Samples::default(),
        cores,
        id,
        _instances: vec![sender, receiver],
    })
}
