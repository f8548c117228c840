//! CPU time of an engine that has nothing to do: without a slice, and with an empty graph each millisecond.

use super::graphs::{Nothing, chain};
use super::rows::Rows;
use crate::host::cpu::process_seconds;
use crate::report::Report;
use anyhow::Context;
use nfluid_dataflow::engine::{Engine, Settings, Shape};
use nfluid_dataflow::manager::SliceRank;
use nfluid_dataflow::plan::Plan;
use std::sync::Arc;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(1);
const WAIT: Duration = Duration::from_secs(60);
const PES: usize = 2;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let rounds = report.effort(5, 3);
    let length = report.effort(Duration::from_secs(4), Duration::from_secs(1));
    let mut rows = Rows::default();
    for _ in 0..rounds {
        let timer = percent(|| each_interval(length, || Ok(())))?;
        rows.add(
            "dataflow.idle.timer_percent",
            "no engine: a thread that wakes up once per millisecond",
            "%",
            timer,
        );
        let mut engine = Engine::start(Settings::new(PES))?;
        let none = percent(|| {
            std::thread::sleep(length);
            Ok(())
        })?;
        rows.add(
            "dataflow.idle.none_percent",
            "engine of two PEs, no slice",
            "%",
            none,
        );
        let slice = engine.add_slice("empty", SliceRank::default(), Arc::new(Nothing))?;
        let shape = Shape::new(Plan::of(chain(1)?))?;
        let empty = percent(|| {
            each_interval(length, || {
                engine.submit(slice, &shape, Arc::new([]), INTERVAL)?;
                engine.wait(WAIT).context("the graph did not end")?;
                Ok(())
            })
        })?;
        rows.add(
            "dataflow.idle.empty_percent",
            "one empty interval per millisecond",
            "%",
            empty,
        );
    }
    rows.finish(
        report,
        "CPU of an idle engine",
        "CPU time of the whole process, in percent of one core",
    );
    Ok(())
}

/// Calls `run` at the begin of each interval, for so long.
fn each_interval(
    length: Duration,
    mut run: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut next = begun;
    while begun.elapsed() < length {
        next += INTERVAL;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        run()?;
    }
    Ok(())
}

/// CPU time of this process while `run` runs, in percent of one core.
fn percent(run: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let process = std::process::id();
    let (begun, before) = (Instant::now(), process_seconds(process)?);
    run()?;
    Ok((process_seconds(process)? - before) / begun.elapsed().as_secs_f64() * 100.0)
}
