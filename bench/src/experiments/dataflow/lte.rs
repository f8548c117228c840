//! B7 of Superfluidity D5.2: one subframe of an LTE uplink, 832 tasks; D5.2 has less than 2.5 ms on four PEs, without a
//! decoder.
//!
//! Sides, in turn within each round: the serial program (the same kernels in the graph's order, no engine), rayon (each task
//! spawned by its last predecessor) and our engine on one and two PEs, task by task and in units.

use super::graphs::{GRAIN, plan};
use super::rows::{Rows, distribution};
use crate::host::cpu::{pin, require_two_cores};
use crate::report::Report;
use anyhow::Context;
use nfluid_baseband::channel::{Channel, Random};
use nfluid_baseband::size::Cell;
use nfluid_baseband::transmit::subframe;
use nfluid_baseband::turbo;
use nfluid_baseband::uplink::{Decoding, Identity, Uplink};
use nfluid_dataflow::engine::{
    Application, Arena, BackEnd, Call, Engine, Finished, Layout, ManagerPlace, Settings, Shape,
};
use nfluid_dataflow::graph::{Graph, TaskId};
use nfluid_dataflow::manager::{Policy, SliceRank, Verdict};
use nfluid_dataflow::plan::Plan;
use nfluid_figures::plot::{Axis, Plot};
use nfluid_figures::statistics::Samples;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(60);
const IDENTITY: Identity = Identity {
    cell: 1,
    subframe: 0,
};
/// Subframes before each measurement, in which costs are measured and caches filled.
const WARM_UP: usize = 40;
/// 18 dB: the decoder needs one to two iterations.
const NOISE: f32 = 0.016;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let (rounds, subframes) = report.effort((5, 400), (3, 60));
    let cell = Cell::literature();
    let mut random = Random::new(1);
    let sent = subframe(
        &cell,
        IDENTITY,
        NOISE,
        |_, _| Channel::unitary(),
        &mut random,
    );
    let mut rows = Rows::default();
    let decodings = [
        ("bypass", "decoder bypassed", Decoding::Bypass, subframes),
        (
            "turbo",
            "five iterations",
            Decoding::Turbo(turbo::Settings {
                iterations_max: 5,
                stops_early: false,
            }),
            subframes / 4,
        ),
    ];
    for (id, what, decoding, subframes) in decodings {
        // Makespans of all rounds, by side.
        let mut all: Vec<(String, Samples)> = Vec::new();
        let uplink = Arc::new(Uplink::new(cell.clone(), IDENTITY.cell, decoding, None)?);
        let external = sent.bytes();
        for _ in 0..rounds {
            report.settle();
            let mut add = |rows: &mut Rows, side: &str, name: &str, samples: Samples| {
                if !all.iter().any(|(of, _)| of == name) {
                    all.push((name.to_owned(), Samples::default()));
                }
                if let Some((_, all)) = all.iter_mut().find(|(of, _)| of == name) {
                    samples.values().iter().for_each(|&value| all.push(value));
                }
                let figure = format!("dataflow.lte.{id}.{side}");
                let [median, p99] = ["median", "p99"].map(|of| format!("{what}, {name}, {of}"));
                rows.add(&format!("{figure}_ms"), &median, "ms", samples.median());
                rows.add(&format!("{figure}.p99_ms"), &p99, "ms", samples.p99());
            };
            add(
                &mut rows,
                "serial",
                "serial program",
                serial(&uplink, &external, subframes)?,
            );
            add(
                &mut rows,
                "rayon",
                "rayon, two threads",
                rayon_graph(&uplink, &external, subframes)?,
            );
            let on_pe = |pes| Settings {
                cores: (0..pes).collect(),
                ..Settings::new(pes)
            };
            let beside = |back_end| Settings {
                cores: vec![1],
                manager: ManagerPlace::Own(Some(0)),
                back_end,
                ..Settings::new(1)
            };
            for (side, name, settings, grain) in [
                ("1", "one PE", on_pe(1), GRAIN),
                ("2.single", "two PEs, task by task", on_pe(2), 0),
                ("2", "two PEs, units of 3 us", on_pe(2), GRAIN),
                (
                    "1.own",
                    "one PE, the core manager on another core",
                    beside(BackEnd::Threads),
                    GRAIN,
                ),
                (
                    "1.process",
                    "one PE, a process",
                    beside(BackEnd::Processes),
                    GRAIN,
                ),
            ] {
                let pes = settings.pes;
                let done = engine(&uplink, &external, subframes, settings, grain)?;
                add(&mut rows, side, name, done.makespans);
                if pes == 2 {
                    let ratio = done.over_bound;
                    rows.add(
                        &format!("dataflow.lte.{id}.{side}.vs_bound"),
                        &format!("{what}, {name}, median over its units' time per PE"),
                        "x",
                        ratio,
                    );
                }
            }
        }
        report.plot(Plot {
            id: format!("dataflow.lte.{id}"),
            title: format!("A subframe of an LTE uplink, {what} (D5.2, figure 7-17)"),
            x: Axis::log("ms"),
            y: Axis::linear("percent of subframes"),
            series: all
                .iter()
                .map(|(name, all)| distribution(name, all))
                .collect(),
        });
        rows.ratio(
            &format!("dataflow.lte.{id}.vs_rayon"),
            &format!("{what}, rayon over ours, two PEs"),
            &format!("dataflow.lte.{id}.rayon_ms"),
            &format!("dataflow.lte.{id}.2_ms"),
        );
        rows.ratio(
            &format!("dataflow.lte.{id}.vs_serial"),
            &format!("{what}, serial over ours, two PEs"),
            &format!("dataflow.lte.{id}.serial_ms"),
            &format!("dataflow.lte.{id}.2_ms"),
        );
        rows.ratio(
            &format!("dataflow.lte.{id}.process_vs_thread"),
            &format!(
                "{what}, one PE as a process over one as a thread, core managers on another core"
            ),
            &format!("dataflow.lte.{id}.1.process_ms"),
            &format!("dataflow.lte.{id}.1.own_ms"),
        );
    }
    rows.finish(report, "A subframe of an LTE uplink", "8 users, 832 tasks, 4 x 4 MIMO, 64-QAM, 5 MHz, 18 dB; cores 0 and 1, the core manager on PE 0");
    Ok(())
}

fn call(uplink: &Uplink, arena: &Arena, task: TaskId, external: &[u8]) -> bool {
    let graph = uplink.graph();
    let ran = arena.run(graph, task, |inputs, output| {
        uplink
            .run(Call::of(graph, task, external, inputs, output))
            .is_ok()
    });
    ran == Ok(true)
}

/// The same kernels in the graph's order on one core, in milliseconds per subframe.
fn serial(uplink: &Arc<Uplink>, external: &Arc<[u8]>, subframes: usize) -> anyhow::Result<Samples> {
    let layout = Arc::new(Layout::of(uplink.graph())?);
    let (uplink, external) = (uplink.clone(), external.clone());
    let thread = std::thread::spawn(move || {
        pin(0);
        let mut arena = Arena::new(layout);
        let mut took = Samples::default();
        for subframe in 0..WARM_UP + subframes {
            arena.reset();
            let begun = Instant::now();
            let is_done = uplink
                .graph()
                .order()
                .iter()
                .all(|&task| call(&uplink, &arena, task, &external));
            if subframe >= WARM_UP && is_done {
                took.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        took
    });
    let took = thread.join().ok().context("the serial program failed")?;
    anyhow::ensure!(
        took.values().len() == subframes,
        "a subframe failed in the serial program"
    );
    Ok(took)
}

/// The same graph on rayon's work stealing, a thread per core.
fn rayon_graph(
    uplink: &Arc<Uplink>,
    external: &Arc<[u8]>,
    subframes: usize,
) -> anyhow::Result<Samples> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(2)
        .start_handler(|thread| {
            pin(thread);
        });
    let pool = pool.build()?;
    let graph = uplink.graph();
    let mut arena = Arena::new(Arc::new(Layout::of(graph)?));
    let inputs = |task| AtomicU32::new(graph.predecessors(task).len() as u32);
    let mut took = Samples::default();
    for subframe in 0..WARM_UP + subframes {
        arena.reset();
        let missing: Vec<AtomicU32> = (0..graph.len() as TaskId).map(inputs).collect();
        let work = Stolen {
            uplink,
            arena: &arena,
            external,
            missing: &missing,
        };
        // The subframe begins on a thread of the pool, which is awake then.
        let seconds = pool.install(|| {
            let begun = Instant::now();
            rayon::scope(|scope| {
                for task in
                    (0..graph.len() as TaskId).filter(|&task| graph.predecessors(task).is_empty())
                {
                    scope.spawn(move |scope| work.run(task, scope));
                }
            });
            begun.elapsed().as_secs_f64()
        });
        if subframe >= WARM_UP {
            took.push(seconds * 1e3);
        }
    }
    let last = (0..graph.len() as TaskId).all(|task| arena.output(task).is_some());
    anyhow::ensure!(last, "a task did not run under rayon");
    Ok(took)
}

#[derive(Clone, Copy)]
struct Stolen<'a> {
    uplink: &'a Uplink,
    arena: &'a Arena,
    external: &'a [u8],
    missing: &'a [AtomicU32],
}

impl<'a> Stolen<'a> {
    /// Runs a task, then one of those that it makes ready, and spawns the others.
    fn run(self, task: TaskId, scope: &rayon::Scope<'a>) {
        let graph: &Graph = self.uplink.graph();
        let mut next = Some(task);
        while let Some(task) = next.take() {
            call(self.uplink, self.arena, task, self.external);
            for link in graph.successors(task) {
                if self.missing[link.task as usize].fetch_sub(1, Ordering::AcqRel) != 1 {
                    continue;
                }
                if next.is_none() {
                    next = Some(link.task);
                } else {
                    let task = link.task;
                    scope.spawn(move |scope| self.run(task, scope));
                }
            }
        }
    }
}

struct Done {
    makespans: Samples,
    /// The median of makespans over the time that the subframe's own units took, divided among the PEs.
    over_bound: f64,
}

fn engine(
    uplink: &Arc<Uplink>,
    external: &Arc<[u8]>,
    subframes: usize,
    settings: Settings,
    grain: u64,
) -> anyhow::Result<Done> {
    let pes = settings.pes;
    let mut engine = Engine::start(Settings {
        policy: Policy::EarliestStart,
        ..settings
    })?;
    let slice = engine.add_slice("lte", SliceRank::default(), uplink.clone())?;
    let first = Shape::new(Plan::of(uplink.graph().clone()))?;
    for _ in 0..WARM_UP {
        one(&mut engine, slice, &first, external)?;
    }
    let costs = engine.costs(slice).context("the slice is gone")?;
    let measured = |_, task: &nfluid_dataflow::graph::Task| {
        costs
            .of(task.kind)
            .map_or(task.cost, |measured| measured.cost)
    };
    let graph = uplink.graph().with_costs(measured)?;
    let shape = Shape::new(plan(graph, grain)?)?;
    let [mut makespans, mut over_bound] = [Samples::default(), Samples::default()];
    for subframe in 0..WARM_UP + subframes {
        let finished = one(&mut engine, slice, &shape, external)?;
        if subframe >= WARM_UP {
            let work: u64 = finished.runs().map(|run| run.took).sum();
            makespans.push(finished.makespan as f64 / 1e6);
            over_bound.push(finished.makespan as f64 * pes as f64 / work as f64);
        }
    }
    Ok(Done {
        makespans,
        over_bound: over_bound.median(),
    })
}

/// Runs one subframe on PEs that are awake.
fn one(
    engine: &mut Engine,
    slice: u8,
    shape: &Shape,
    external: &Arc<[u8]>,
) -> anyhow::Result<Finished> {
    engine.wake(slice, Duration::from_millis(2));
    std::thread::sleep(Duration::from_micros(100));
    engine.submit(slice, shape, external.clone(), WAIT)?;
    let finished = engine.wait(WAIT).context("the subframe did not end")?;
    anyhow::ensure!(
        finished.result == Ok(Verdict::Done),
        "the subframe ended as {:?}",
        finished.result
    );
    Ok(finished)
}
