//! R1: n plain forwarding processes on one core, 128 B, with and without work on each frame (Sharing CPUs by congestion
//! control, KBNets '17): the fraction that remains of one process's throughput.
//!
//! nfluid's processes sleep while no frame waits and are woken by the traffic; those of the literature poll, which is a
//! further variant. Each with and without `sched_yield` after each batch.

use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::roles::function::Manner;
use crate::roles::work::Waits;
use crate::setups::fleet::Fleet;
use crate::setups::forwarders::{LEN, QUANTITIES, RING, forwarders, measure};
use crate::sweep::{Row, Side, Sweep, lines};
use nfluid_figures::plot::{Axis, Plot};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::scratch::Scratch;

/// Behaviour of a forwarder while no frame waits, and after a batch.
const MANNERS: [(&str, Waits, bool); 4] = [
    ("sleep", Waits::Sleeping, false),
    ("sleep-yield", Waits::Sleeping, true),
    ("poll", Waits::Spinning, false),
    ("poll-yield", Waits::Yielding, true),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let counts = report.choose(vec![1, 2, 5, 10, 20, 30], vec![1, 30]);
    let work = report.choose(vec![0, 100, 1000, 10_000], vec![0]);
    let manners = report.choose(MANNERS.to_vec(), vec![MANNERS[0], MANNERS[3]]);
    let (rounds, seconds) = report.effort((7, 0.4), (3, 0.1));
    let mut sweep = Sweep::new(&["manner", "extra cycles", "processes"], QUANTITIES);
    for &cycles in &work {
        let first = sweep.rows().len();
        for &(name, waits, yields) in &manners {
            let manner = Manner {
                cycles,
                waits,
                yields,
            };
            let mut scratch = Scratch::new("r1")?;
            let mut sides = Vec::new();
            for &count in &counts {
                let fleet = Fleet::start(&mut scratch, forwarders(count, manner, RING))?;
                sides.push(side(name, cycles, count, fleet));
            }
            let rows = sweep.run(report, rounds, &mut sides, |fleet, _| {
                measure(fleet, &scratch, seconds)
            })?;
            sweep.report(report, rows.clone());
            kept(report, name, cycles, &sweep.rows()[rows]);
        }
        report.plot(Plot {
            id: format!("r1.{cycles}"),
            title: format!("Forwarders on one core, {LEN} B, {cycles} extra cycles per packet"),
            x: Axis::linear("processes"),
            y: Axis::linear("Mpps"),
            series: lines(&sweep.rows()[first..], 0),
        });
    }
    sweep.print("Forwarders on one core");
    Ok(())
}

/// Returns the prefix of figure ids: nfluid's own variant has the short ids, the others contain their manner.
fn prefix(name: &str) -> String {
    match name {
        "sleep" => "r1.".to_owned(),
        other => format!("r1.{other}."),
    }
}

fn side(name: &str, cycles: u32, count: usize, fleet: Fleet) -> Side<Fleet> {
    let key = [name.to_owned(), cycles.to_string(), count.to_string()];
    let id = format!("{}{count}.{cycles}", prefix(name));
    Side::new(key, id, fleet)
        .under(&conditions(name))
        .on(name, count as f64)
}

fn conditions(name: &str) -> String {
    format!("{LEN} B, rings of {RING} slots, forwarders ({name}) on one core, traffic on the other")
}

/// Reports the fraction of the throughput with the fewest forwarders that remains with the most forwarders.
fn kept(report: &mut Report, name: &str, cycles: u32, rows: &[Row<4>]) {
    let (Some(few), Some(many)) = (rows.first(), rows.last()) else {
        return;
    };
    // Round by round: both sides of a ratio are measured within seconds.
    let kept = many.samples[0].ratios(&few.samples[0]);
    let kept: Samples = kept.values().iter().map(|part| part * 100.0).collect();
    let work = match cycles {
        0 => String::new(),
        some => format!("{some}."),
    };
    let id = format!("{}{work}kept_percent", prefix(name));
    report.figure(id, &kept, "%", &conditions(name));
}
