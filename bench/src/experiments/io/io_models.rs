//! H5: no NF, bridge, firewall with 10 rules, router with 10 routes, in every I/O model (HyperNF, SoCC '17, fig. 6):
//! frames forwarded per second of CPU time.
//!
//! The CPU time is that of the NF's process and its I/O threads together, so that no model hides its cost: in `split`
//! both sides are capped at half a core, in `merge` they share the NF's core. The traffic's process, the same for all
//! models, is not counted.

use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::peer::run_together;
use crate::report::{Report, significant};
use crate::roles::work::Outcome;
use crate::setups::pairs::{self, Served};
use crate::sweep::{Quantity, Row, Side, Sweep, lines};
use crate::workload::Workload;
use nfluid_figures::plot::{Axis, Plot};
use nfluid_figures::statistics::highest;
use nfluid_testbed::scratch::Scratch;

const BATCH: usize = 64;
const RING: u32 = 256;
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1514];

/// The NF under test.
const SUBJECTS: [(&str, Option<Workload>); 4] = [
    ("nonf", None),
    ("bridge", Some(Workload::Bridge)),
    (
        "firewall10",
        Some(Workload::Firewall {
            rules: 10,
            flows: 1000,
        }),
    ),
    ("router10", Some(Workload::Router { routes: 10 })),
];

/// The quantities of a repetition, in the order of [`measure`].
const QUANTITIES: [Quantity; 3] = [
    // Frames per CPU-second.
    Quantity::CPU_MPPS,
    Quantity::WALL_MPPS,
    // Frames per run of an I/O thread: the last cell, which without a thread is the sender's batch.
    Quantity::shown(&[]),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let sizes = report.choose(SIZES.to_vec(), vec![64, 1024]);
    let (rounds, seconds) = report.effort((7, 0.3), (2, 0.07));
    let mut scratch = Scratch::new("h5")?;
    let mut sweep = Sweep::new(&["NF", "size", "model"], QUANTITIES);
    for (name, workload) in SUBJECTS {
        let first = sweep.rows().len();
        for &len in &sizes {
            let sides = Model::ALL
                .into_iter()
                .map(|model| side(&mut scratch, name, workload, len, model));
            let mut sides = sides.collect::<anyhow::Result<Vec<_>>>()?;
            let rows = sweep.run(report, rounds, &mut sides, |served, _| {
                measure(served, seconds)
            })?;
            sweep.report(report, rows.clone());
            inline_vs_best(report, name, len, &sweep.rows()[rows]);
        }
        report.plot(Plot {
            id: format!("h5.{name}"),
            title: format!("{name}: frames per second of CPU time, NF and I/O threads together"),
            x: Axis::log("frame size in bytes"),
            y: Axis::linear("Mpps per CPU-second"),
            series: lines(&sweep.rows()[first..], 0),
        });
    }
    sweep.notes = &["batch of the switch"];
    for row in sweep.rows_mut() {
        row.notes = vec![if row.line == Model::Inline.name() {
            BATCH.to_string()
        } else {
            significant(row.samples[2].median())
        }];
    }
    sweep.print("I/O models");
    Ok(())
}

fn side(
    scratch: &mut Scratch,
    name: &str,
    workload: Option<Workload>,
    len: usize,
    model: Model,
) -> anyhow::Result<Side<Served>> {
    let served = match workload {
        None => pairs::one_way_by(scratch, model, len, BATCH, RING)?,
        Some(workload) => pairs::around_by(scratch, model, workload, len, BATCH, RING)?,
    };
    let key = [name.to_owned(), len.to_string(), model.name().to_owned()];
    let id = format!("h5.{name}.{len}.{}", model.name());
    Ok(Side::new(key, id, served)
        .under(&model.conditions())
        .on(model.name(), len as f64))
}

fn measure(served: &mut Served, seconds: f64) -> anyhow::Result<[f64; 3]> {
    let outcomes = run_together(&mut served.peers, seconds)?;
    // Order: the NF, the traffic's outcome, the I/O threads.
    let io = outcomes.get(2);
    let cpu = outcomes[0].cpu_seconds + io.map_or(0.0, |io| io.cpu_seconds);
    let frames = outcomes[1].frames as f64;
    let visit = |io: &Outcome| io.frames as f64 / io.visits.max(1) as f64;
    Ok([
        frames / cpu / 1e6,
        frames / outcomes[1].seconds / 1e6,
        io.map_or(f64::NAN, visit),
    ])
}

fn inline_vs_best(report: &mut Report, name: &str, len: usize, rows: &[Row<3>]) {
    let [inline, others @ ..] = rows else { return };
    if let Some(best) = highest(others, |row| &row.samples[0]) {
        report.figure(
            format!("h5.{name}.{len}.inline_vs_best"),
            &inline.samples[0].ratios(&best.samples[0]),
            "ratio",
            &format!("best other: {}", best.line),
        );
    }
}
