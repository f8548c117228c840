//! R1: n plain forwarding processes on one core, 128 B, with and without work on each frame (Sharing
//! CPUs by congestion control, KBNets '17): what is left of one process's throughput.
//!
//! Ours sleep while nothing waits and are woken by the traffic; those of the literature poll, which is a
//! lane beside. Each with and without `sched_yield` after each batch.

use super::forwarders::{COLUMNS, LEN, Lane, RING};
use super::two_cores;
use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, table};
use crate::roles::Waits;
use crate::roles::function::Manner;
use crate::statistics::Samples;
use nfluid_testbed::scratch::Scratch;

/// What a forwarder does while nothing waits, and after a batch.
const MANNERS: [(&str, Waits, bool); 4] = [
    ("sleep", Waits::Sleeping, false),
    ("sleep-yield", Waits::Sleeping, true),
    ("poll", Waits::Spinning, false),
    ("poll-yield", Waits::Yielding, true),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let counts = report.choose(vec![1, 2, 5, 10, 20, 30], vec![1, 30]);
    let work = report.choose(vec![0, 100, 1000, 10_000], vec![0]);
    let manners = report.choose(MANNERS.to_vec(), vec![MANNERS[0], MANNERS[3]]);
    let (rounds, seconds) = report.effort((7, 0.4), (3, 0.1));
    let mut rows = Vec::new();
    for &cycles in &work {
        let mut plotted = Vec::new();
        for &(name, waits, yields) in &manners {
            let manner = Manner {
                cycles,
                waits,
                yields,
            };
            let mut scratch = Scratch::new("r1")?;
            let mut lanes = counts
                .iter()
                .map(|&count| Lane::new(&mut scratch, count, manner, RING))
                .collect::<anyhow::Result<Vec<_>>>()?;
            for round in 0..=rounds {
                for lane in &mut lanes {
                    report.settle();
                    // The first round warms up.
                    lane.measure(&scratch, seconds, round > 0)?;
                }
            }
            figures(report, name, cycles, &lanes);
            let mut series = Series::new(name);
            for lane in &lanes {
                series.push(lane.count as f64, &lane.mpps);
                let key = [name.to_owned(), cycles.to_string(), lane.count.to_string()];
                rows.push([key.to_vec(), lane.cells()].concat());
            }
            plotted.push(series);
        }
        report.plot(Plot {
            id: format!("r1.{cycles}"),
            title: format!("Forwarders on one core, {LEN} B, {cycles} extra cycles per packet"),
            x: Axis::linear("processes"),
            y: Axis::linear("Mpps"),
            series: plotted,
        });
    }
    let header = [&["manner", "extra cycles", "processes"], &COLUMNS[..]].concat();
    table("Forwarders on one core", &header, &rows);
    Ok(())
}

/// Ours have the short ids; the others have their manner in them.
fn figures(report: &mut Report, name: &str, cycles: u32, lanes: &[Lane]) {
    let manner = match name {
        "sleep" => String::new(),
        other => format!("{other}."),
    };
    let conditions = format!(
        "{LEN} B, rings of {RING} slots, forwarders ({name}) on one core, traffic on the other"
    );
    for lane in lanes {
        let id = |what: &str| format!("r1.{manner}{}.{cycles}.{what}", lane.count);
        report.figure(id("mpps"), &lane.mpps, "Mpps", &conditions);
        report.figure(id("per_cpu_mpps"), &lane.per_cpu, "Mpps", &conditions);
    }
    let (Some(few), Some(many)) = (lanes.first(), lanes.last()) else {
        return;
    };
    // Round by round: both sides of a ratio are measured within seconds.
    let kept = many.mpps.values().iter().zip(few.mpps.values());
    let kept: Samples = kept.map(|(many, few)| many / few * 100.0).collect();
    let work = match cycles {
        0 => String::new(),
        some => format!("{some}."),
    };
    report.figure(
        format!("r1.{manner}{work}kept_percent"),
        &kept,
        "%",
        &conditions,
    );
}
