//! B4 of Superfluidity D5.2: a chain of tasks, each of which waits for the one before. What remains per task, since the tasks
//! do nothing, is the control loop: completion, decision, message.

use super::graphs::{Nothing, chain};
use super::rows::{Rows, distribution};
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use anyhow::Context;
use nfluid_dataflow::engine::{BackEnd, Engine, ManagerPlace, Settings, Shape};
use nfluid_dataflow::manager::SliceRank;
use nfluid_dataflow::plan::Plan;
use nfluid_figures::plot::{Axis, Plot};
use nfluid_figures::statistics::Samples;
use std::sync::Arc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let (rounds, tasks) = report.effort((15, 100_000), (5, 20_000));
    let places = [
        (
            "own",
            "core manager on core 0, PE on core 1",
            ManagerPlace::Own(Some(0)),
            BackEnd::Threads,
        ),
        (
            "process",
            "core manager on core 0, PE a process on core 1",
            ManagerPlace::Own(Some(0)),
            BackEnd::Processes,
        ),
        (
            "on_pe",
            "core manager on the PE, core 1",
            ManagerPlace::OnPe,
            BackEnd::Threads,
        ),
    ];
    let mut rows = Rows::default();
    let mut all = places.map(|_| Samples::default());
    for _ in 0..rounds {
        for ((id, what, manager, back_end), all) in places.into_iter().zip(&mut all) {
            report.settle();
            let mut engine = Engine::start(Settings {
                manager,
                back_end,
                cores: vec![1],
                ..Settings::new(1)
            })?;
            let slice = engine.add_slice("chain", SliceRank::default(), Arc::new(Nothing))?;
            let shape = Shape::new(Plan::of(chain(tasks)?))?;
            engine.submit(slice, &shape, Arc::new([]), WAIT)?;
            let finished = engine.wait(WAIT).context("the chain did not end")?;
            let starts: Vec<u64> = finished.runs().map(|run| run.start).collect();
            let steps = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
            let steps: Samples = steps.collect();
            steps.values().iter().for_each(|&step| all.push(step));
            let mean = finished.makespan as f64 / tasks as f64;
            rows.add(
                &format!("dataflow.control.{id}_ns"),
                &format!("{what}, mean"),
                "ns",
                mean,
            );
            let median = steps.median();
            rows.add(
                &format!("dataflow.control.{id}.median_ns"),
                &format!("{what}, median"),
                "ns",
                median,
            );
            let tail = steps.quantile(0.999);
            rows.add(
                &format!("dataflow.control.{id}.p999_ns"),
                &format!("{what}, p99.9"),
                "ns",
                tail,
            );
        }
    }
    let series = places.iter().zip(&all);
    report.plot(Plot {
        id: "dataflow.control".to_owned(),
        title: "Control loop: from the begin of a task to that of the next (D5.2, figure 7-7)"
            .to_owned(),
        x: Axis::log("ns"),
        y: Axis::linear("percent of tasks"),
        series: series
            .map(|((_, what, ..), all)| distribution(what, all))
            .collect(),
    });
    rows.finish(
        report,
        &format!("A task of a chain of {tasks}: completion, decision, message"),
        "tasks do nothing; two clock readings per task are part of it",
    );
    Ok(())
}
