//! Thresholds set by hand against signals that tune themselves: the same RED_4 MQ, two flows or many, of costs 1:4,
//! over short and long round trips. Thresholds that fit one load starve or flood another.

use super::discipline::{RED4_MQ, self_tuning, thresholds};
use super::scene::Scene;
use crate::optimum::distance_from_half_percent;
use crate::outcome::Outcome;
use crate::report::Report;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_figures::terminal::significant;
use nfluid_marking::Law;

const COSTS_NS: [u64; 2] = [20_000, 80_000];
const BATCH: usize = 8;
/// Flows of each cost, and times the base round trip.
const LOADS: [(usize, u64); 5] = [(1, 1), (4, 1), (16, 1), (4, 4), (16, 4)];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let scene = Scene::new(report);
    let laws: [(&str, &str, Law); 4] = [
        ("RED 16 to 48", "red_16_48", thresholds(16, 48)),
        ("RED 64 to 192", "red_64_192", thresholds(64, 192)),
        ("RED 256 to 768", "red_256_768", thresholds(256, 768)),
        ("self-tuning", "self_tuning", self_tuning(scene.target_ns())),
    ];
    let loads = report.choose(LOADS.to_vec(), vec![LOADS[0], LOADS[4]]);
    let cases: Vec<_> = laws
        .iter()
        .flat_map(|&(_, _, law)| loads.iter().map(move |&load| (law, load)))
        .collect();
    let outcomes = report.simulate(&cases, |&(law, (flows, rounds)), seed| {
        let mut scene = scene.clone();
        scene.settings.round_trip_us *= rounds;
        let core = RED4_MQ.node(&COSTS_NS, BATCH, law);
        let senders = (0..2 * flows).map(|flow| scene.single(&[(0, flow % 2)]));
        scene.plan(vec![core], senders.collect(), seed)
    })?;
    let mut rows = Vec::new();
    let mut plotted = Vec::new();
    for ((name, id, _), of_law) in laws.iter().zip(outcomes.chunks(loads.len())) {
        let mut series = Series::new(*name);
        for (place, (&load, outcomes)) in loads.iter().zip(of_law).enumerate() {
            series.push(place as f64, &delays(outcomes));
            rows.push(row(name, load, outcomes));
        }
        plotted.push(series);
        figures(report, id, of_law);
    }
    let header = [
        "law",
        "flows of each cost",
        "round trip x",
        "utilisation %",
        "queue ms",
        "p99 ms",
        "from half %",
    ];
    report.table("RED_4 MQ, costs 1:4: medians over seeds", &header, &rows);
    let names = loads
        .iter()
        .map(|(flows, rounds)| format!("{flows}+{flows}, x{rounds}"));
    report.plot(Plot {
        id: "sim.thresholds".to_owned(),
        title: "RED_4 MQ: queue delay by law and load".to_owned(),
        x: Axis::categories("flows of each cost, round trip", names),
        y: Axis::linear("mean queue delay in ms"),
        series: plotted,
    });
    Ok(())
}

fn delays(outcomes: &[Outcome]) -> Samples {
    outcomes.iter().map(|o| o.delays[0].mean_ms()).collect()
}

fn utilisations(outcomes: &[Outcome]) -> Samples {
    outcomes.iter().map(|o| 100.0 * o.utilisation(0)).collect()
}

/// The worst of all loads.
fn figures(report: &mut Report, id: &str, of_law: &[Vec<Outcome>]) {
    let worst = |of: fn(&[Outcome]) -> Samples, sign: f64| {
        let all = of_law.iter().map(|outcomes| of(outcomes));
        all.max_by(|a, b| (sign * a.median()).total_cmp(&(sign * b.median())))
    };
    if let Some(lowest) = worst(utilisations, -1.0) {
        let what = "busy time of the core, the least of all loads";
        report.figure(
            format!("sim.thresholds.{id}.utilisation_percent"),
            &lowest,
            "%",
            what,
        );
    }
    if let Some(longest) = worst(delays, 1.0) {
        let what = "mean queue delay, the longest of all loads";
        report.figure(
            format!("sim.thresholds.{id}.delay_ms"),
            &longest,
            "ms",
            what,
        );
    }
}

fn row(name: &str, (flows, rounds): (usize, u64), outcomes: &[Outcome]) -> Vec<String> {
    let p99: Samples = outcomes.iter().map(|o| o.delays[0].p99_ms()).collect();
    let distance: Samples = outcomes
        .iter()
        .map(|o| distance_from_half_percent(o.share_percent(0, 1)))
        .collect();
    vec![
        name.to_owned(),
        flows.to_string(),
        rounds.to_string(),
        format!("{:.1}", utilisations(outcomes).median()),
        format!("{:.2}", delays(outcomes).median()),
        format!("{:.2}", p99.median()),
        significant(distance.median()),
    ]
}
