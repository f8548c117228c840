//! A line of n cores (R5, figures 8 and 10): n short flows, one per core, and a multipath flow with a path along the
//! whole line and a plain path of its own (a core of the same speed, which no other flow uses).
//!
//! The optimum: proportionally fair is the multipath flow on its plain path only, and each short flow with a core of
//! its own, n + 1 cores' worth in all (`optimum::line_total`). Each packet of the multipath flow on the line costs
//! the line n times. Fair queueing gives the multipath flow half of every core, whatever its signals say.

use super::discipline::{CPU_FAIR, DROP_TAIL, Discipline, RED4, RED4_MQ, self_tuning};
use super::scene::Scene;
use crate::optimum::{distance_percent, line_total, line_total_lia};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::report::Report;
use crate::tcp::Control;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_figures::terminal::significant;

/// CPU time of a packet of a short flow, and of the multipath flow on its plain path.
const COST_NS: u64 = 50_000;
const BATCH: usize = 8;
const DISCIPLINES: [Discipline; 4] = [DROP_TAIL, CPU_FAIR, RED4, RED4_MQ];
/// Couplings of the multipath flow, with the ends of their figures' names.
const CONTROLS: [(Control, &str); 2] = [(Control::Olia, ""), (Control::Lia, "_lia")];
/// Cores of the line, and how many times dearer the multipath flow's packets are on it.
const LINES: [(usize, u64); 4] = [(2, 1), (4, 1), (4, 4), (8, 1)];

#[derive(Clone, Copy)]
struct Case {
    discipline: Discipline,
    control: Control,
    cores: usize,
    ratio: u64,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let scene = Scene::new(report);
    let lines = report.choose(LINES.to_vec(), vec![(4, 1)]);
    let mut cases = Vec::new();
    for (control, _) in CONTROLS {
        for discipline in DISCIPLINES {
            cases.extend(lines.iter().map(|&(cores, ratio)| Case {
                discipline,
                control,
                cores,
                ratio,
            }));
        }
    }
    let outcomes = report.simulate(&cases, |case, seed| case.plan(&scene, seed))?;
    table(report, &cases, &outcomes);
    let mut per_discipline = cases.chunks(lines.len()).zip(outcomes.chunks(lines.len()));
    let mut plotted = Vec::new();
    for (control, end) in CONTROLS {
        for discipline in DISCIPLINES {
            let Some((cases, outcomes)) = per_discipline.next() else {
                continue;
            };
            let mut series = Series::new(format!("{}, {control:?}", discipline.name));
            let mut worst = Samples::from(0.0);
            for (case, outcomes) in cases.iter().zip(outcomes) {
                let distance: Samples = outcomes.iter().map(|o| case.distance_percent(o)).collect();
                if case.ratio == 1 {
                    series.push(case.cores as f64, &case.parts_of_optimum(outcomes));
                }
                if distance.median() >= worst.median() {
                    worst = distance;
                }
            }
            plotted.push(series);
            let what = "distance of the packets of all flows from the proportionally fair optimum, the worst of all lines";
            report.figure(
                format!("sim.{}.line{end}_percent", discipline.id),
                &worst,
                "%",
                what,
            );
        }
    }
    report.plot(Plot {
        id: "sim.line".to_owned(),
        title: "A line of cores, one multipath flow, a short flow per core".to_owned(),
        x: Axis::linear("cores of the line"),
        y: Axis::linear("packets of all, % of the optimum"),
        series: plotted,
    });
    Ok(())
}

impl Case {
    /// Station 0 is the plain path, 1 to n are the line; class 0 is the multipath flow's.
    fn plan(&self, scene: &Scene, seed: u64) -> Plan {
        let law = self_tuning(scene.target_ns());
        let line = [COST_NS * self.ratio, COST_NS];
        let mut stations = vec![self.discipline.node(&[COST_NS], BATCH, law)];
        stations.extend((0..self.cores).map(|_| self.discipline.node(&line, BATCH, law)));
        let along: Vec<(usize, usize)> = (1..=self.cores).map(|station| (station, 0)).collect();
        let routes = vec![scene.route(&[(0, 0)]), scene.route(&along)];
        let mut senders = vec![scene.multipath(self.control, routes)];
        senders.extend((1..=self.cores).map(|station| scene.single(&[(station, 1)])));
        scene.plan(stations, senders, seed)
    }

    /// The throughput of all flows together, in packets that a core could forward alone.
    fn total(&self, outcome: &Outcome) -> f64 {
        let rates = (0..=self.cores).map(|connection| outcome.rate(connection));
        rates.sum::<f64>() * COST_NS as f64 / 1e9
    }

    fn distance_percent(&self, outcome: &Outcome) -> f64 {
        distance_percent(self.total(outcome), line_total(self.cores))
    }

    fn parts_of_optimum(&self, outcomes: &[Outcome]) -> Samples {
        let part = |outcome| 100.0 * self.total(outcome) / line_total(self.cores);
        outcomes.iter().map(part).collect()
    }

    fn row(&self, outcomes: &[Outcome]) -> Vec<String> {
        let median =
            |of: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(of).collect::<Samples>().median();
        let core = COST_NS as f64 / 1e9;
        let equations = match self.control {
            Control::Lia if self.ratio == 1 => significant(line_total_lia(self.cores)),
            Control::Lia => "-".to_owned(),
            _ => significant(line_total(self.cores)),
        };
        vec![
            format!("{:?}", self.control).to_uppercase(),
            self.discipline.name.to_owned(),
            self.cores.to_string(),
            format!("1:{}", self.ratio),
            format!("{:.3}", core * median(&|o| o.subflow_rate(0, 0))),
            format!("{:.3}", core * median(&|o| o.subflow_rate(0, 1))),
            format!("{:.3}", core * median(&|o| o.rate(1))),
            significant(median(&|o| self.total(o))),
            equations,
            significant(line_total(self.cores)),
            significant(median(&|o| self.distance_percent(o))),
        ]
    }
}

fn table(report: &mut Report, cases: &[Case], outcomes: &[Vec<Outcome>]) {
    let header = [
        "multipath",
        "discipline",
        "cores",
        "costs",
        "its plain path",
        "its line",
        "a short flow",
        "all",
        "by its equations",
        "optimum",
        "distance %",
    ];
    let rows: Vec<_> = cases
        .iter()
        .zip(outcomes)
        .map(|(case, o)| case.row(o))
        .collect();
    report.table(
        "A line of cores: packets, in those of a core alone; medians over seeds",
        &header,
        &rows,
    );
}
