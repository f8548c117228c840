//! Waking a sleeping receiver: by the link peer's pipe or by the kernel's doorbell, on the sender's core or another
//! core.

use crate::host::cpu::require_two_cores;
use crate::peer::{Peer, run_together};
use crate::report::Report;
use crate::roles::{Role, Task};
use crate::setups::pairs::{self, Pair};
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_switch::Destination;
use nfluid_switch::instance::PortSpec;
use nfluid_testbed::scratch::{Scratch, mac_of};

const RING: u32 = 64;
/// Pause between two frames, in microseconds, after which the receiver sleeps.
const PAUSE_US: u64 = 1000;

const TITLE: &str = "Waking a receiver, one frame of 64 B";
const QUANTITIES: [Quantity; 3] = [
    Quantity::new(
        ".latency_us",
        "us",
        &[("latency us", Shown::Median), ("spread", Shown::Spread)],
    ),
    Quantity::shown(&[("p99 us", Shown::Median)]),
    Quantity::new(
        ".cost_us",
        "us",
        &[
            ("sender's cost us", Shown::Median),
            ("spread", Shown::Spread),
        ],
    ),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let mut scratch = Scratch::new("wake")?;
    let conditions = format!(
        "a frame each {PAUSE_US} us, batch 1, {RING} slots; latency: from before the call to the \
         receiver's hands; cost: the sender's call by the clock, on one core what runs in between included"
    );
    let mut sides = Vec::new();
    for (place, cores) in [("same", [1, 1]), ("other", [0, 1])] {
        for (doorbell, kernel) in [("pipe", false), ("kernel", true)] {
            let id = format!("wake.{place}.{doorbell}");
            let pair = pair(&mut scratch, cores, kernel)?;
            sides.push(Side::new([id.clone()], id, pair).under(&conditions));
        }
    }
    let (rounds, seconds) = report.effort((11, 1.0), (5, 0.4));
    let mut sweep = Sweep::new(&["core and bell"], QUANTITIES);
    sweep.settles = false;
    let rows = sweep.run(report, rounds, &mut sides, |pair, _| {
        let outcomes = run_together(&mut pair.peers, seconds)?;
        let (sender, receiver) = (outcomes[0], outcomes[1]);
        Ok([receiver.median_us, receiver.p99_us, sender.median_us])
    })?;
    sweep.print(TITLE);
    sweep.report(report, rows);
    report.plot(plot(&sweep));
    Ok(())
}

fn plot(sweep: &Sweep<3>) -> Plot {
    let line = |name: &str, quantity: usize| {
        let mut series = Series::new(name);
        for (index, row) in sweep.rows().iter().enumerate() {
            series.push(index as f64, &row.samples[quantity]);
        }
        series
    };
    let names = sweep.rows().iter().map(|row| row.id.replace("wake.", ""));
    Plot {
        id: "wake.latency".to_owned(),
        title: TITLE.to_owned(),
        x: Axis::categories("receiver's core and bell", names),
        y: Axis::linear("us"),
        series: vec![
            line("latency", 0),
            line("latency, p99", 1),
            line("sender's cost", 2),
        ],
    }
}

/// Starts a sender and a sleeping receiver with one kind of doorbell, on a pair of cores.
fn pair(scratch: &mut Scratch, cores: [usize; 2], kernel: bool) -> anyhow::Result<Pair> {
    let mut sender = scratch.instance(1, RING, RING)?;
    let mut receiver = if kernel {
        let port = scratch.port_ids(1);
        let mut spec = PortSpec::new(port, "p0", mac_of(port), RING);
        spec.kernel_doorbell = true;
        scratch.instance_with(&[spec])?
    } else {
        scratch.instance(1, RING, RING)?
    };
    if kernel {
        // Without the peer's pipe, only the switch rings.
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
    Ok(pairs::of(peers, vec![sender, receiver]))
}
