//! Cross-resource pooling (R6): a multipath flow over a plain link and over a path that compresses. Compressing takes
//! time of a core that others use too, and a quarter of the bits of a link behind it; a second core decompresses. Which
//! path is congested, the link or the core, is varied by the flows beside.

use super::discipline::{CPU_FAIR, DROP_TAIL, Discipline, RED4_MQ, self_tuning};
use super::scene::Scene;
use crate::optimum::pooled;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::report::Report;
use crate::tcp::Control;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_figures::terminal::significant;

/// Time of a packet on the plain link, and of compressing one.
const PLAIN_NS: u64 = 50_000;
const COMPRESS_NS: u64 = 50_000;
/// Of a packet of the flows beside, on the core that compresses.
const BESIDE_NS: u64 = 25_000;
/// Of a compressed packet on the link behind, a quarter as long.
const COMPRESSED_NS: u64 = 12_500;
/// Of decompressing one.
const DECOMPRESS_NS: u64 = 25_000;
const BATCH: usize = 8;
/// Flows beside, on the plain link or on the core.
const BESIDE: usize = 6;
const DISCIPLINES: [Discipline; 3] = [DROP_TAIL, CPU_FAIR, RED4_MQ];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let scene = Scene::new(report);
    let on_plain: Vec<usize> = report.choose((0..=BESIDE).collect(), vec![0, BESIDE / 2, BESIDE]);
    let cases: Vec<_> = DISCIPLINES
        .iter()
        .flat_map(|&discipline| on_plain.iter().map(move |&flows| (discipline, flows)))
        .collect();
    let outcomes = report.simulate(&cases, |&(discipline, flows), seed| {
        plan(&scene, discipline, flows, seed)
    })?;
    let mut rows = Vec::new();
    let mut plotted = vec![optimum(&on_plain)];
    for (discipline, of_discipline) in DISCIPLINES.iter().zip(outcomes.chunks(on_plain.len())) {
        let mut series = Series::new(discipline.name);
        let mut least = Samples::from(100.0);
        for (&flows, outcomes) in on_plain.iter().zip(of_discipline) {
            let plain: Samples = outcomes.iter().map(plain_percent).collect();
            series.push(flows as f64, &plain);
            rows.push(row(discipline, flows, &plain, outcomes));
            let better = match flows.cmp(&(BESIDE / 2)) {
                std::cmp::Ordering::Less => plain,
                std::cmp::Ordering::Equal => continue,
                std::cmp::Ordering::Greater => plain.values().iter().map(|p| 100.0 - p).collect(),
            };
            if better.median() <= least.median() {
                least = better;
            }
        }
        plotted.push(series);
        let what = "packets of the multipath flow that take the less congested path, the least of all cases";
        report.figure(
            format!("sim.{}.pooling.less_congested_percent", discipline.id),
            &least,
            "%",
            what,
        );
    }
    let header = [
        "discipline",
        "flows on the plain link",
        "on the core",
        "multipath: plain %",
        "optimum %",
        "multipath: rate",
        "optimum",
    ];
    report.table(
        "A multipath flow over a plain link and a compressing path; rates in those of a path alone",
        &header,
        &rows,
    );
    report.plot(Plot {
        id: "sim.pooling".to_owned(),
        title: "A multipath flow shifts to the less congested resource".to_owned(),
        x: Axis::linear(format!(
            "other flows on the plain link, of {BESIDE}; the rest is on the core"
        )),
        y: Axis::linear("% of its packets on the plain link"),
        series: plotted,
    });
    Ok(())
}

/// Stations: the plain link, the core that compresses, the link behind it, the core that decompresses.
fn plan(scene: &Scene, discipline: Discipline, on_plain: usize, seed: u64) -> Plan {
    let law = self_tuning(scene.target_ns());
    let node = |costs_ns: &[u64]| discipline.node(costs_ns, BATCH, law);
    let on_core = BESIDE - on_plain;
    // Links queue packet by packet; a flow has a ring of its own where rings are.
    let plain = vec![PLAIN_NS; on_plain + 1];
    let mut core = vec![BESIDE_NS; on_core + 1];
    core[0] = COMPRESS_NS;
    let stations = vec![
        node(&plain),
        node(&core),
        node(&[COMPRESSED_NS]),
        node(&[DECOMPRESS_NS]),
    ];
    let routes = vec![
        scene.route(&[(0, 0)]),
        scene.route(&[(1, 0), (2, 0), (3, 0)]),
    ];
    let mut senders = vec![scene.multipath(Control::Olia, routes)];
    senders.extend((1..=on_plain).map(|class| scene.single(&[(0, class)])));
    senders.extend((1..=on_core).map(|class| scene.single(&[(1, class)])));
    scene.plan(stations, senders, seed)
}

fn plain_percent(outcome: &Outcome) -> f64 {
    100.0 * outcome.subflow_rate(0, 0) / outcome.rate(0)
}

/// The multipath flow in the proportionally fair optimum: its part on the plain link in percent, and its rate.
fn at_optimum(on_plain: usize) -> (f64, f64) {
    let (plain, compressed) = pooled(on_plain, BESIDE - on_plain);
    (100.0 * plain / (plain + compressed), plain + compressed)
}

fn optimum(on_plain: &[usize]) -> Series {
    let mut series = Series::new("optimum");
    for &flows in on_plain {
        series.push(flows as f64, &Samples::from(at_optimum(flows).0));
    }
    series
}

fn row(
    discipline: &Discipline,
    on_plain: usize,
    plain: &Samples,
    outcomes: &[Outcome],
) -> Vec<String> {
    let alone = PLAIN_NS as f64 / 1e9;
    let rate: Samples = outcomes.iter().map(|o| alone * o.rate(0)).collect();
    let (optimum_percent, optimum_rate) = at_optimum(on_plain);
    vec![
        discipline.name.to_owned(),
        on_plain.to_string(),
        (BESIDE - on_plain).to_string(),
        significant(plain.median()),
        significant(optimum_percent),
        significant(rate.median()),
        significant(optimum_rate),
    ]
}
