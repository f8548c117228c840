//! NFs, each alone on core 0, their traffic on core 1: shared code of `nf`, `rules` and `routes`.
//!
//! The figure is frames per second of CPU time of the NF's process, sleeping and waking included: the NF's core is not
//! full if the traffic's core cannot keep it busy. Further figures are the wall-clock rate and the load of the NF's
//! core.

use crate::host::cpu::require_two_cores;
use crate::peer::run_together;
use crate::report::{Report, significant};
use crate::setups::pairs;
use crate::sweep::{Quantity, Row, Shown, Side, Sweep};
use crate::workload::Workload;
use nfluid_testbed::scratch::Scratch;

const BATCH: usize = 64;
const RING: u32 = 256;

/// The quantities of a repetition.
const QUANTITIES: [Quantity; 4] = [
    // Frames per second of CPU time.
    Quantity::CPU_MPPS,
    Quantity::WALL_MPPS,
    Quantity::new(".busy_percent", "%", &[("NF's core busy", Shown::Percent)]),
    Quantity::shown(&[("late or lost", Shown::Sum)]),
];

/// Measures each workload with frames of each size: figures `nf.NAME.SIZE.mpps`.
pub fn measure(
    report: &mut Report,
    title: &str,
    workloads: &[(&str, Workload)],
    sizes: &[usize],
) -> anyhow::Result<()> {
    require_two_cores()?;
    let mut scratch = Scratch::new("nf")?;
    let (mut sides, mut traffic) = (Vec::new(), Vec::new());
    for (name, workload) in workloads {
        for len in sizes {
            let pair = pairs::around(&mut scratch, *workload, *len, BATCH, RING)?;
            let id = format!("nf.{name}.{len}");
            let key = [format!("{id}.mpps")];
            traffic.push(workload.traffic());
            sides.push(Side::new(key, id, pair));
        }
    }
    let (rounds, seconds) = report.effort((11, 0.5), (3, 0.2));
    let mut sweep = Sweep::new(&["figure"], QUANTITIES);
    // The first round builds tables and opens flows.
    let rows = sweep.run(report, rounds, &mut sides, |pair, _| {
        let outcomes = run_together(&mut pair.peers, seconds)?;
        let (nf, traffic) = (outcomes[0], outcomes[1]);
        Ok([
            traffic.frames as f64 / nf.cpu_seconds / 1e6,
            traffic.frames as f64 / traffic.seconds / 1e6,
            nf.cpu_seconds / nf.seconds * 100.0,
            traffic.lost as f64,
        ])
    })?;
    sweep.notes = &["traffic"];
    for (row, traffic) in sweep.rows_mut().iter_mut().zip(traffic) {
        row.conditions = conditions(row, &traffic);
        row.notes = vec![traffic];
    }
    sweep.print(title);
    sweep.report(report, rows);
    Ok(())
}

fn conditions(row: &Row<4>, traffic: &str) -> String {
    let [_, wall, busy, _] = &row.samples;
    format!(
        "frames out of the NF per CPU-second of its process, alone on its core ({:.0} % busy, \
         {} Mpps by the clock); sender and receiver are one process on the other core, which \
         writes headers and does not read what returns; {traffic}, batch {BATCH}, {RING} slots",
        busy.median(),
        significant(wall.median()),
    )
}
