//! B6 of Superfluidity D5.2 and what composing costs: static schedulers against the optimum, decisions of the core manager,
//! and the LTE uplink replayed in virtual time on more PEs than the machine has cores.

use super::graphs::GRAIN;
use super::rows::Rows;
use crate::report::Report;
use anyhow::Context;
use nfluid_baseband::channel::Random;
use nfluid_baseband::size::Cell;
use nfluid_baseband::uplink::compose;
use nfluid_dataflow::engine::{Engine, Settings, Shape};
use nfluid_dataflow::manager::{self, Manager, Policy, SliceRank};
use nfluid_dataflow::plan::Plan;
use nfluid_dataflow::replay::{Arrival, replay};
use nfluid_dataflow::schedule::optimum::over_optimum;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FOREVER: u64 = u64::MAX / 2;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let (rounds, graphs) = report.effort((5, 600), (3, 100));
    let mut rows = Rows::default();
    for round in 0..rounds {
        let mut random = Random::new(round as u64 + 1);
        for (id, ratio) in [("0.1", 0.1), ("1", 1.0), ("3", 3.0)] {
            let means = over_optimum(ratio, graphs, |limit| random.bits() % limit);
            for (name, mean) in [("mcp", means.mcp), ("etf", means.etf)] {
                let what = format!(
                    "{}, edges cost {id} times tasks, length over optimum",
                    name.to_uppercase()
                );
                rows.add(&format!("dataflow.optimum.{id}.{name}"), &what, "x", mean);
            }
        }
        composing(&mut rows)?;
        decisions(&mut rows)?;
    }
    replays(&mut rows)?;
    rows.finish(
        report,
        "Schedules",
        "random graphs of seven tasks on three PEs; the LTE graph of 832 tasks",
    );
    Ok(())
}

/// Composing the graph of a subframe, and what is left of it when its shape is known.
fn composing(rows: &mut Rows) -> anyhow::Result<()> {
    const TIMES: u32 = 50;
    let cell = Cell::literature();
    let begun = Instant::now();
    for _ in 0..TIMES {
        let (graph, _) = compose(&cell, false)?;
        std::hint::black_box(Shape::new(Plan::of(graph))?);
    }
    let new = begun.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES);
    rows.add(
        "dataflow.compose.new_us",
        "composing 832 tasks, new shape",
        "us",
        new,
    );
    let (graph, _) = compose(&cell, false)?;
    let begun = Instant::now();
    for _ in 0..TIMES {
        std::hint::black_box(Plan::clustered(graph.clone(), GRAIN)?);
    }
    let gather = begun.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES);
    rows.add(
        "dataflow.compose.gather_us",
        "gathering 832 tasks into units of 3 us",
        "us",
        gather,
    );
    // A known shape: what a caller pays to hand a subframe over while the core manager is awake.
    let mut engine = Engine::start(Settings::new(1))?;
    let slice = engine.add_slice(
        "lte",
        SliceRank::default(),
        Arc::new(super::graphs::Nothing),
    )?;
    let shape = Shape::new(Plan::of(graph))?;
    let mut took = Duration::ZERO;
    for _ in 0..TIMES {
        engine.wake(slice, Duration::from_millis(2));
        std::thread::sleep(Duration::from_micros(200));
        let begun = Instant::now();
        engine.submit(slice, &shape, Arc::new([]), Duration::from_secs(60))?;
        took += begun.elapsed();
        engine
            .wait(Duration::from_secs(60))
            .context("the graph did not end")?;
    }
    let cached = took.as_secs_f64() * 1e6 / f64::from(TIMES);
    rows.add(
        "dataflow.compose.cached_us",
        "handing 832 tasks over, known shape",
        "us",
        cached,
    );
    Ok(())
}

/// Decisions and completions per second for four PEs, by the manager alone.
fn decisions(rows: &mut Rows) -> anyhow::Result<()> {
    let (graph, _) = compose(&Cell::literature(), false)?;
    let plan = Arc::new(Plan::of(graph));
    for (id, what, policy) in [
        ("list", "fixed list", Policy::List),
        ("etf", "earliest start", Policy::EarliestStart),
    ] {
        const TIMES: usize = 100;
        let mut manager = Manager::new(manager::Settings {
            pes: 4,
            policy,
            ahead: 2,
            hang: FOREVER,
        });
        let begun = Instant::now();
        let mut decided = 0_u64;
        let mut given = Vec::new();
        for _ in 0..TIMES {
            manager.admit(0, SliceRank::default(), plan.clone(), FOREVER, decided)?;
            while manager.outcome().is_none() {
                while let Some(run) = manager.next(decided) {
                    decided += 1;
                    given.push(run);
                }
                for run in given.drain(..) {
                    manager.done(run.pe, run.slot, run.unit, decided)?;
                }
            }
        }
        let per_second = decided as f64 / begun.elapsed().as_secs_f64() / 1e6;
        rows.add(
            &format!("dataflow.decisions.{id}_mps"),
            &format!("decisions with completions, four PEs, {what}"),
            "M/s",
            per_second,
        );
    }
    Ok(())
}

/// The LTE graph in virtual time. It depends on nothing but the graph and its expected costs: one run is enough.
fn replays(rows: &mut Rows) -> anyhow::Result<()> {
    let (graph, _) = compose(&Cell::literature(), false)?;
    let plan = Arc::new(Plan::clustered(graph, GRAIN)?);
    for pes in [1, 2, 4, 8, 16, 32, 64] {
        let arrivals = [Arrival {
            at: 0,
            begins_interval: true,
            slice: 0,
            rank: SliceRank::default(),
            plan: plan.clone(),
            deadline: FOREVER,
        }];
        let settings = manager::Settings {
            pes,
            policy: Policy::List,
            ahead: 2,
            hang: FOREVER,
        };
        let replayed = replay(settings, &arrivals, 200, |plan, unit, _| {
            plan.units().task(unit).cost
        });
        let outcome = replayed
            .outcomes
            .first()
            .context("the replay did not end")?;
        rows.add(
            &format!("dataflow.replay.{pes}_us"),
            &format!("LTE graph, replayed with expected costs on {pes} PEs"),
            "us",
            outcome.makespan as f64 / 1e3,
        );
    }
    Ok(())
}
