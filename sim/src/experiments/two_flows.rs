//! Two flows of different cost on one core (R5, figure 9).
//!
//! The optimum is half of the core for each: one core is the only resource, the flows' utilities are alike, so
//! that every fairness from proportional to max-min gives each the same CPU time, and the dear one 1/ratio of the
//! packets.

use super::discipline::{
    CPU_FAIR, DROP_TAIL, Discipline, PACKET_FAIR, RED, RED_MQ, RED4, RED4_MQ, RED4_MQ_PACKET_FAIR,
    self_tuning,
};
use super::scene::Scene;
use crate::optimum::distance_from_half_percent;
use crate::outcome::Outcome;
use crate::report::Report;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_figures::terminal::significant;

/// CPU time of a packet of the cheap flow.
const CHEAP_NS: u64 = 20_000;
/// Packets that a function takes at once.
const BATCH: usize = 8;
/// How many times dearer the other flow's are.
const RATIOS: [u64; 5] = [1, 2, 4, 8, 16];

const DISCIPLINES: [Discipline; 8] = [
    DROP_TAIL,
    PACKET_FAIR,
    CPU_FAIR,
    RED,
    RED_MQ,
    RED4,
    RED4_MQ,
    RED4_MQ_PACKET_FAIR,
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let scene = Scene::new(report);
    let ratios = report.choose(RATIOS.to_vec(), vec![1, 4, 16]);
    let cases: Vec<(Discipline, u64)> = DISCIPLINES
        .iter()
        .flat_map(|&discipline| ratios.iter().map(move |&ratio| (discipline, ratio)))
        .collect();
    let outcomes = report.simulate(&cases, |&(discipline, ratio), seed| {
        let law = self_tuning(scene.target_ns());
        let core = discipline.node(&[CHEAP_NS, CHEAP_NS * ratio], BATCH, law);
        let senders = [0, 1].map(|class| scene.single(&[(0, class)]));
        scene.plan(vec![core], senders.to_vec(), seed)
    })?;
    let mut rows = Vec::new();
    let mut plotted = Vec::new();
    for (discipline, of_discipline) in DISCIPLINES.into_iter().zip(outcomes.chunks(ratios.len())) {
        let mut series = Series::new(discipline.name);
        let mut worst = Samples::from(0.0);
        for (&ratio, outcomes) in ratios.iter().zip(of_discipline) {
            let share: Samples = outcomes.iter().map(|o| o.share_percent(0, 1)).collect();
            series.push(ratio as f64, &share);
            let distance: Samples = share
                .values()
                .iter()
                .copied()
                .map(distance_from_half_percent)
                .collect();
            rows.push(row(discipline, ratio, &share, &distance, outcomes));
            if distance.median() >= worst.median() {
                worst = distance;
            }
        }
        plotted.push(series);
        let what =
            "distance of the dear flow's CPU time from half of the core's, the worst of all ratios";
        report.figure(
            format!("sim.{}.two_flows_percent", discipline.id),
            &worst,
            "%",
            what,
        );
    }
    let header = [
        "discipline",
        "costs",
        "dear: CPU %",
        "spread %",
        "from half %",
        "utilisation %",
        "queue ms",
        "p99 ms",
    ];
    report.table("Two flows on one core: medians over seeds", &header, &rows);
    report.plot(Plot {
        id: "sim.two_flows".to_owned(),
        title: "Two TCP flows on one core: CPU time of the dear one".to_owned(),
        x: Axis::log("cost per packet of the dear flow / that of the cheap one"),
        y: Axis::linear("% of the CPU time that both get"),
        series: plotted,
    });
    Ok(())
}

fn row(
    discipline: Discipline,
    ratio: u64,
    share: &Samples,
    distance: &Samples,
    outcomes: &[Outcome],
) -> Vec<String> {
    let median =
        |of: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(of).collect::<Samples>().median();
    vec![
        discipline.name.to_owned(),
        format!("1:{ratio}"),
        significant(share.median()),
        format!("{:.1}", share.spread_percent()),
        significant(distance.median()),
        format!("{:.1}", 100.0 * median(&|o| o.utilisation(0))),
        format!("{:.2}", median(&|o| o.delays[0].mean_ms())),
        format!("{:.2}", median(&|o| o.delays[0].p99_ms())),
    ]
}
