//! H5: no NF, bridge, firewall with 10 rules, router with 10 routes, in every I/O model
//! (HyperNF, SoCC '17, fig. 6): what one core's worth of CPU time forwards.
//!
//! The figure is frames per second of CPU time of the NF's process and its I/O threads together, so
//! that no model hides its cost: in `split` both sides are capped at half a core, in `merge` they share
//! the NF's core. The traffic's process, the same for all models, is not counted.

use super::models::Model;
use super::pairs::{self, Served};
use super::subject::Subject;
use super::two_cores;
use crate::peer::run_together;
use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, significant, table};
use crate::statistics::{Samples, highest};
use nfluid_testbed::scratch::Scratch;

const BATCH: usize = 64;
const RING: u32 = 256;
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1514];

/// What is in the way of the frames.
const SUBJECTS: [(&str, Option<Subject>); 4] = [
    ("nonf", None),
    ("bridge", Some(Subject::Bridge)),
    (
        "firewall10",
        Some(Subject::Firewall {
            rules: 10,
            flows: 1000,
        }),
    ),
    ("router10", Some(Subject::Router { routes: 10 })),
];

/// One NF, one size, one model.
struct Lane {
    name: &'static str,
    len: usize,
    model: Model,
    served: Served,
    /// Frames per CPU-second, in millions.
    per_cpu: Samples,
    /// Frames per second, in millions.
    wall: Samples,
    /// Frames that an I/O thread finds at a visit.
    visit: Samples,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let sizes = report.choose(SIZES.to_vec(), vec![64, 1024]);
    let (rounds, seconds) = report.effort((7, 0.3), (2, 0.07));
    let mut scratch = Scratch::new("h5")?;
    let mut rows = Vec::new();
    for (name, subject) in SUBJECTS {
        let mut plotted: Vec<Series> = Model::ALL
            .iter()
            .map(|model| Series::new(model.name()))
            .collect();
        for &len in &sizes {
            let mut lanes = Model::ALL
                .into_iter()
                .map(|model| Lane::new(&mut scratch, name, subject, len, model))
                .collect::<anyhow::Result<Vec<_>>>()?;
            for round in 0..=rounds {
                for lane in &mut lanes {
                    report.settle();
                    // The first round warms up.
                    lane.measure(seconds, round > 0)?;
                }
            }
            for (series, lane) in plotted.iter_mut().zip(&lanes) {
                series.push(len as f64, &lane.per_cpu);
            }
            figures(report, &lanes);
            rows.extend(lanes.iter().map(Lane::row));
        }
        report.plot(Plot {
            id: format!("h5.{name}"),
            title: format!("{name}: frames per second of CPU time, NF and I/O threads together"),
            x: Axis::log("frame size in bytes"),
            y: Axis::linear("Mpps per CPU-second"),
            series: plotted,
        });
    }
    let header = [
        "NF",
        "size",
        "model",
        "Mpps per CPU-second",
        "spread",
        "Mpps by the clock",
        "batch of the switch",
    ];
    table("I/O models", &header, &rows);
    Ok(())
}

fn figures(report: &mut Report, lanes: &[Lane]) {
    for lane in lanes {
        let (conditions, model) = (lane.model.conditions(), lane.model.name());
        let id = |what: &str| format!("h5.{}.{}.{model}.{what}", lane.name, lane.len);
        report.figure(id("mpps"), &lane.per_cpu, "Mpps", &conditions);
        report.figure(id("wall_mpps"), &lane.wall, "Mpps", &conditions);
    }
    let [inline, others @ ..] = lanes else { return };
    if let Some(best) = highest(others, |lane| &lane.per_cpu) {
        let ratios = inline.per_cpu.ratios(&best.per_cpu);
        report.figure(
            format!("h5.{}.{}.inline_vs_best", inline.name, inline.len),
            &ratios,
            "ratio",
            &format!("best other: {}", best.model.name()),
        );
    }
}

impl Lane {
    fn new(
        scratch: &mut Scratch,
        name: &'static str,
        subject: Option<Subject>,
        len: usize,
        model: Model,
    ) -> anyhow::Result<Self> {
        let served = match subject {
            None => pairs::one_way_by(scratch, model, len, BATCH, RING)?,
            Some(subject) => pairs::around_by(scratch, model, subject, len, BATCH, RING)?,
        };
        Ok(Lane {
            name,
            len,
            model,
            served,
            per_cpu: Samples::default(),
            wall: Samples::default(),
            visit: Samples::default(),
        })
    }

    fn measure(&mut self, seconds: f64, counts: bool) -> anyhow::Result<()> {
        let outcomes = run_together(&mut self.served.peers, seconds)?;
        if !counts {
            return Ok(());
        }
        // The NF, the traffic that comes out, the I/O threads.
        let cpu = outcomes[0].cpu_seconds + outcomes.get(2).map_or(0.0, |io| io.cpu_seconds);
        let frames = outcomes[1].frames as f64;
        self.per_cpu.push(frames / cpu / 1e6);
        self.wall.push(frames / outcomes[1].seconds / 1e6);
        if let Some(io) = outcomes.get(2) {
            self.visit.push(io.frames as f64 / io.visits.max(1) as f64);
        }
        Ok(())
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.name.to_owned(),
            self.len.to_string(),
            self.model.name().to_owned(),
            significant(self.per_cpu.median()),
            format!("{:.0} %", self.per_cpu.spread_percent()),
            significant(self.wall.median()),
            if self.model == Model::Inline {
                BATCH.to_string()
            } else {
                significant(self.visit.median())
            },
        ]
    }
}
