//! 1 to 50 firewalls in a row (H11 "service chain"): round trip and throughput; all NFs sleep while no frame waits. The
//! floor for comparison: as many processes that only wake each other.

use crate::host::cpu::require_two_cores;
use crate::peer::run_together;
use crate::report::Report;
use crate::setups::chain::{BATCH, Chain, Links, Placement, RING};
use crate::setups::pipe_chain::PipeChain;
use crate::sweep::{Quantity, Row, Shown, Side, Sweep};
use nfluid_figures::statistics::highest;
use nfluid_testbed::scratch::Scratch;
use std::time::Duration;

/// The quantities of a placement; the last one is that of the floor.
const QUANTITIES: [Quantity; 5] = [
    Quantity::new(".rtt_us", "us", &[("rtt us", Shown::Median)]).meaning(ONE),
    Quantity::new(".rtt_p99_us", "us", &[("p99 us", Shown::Median)]).meaning(ONE),
    Quantity::MPPS.meaning("64 B, as many frames under way as a ring has slots"),
    Quantity::shown(&[("late or lost", Shown::Sum)]),
    Quantity::new(".floor_us", "us", &[("floor us", Shown::Median)]),
];
const RTT: usize = 0;
const RTT_P99: usize = 1;
const MPPS: usize = 2;
const FLOOR_US: usize = 4;
const ONE: &str = "one frame of 64 B at a time";
const SHARED: &str = "every process sleeps while nothing waits";
const FLOOR: &str =
    "processes that hand a byte on through pipes, all on one core: no frame, no switch, no NF";

/// A placement, measured with two chains; or the floor.
enum Subject {
    Firewalls { ping: Chain, load: Chain },
    Floor(PipeChain),
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let counts = report.choose(vec![1, 2, 5, 10, 20, 50], vec![1, 50]);
    let (rounds, seconds) = report.effort((11, 0.5), (2, 0.1));
    // Starting hundreds of processes is most of a quick run.
    let placements = report.choose(
        vec![
            Placement::OneCore,
            Placement::TrafficApart,
            Placement::Halves,
        ],
        vec![Placement::OneCore, Placement::Halves],
    );
    let mut sweep = Sweep::new(&["firewalls", "placement"], QUANTITIES);
    sweep.settles = false;
    for count in counts {
        let mut scratch = Scratch::new("chain")?;
        let id = format!("chain.{count}");
        let mut sides = Vec::new();
        for &placement in &placements {
            // A single firewall cannot be split into halves.
            if count > 1 || !matches!(placement, Placement::Halves) {
                let links = Links::firewalls();
                let firewalls = Subject::Firewalls {
                    ping: Chain::pinged(&mut scratch, count, placement, &links)?,
                    load: Chain::loaded(&mut scratch, count, placement, &links, 64)?,
                };
                let key = [count.to_string(), placement.name().to_owned()];
                let conditions = format!(
                    "{}; {SHARED}; batches of {BATCH}; {RING} slots",
                    placement.name()
                );
                sides.push(Side::new(key, id.as_str(), firewalls).under(&conditions));
            }
        }
        let floor = Subject::Floor(PipeChain::start(count, 1)?);
        let key = [count.to_string(), "none: pipes".to_owned()];
        sides.push(Side::new(key, id, floor).under(FLOOR));
        let rows = sweep.run(report, rounds, &mut sides, |subject, _| {
            subject.measure(count, seconds)
        })?;
        if let [firewalls @ .., floor] = &sweep.rows()[rows] {
            // The better placement of each kind is the figure.
            let rtt = |row: &&Row<5>| row.samples[RTT].median();
            if let Some(fastest) = firewalls.iter().min_by(|a, b| rtt(a).total_cmp(&rtt(b))) {
                sweep.report_some(report, fastest, &[RTT, RTT_P99]);
            }
            if let Some(row) = highest(firewalls, |row| &row.samples[MPPS]) {
                sweep.report_some(report, row, &[MPPS]);
            }
            sweep.report_some(report, floor, &[FLOOR_US]);
        }
    }
    sweep.print("Firewalls of 10 rules in a row");
    Ok(())
}

impl Subject {
    fn measure(&mut self, count: usize, seconds: f64) -> anyhow::Result<[f64; 5]> {
        match self {
            Subject::Firewalls { ping, load } => {
                let ping = run_together(&mut ping.peers, seconds)?[count];
                let load = run_together(&mut load.peers, seconds)?[count];
                let mpps = load.frames as f64 / load.seconds / 1e6;
                let lost = (ping.lost + load.lost) as f64;
                Ok([ping.median_us, ping.p99_us, mpps, lost, f64::NAN])
            }
            Subject::Floor(pipes) => {
                let us = pipes.measure(Duration::from_secs_f64(seconds))?;
                Ok([f64::NAN, f64::NAN, f64::NAN, f64::NAN, us])
            }
        }
    }
}
