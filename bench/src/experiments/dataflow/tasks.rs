//! B3 and B5 of Superfluidity D5.2: how many tasks fit into a millisecond, how busy PEs are by length of tasks, and how much
//! longer a graph takes than it must.

use super::graphs::{Busy, GRAIN, Nothing, busy, fan, layers, plan};
use super::rows::Rows;
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use anyhow::Context;
use nfluid_dataflow::engine::{Application, Clock, Engine, Finished, Settings, Shape};
use nfluid_dataflow::graph::Builder;
use nfluid_dataflow::manager::{SliceRank, Verdict};
use nfluid_dataflow::plan::Plan;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use std::sync::Arc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);
const PES: usize = 2;
/// Lengths of tasks in nanoseconds, the longest first.
const LENGTHS: [u64; 8] = [10_000, 3_000, 1_000, 700, 500, 300, 200, 100];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let rounds = report.effort(15, 5);
    let mut rows = Rows::default();
    let mut lines = Lines::default();
    for _ in 0..rounds {
        report.settle();
        round(&mut rows, &mut lines)?;
    }
    rows.add(
        "dataflow.pairs.cv_percent",
        "producers and consumers of 10 us, standard deviation over mean",
        "%",
        variation_percent(&rows.samples("dataflow.pairs_ms")),
    );
    lines.plot(report);
    rows.finish(
        report,
        "Tasks on two PEs",
        "PEs on cores 0 and 1, the core manager on PE 0",
    );
    Ok(())
}

/// Samples of all rounds by length of tasks in nanoseconds, the longest first.
#[derive(Default)]
struct Lines {
    utilisation: [Samples; LENGTHS.len()],
    pairs: [Samples; LENGTHS.len()],
}

impl Lines {
    fn plot(&self, report: &mut Report) {
        let line = |name: &str, samples: &[Samples]| {
            let mut series = Series::new(name);
            for (length, samples) in LENGTHS.iter().zip(samples) {
                series.push(*length as f64 / 1e3, samples);
            }
            series
        };
        let variation: Vec<Samples> = self
            .pairs
            .iter()
            .map(|it| variation_percent(it).into())
            .collect();
        for (id, title, y, series) in [
            (
                "dataflow.utilisation",
                "Utilisation of two PEs (D5.2, figure 7-12)",
                "percent",
                line("tasks of one source", &self.utilisation),
            ),
            (
                "dataflow.pairs",
                "1000 producers and consumers (D5.2, figure 7-9)",
                "ms",
                line("makespan", &self.pairs),
            ),
            (
                "dataflow.pairs.cv",
                "Jitter of these makespans (D5.2, figure 7-10)",
                "standard deviation over mean, percent",
                line("makespan", &variation),
            ),
        ] {
            report.plot(Plot {
                id: id.to_owned(),
                title: title.to_owned(),
                x: Axis::log("length of a task in us"),
                y: Axis::linear(y),
                series: vec![series],
            });
        }
    }
}

/// Standard deviation over mean, in percent.
fn variation_percent(samples: &Samples) -> f64 {
    let mean = samples.mean();
    let values = samples.values();
    let squares = values.iter().map(|value| (value - mean) * (value - mean));
    let deviation = (squares.sum::<f64>() / values.len() as f64).sqrt();
    deviation / mean * 100.0
}

fn round(rows: &mut Rows, lines: &mut Lines) -> anyhow::Result<()> {
    const TASKS: usize = 20_000;
    for (id, what, grain) in [
        ("single", "one by one", 0),
        ("gathered", "in units of 3 us", GRAIN),
    ] {
        // 50 ns: what a task that does nothing takes.
        let graph = fan(TASKS, 50)?;
        let finished = execute(Arc::new(Nothing), plan(graph, grain)?)?;
        let per_ms = TASKS as f64 / (finished.makespan as f64 / 1e6);
        rows.add(
            &format!("dataflow.tasks_per_ms.{id}"),
            &format!("tasks that do nothing, {what}"),
            "tasks/ms",
            per_ms,
        );
    }
    let clock = Clock::start();
    let mut efficiencies = Vec::new();
    for (length, line) in LENGTHS.into_iter().zip(&mut lines.utilisation) {
        let tasks = (4_000_000 / length) as usize;
        let finished = execute(Arc::new(Busy(clock)), plan(fan(tasks, length)?, 0)?)?;
        let work = (tasks as u64 * length) as f64;
        let efficiency = work / (PES as f64 * finished.makespan as f64);
        efficiencies.push((length as f64 / 1e3, efficiency));
        line.push(efficiency * 100.0);
        if length >= 1_000 {
            let us = length / 1_000;
            rows.add(
                &format!("dataflow.utilisation.{us}us_percent"),
                &format!("PEs' utilisation, tasks of {us} us"),
                "%",
                efficiency * 100.0,
            );
        }
    }
    rows.add(
        "dataflow.metg_us",
        "shortest task with half of the PEs' time for tasks",
        "us",
        half(&efficiencies),
    );
    let graph = layers(40, 8)?;
    let plan_of = plan(graph, 0)?;
    let bound = plan_of
        .critical_path()
        .max(plan_of.units().work() / PES as u64);
    let finished = execute(Arc::new(Busy(clock)), plan_of)?;
    rows.add(
        "dataflow.makespan.vs_bound",
        "320 tasks of 5 to 15 us, makespan over the least possible",
        "x",
        finished.makespan as f64 / bound as f64,
    );
    pairs(rows, lines, clock)
}

/// Pairs of a producer and a consumer: B5, by length of both. Those of 10 us are its long runs.
fn pairs(rows: &mut Rows, lines: &mut Lines, clock: Clock) -> anyhow::Result<()> {
    const PAIRS: usize = 1000;
    const LONG: u64 = 10_000;
    for (length, line) in LENGTHS.into_iter().zip(&mut lines.pairs) {
        let mut builder = Builder::new();
        for _ in 0..PAIRS {
            let producer = builder.task(busy(length))?;
            let consumer = builder.task(busy(length))?;
            builder.edge(producer, consumer, 0)?;
        }
        let finished = execute(Arc::new(Busy(clock)), Plan::of(builder.build()?))?;
        let makespan = finished.makespan as f64 / 1e6;
        line.push(makespan);
        if length != LONG {
            continue;
        }
        rows.add(
            "dataflow.pairs_ms",
            "1000 producers and consumers of 10 us",
            "ms",
            makespan,
        );
        let took: Samples = finished.runs().map(|run| run.took as f64 / 1e3).collect();
        rows.add(
            "dataflow.pairs.task_p99_us",
            "one of them, p99",
            "us",
            took.p99(),
        );
    }
    Ok(())
}

/// Where the efficiency falls below one half, between two lengths of tasks; the shortest length if it never does.
fn half(efficiencies: &[(f64, f64)]) -> f64 {
    for pair in efficiencies.windows(2) {
        let [(long, above), (short, below)] = [pair[0], pair[1]];
        if below < 0.5 {
            let part = ((above - 0.5) / (above - below)).clamp(0.0, 1.0);
            return long - (long - short) * part;
        }
    }
    efficiencies.last().map_or(f64::NAN, |&(length, _)| length)
}

/// Executes a plan once on two PEs that are awake.
fn execute(application: Arc<dyn Application>, plan: Plan) -> anyhow::Result<Finished> {
    let mut engine = Engine::start(Settings {
        cores: vec![0, 1],
        ..Settings::new(PES)
    })?;
    let slice = engine.add_slice("tasks", SliceRank::default(), application)?;
    let shape = Shape::new(plan)?;
    let mut last = None;
    // The first run wakes the cores and fills their caches.
    for _ in 0..2 {
        engine.wake(slice, Duration::from_millis(5));
        std::thread::sleep(Duration::from_micros(200));
        engine.submit(slice, &shape, Arc::new([]), WAIT)?;
        let finished = engine.wait(WAIT).context("the graph did not end")?;
        anyhow::ensure!(
            finished.result == Ok(Verdict::Done),
            "the graph ended as {:?}",
            finished.result
        );
        last = Some(finished);
    }
    last.context("no run")
}
