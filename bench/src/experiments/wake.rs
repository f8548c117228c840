//! Waking a receiver that sleeps: by the link peer's pipe or by the kernel's bell, on the sender's
//! core or another one.

use super::two_cores;
use crate::peer::{Peer, run_together};
use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, significant, table};
use crate::roles::{Role, Task};
use crate::statistics::Samples;
use nfluid_switch::Destination;
use nfluid_switch::instance::PortSpec;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};

const RING: u32 = 64;
/// Between two frames, in microseconds: the receiver is asleep by then.
const PAUSE_US: u64 = 1000;

/// One bell on one pair of cores.
struct Lane {
    id: String,
    peers: Vec<Peer>,
    latency: Samples,
    latency_p99: Samples,
    cost: Samples,
    /// What the peers use lives as long as they do.
    _instances: [ScratchInstance; 2],
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let mut scratch = Scratch::new("wake")?;
    let mut lanes = Vec::new();
    for (place, cores) in [("same", [1, 1]), ("other", [0, 1])] {
        for (bell, kernel) in [("pipe", false), ("kernel", true)] {
            let id = format!("wake.{place}.{bell}");
            lanes.push(lane(&mut scratch, id, cores, kernel)?);
        }
    }
    let (rounds, seconds) = report.effort((11, 1.0), (5, 0.4));
    for round in 0..=rounds {
        for lane in &mut lanes {
            let outcomes = run_together(&mut lane.peers, seconds)?;
            // The first round warms up.
            if round > 0 {
                lane.cost.push(outcomes[0].median_us);
                lane.latency.push(outcomes[1].median_us);
                lane.latency_p99.push(outcomes[1].p99_us);
            }
        }
    }
    let row = |lane: &Lane| {
        vec![
            lane.id.clone(),
            significant(lane.latency.median()),
            format!("{:.0} %", lane.latency.spread_percent()),
            significant(lane.latency_p99.median()),
            significant(lane.cost.median()),
            format!("{:.0} %", lane.cost.spread_percent()),
        ]
    };
    let rows: Vec<_> = lanes.iter().map(row).collect();
    let header = [
        "core and bell",
        "latency us",
        "spread",
        "p99 us",
        "sender's cost us",
        "spread",
    ];
    table("Waking a receiver, one frame of 64 B", &header, &rows);
    let conditions = format!(
        "a frame each {PAUSE_US} us, batch 1, {RING} slots; latency: from before the call to the \
         receiver's hands; cost: the sender's call by the clock, on one core what runs in between included"
    );
    for lane in &lanes {
        let id = |what: &str| format!("{}.{what}", lane.id);
        report.figure(id("latency_us"), &lane.latency, "us", &conditions);
        report.figure(id("cost_us"), &lane.cost, "us", &conditions);
    }
    report.plot(plot(&lanes));
    Ok(())
}

fn plot(lanes: &[Lane]) -> Plot {
    let line = |name: &str, samples: fn(&Lane) -> &Samples| {
        let mut series = Series::new(name);
        for (index, lane) in lanes.iter().enumerate() {
            series.push(index as f64, samples(lane));
        }
        series
    };
    let names = lanes.iter().map(|lane| lane.id.replace("wake.", ""));
    Plot {
        id: "wake.latency".to_owned(),
        title: "Waking a receiver, one frame of 64 B".to_owned(),
        x: Axis::categories("receiver's core and bell", names),
        y: Axis::linear("us"),
        series: vec![
            line("latency", |lane| &lane.latency),
            line("latency, p99", |lane| &lane.latency_p99),
            line("sender's cost", |lane| &lane.cost),
        ],
    }
}

fn lane(
    scratch: &mut Scratch,
    id: String,
    cores: [usize; 2],
    kernel: bool,
) -> anyhow::Result<Lane> {
    let mut sender = scratch.instance(1, RING, RING)?;
    let mut receiver = if kernel {
        let port = scratch.port_ids(1);
        let [high, low] = (port as u16).to_be_bytes();
        let mut spec = PortSpec::new(port, "p0", [2, 0, 0, 0, high, low], RING);
        spec.kernel_bell = true;
        scratch.instance_with(&[spec])?
    } else {
        scratch.instance(1, RING, RING)?
    };
    if kernel {
        // Without the peer's pipe: the switch alone rings.
        let (from, to) = (sender.id(0), receiver.id(0));
        scratch.switch.connect(from, Destination::Link(to))?;
        scratch.switch.connect(to, Destination::Link(from))?;
    } else {
        scratch.link((&mut sender, 0), (&mut receiver, 0))?;
    }
    let role = |core, task| Role { core, task };
    let ring = Task::Ring { pause_us: PAUSE_US };
    let peers = vec![
        Peer::start(&sender, &role(cores[0], ring))?,
        Peer::start(&receiver, &role(cores[1], Task::Sleep))?,
    ];
    Ok(Lane {
        id,
        peers,
        latency: Samples::default(),
        latency_p99: Samples::default(),
        cost: Samples::default(),
        _instances: [sender, receiver],
    })
}
