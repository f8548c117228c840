//! Effect of the functions' batch on the sharing (R3; R5, figure 11): two flows, one twenty times as expensive.
//! Functions that yield the CPU after a batch share packets alike, until a batch lasts longer than the kernel's
//! quantum.

use super::discipline::{CPU_FAIR, RED4_MQ, RED4_MQ_TURNS, TURNS, self_tuning};
use super::scene::Scene;
use crate::report::Report;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_figures::terminal::significant;

const COSTS_NS: [u64; 2] = [10_000, 200_000];
const BATCHES: [usize; 7] = [1, 4, 16, 64, 128, 256, 512];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let scene = Scene::new(report);
    let batches = report.choose(BATCHES.to_vec(), vec![1, 16, 128, 512]);
    let disciplines = [TURNS, CPU_FAIR, RED4_MQ_TURNS, RED4_MQ];
    let cases: Vec<_> = disciplines
        .iter()
        .flat_map(|&discipline| batches.iter().map(move |&batch| (discipline, batch)))
        .collect();
    let outcomes = report.simulate(&cases, |(discipline, batch), seed| {
        let core = discipline.node(&COSTS_NS, *batch, self_tuning(scene.target_ns()));
        let senders = [0, 1].map(|class| scene.single(&[(0, class)]));
        scene.plan(vec![core], senders.to_vec(), seed)
    })?;
    let mut rows = Vec::new();
    let mut plotted = Vec::new();
    for (discipline, of_discipline) in disciplines.iter().zip(outcomes.chunks(batches.len())) {
        let mut series = Series::new(discipline.name);
        let mut lowest = Samples::from(100.0);
        for (&batch, outcomes) in batches.iter().zip(of_discipline) {
            let share: Samples = outcomes.iter().map(|o| o.share_percent(0, 0)).collect();
            let delay: Samples = outcomes.iter().map(|o| o.delays[0].mean_ms()).collect();
            rows.push(vec![
                discipline.name.to_owned(),
                batch.to_string(),
                significant(share.median()),
                format!("{:.1}", share.spread_percent()),
                format!("{:.2}", delay.median()),
            ]);
            series.push(batch as f64, &share);
            if share.median() <= lowest.median() {
                lowest = share;
            }
        }
        plotted.push(series);
        let what = "CPU time of the cheap flow, the least of all batches; half would be fair";
        report.figure(
            format!("sim.{}.batch.cheap_percent", discipline.id),
            &lowest,
            "%",
            what,
        );
    }
    let header = [
        "discipline",
        "batch",
        "cheap: CPU %",
        "spread %",
        "queue ms",
    ];
    report.table(
        "Two flows of costs 1:20 by the batch of the functions",
        &header,
        &rows,
    );
    report.plot(Plot {
        id: "sim.batch".to_owned(),
        title: "Two TCP flows of costs 1:20: CPU time of the cheap one".to_owned(),
        x: Axis::log("packets of a batch"),
        y: Axis::linear("% of the CPU time that both get"),
        series: plotted,
    });
    Ok(())
}
