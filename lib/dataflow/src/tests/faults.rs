//! Kernels that fail, panic, hang or dawdle: their graph is dropped and counted, the other slices are on time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::engine::{Hashes, PATIENCE, layers, processes, settings, ways, with_outputs};
use super::examples::graph;
use crate::engine::{
    Application, Call, Engine, EngineError, Failure, ManagerPlace, Settings, Shape,
};
use crate::graph::{Builder, Task};
use crate::manager::{Refusal, SLICES_MAX, SliceRank, Verdict};
use crate::plan::Plan;

const HOUR: Duration = Duration::from_secs(3600);
/// The task that misbehaves: in the middle of the graph.
const CULPRIT: u32 = 7;

enum Fault {
    Error,
    Panic,
    Hang(Arc<AtomicBool>),
}

struct Faulty(Fault);

impl Application for Faulty {
    fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        if call.task != CULPRIT {
            return Hashes.run(call);
        }
        match &self.0 {
            Fault::Error => Err(Failure("no signal".to_owned())),
            Fault::Panic => panic!("index 9 of 8"),
            Fault::Hang(released) => {
                while !released.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            }
        }
    }
}

fn shape() -> Shape {
    Shape::new(Plan::of(layers(4, 4))).unwrap()
}

// promise: 29.9
#[test]
fn a_kernel_that_fails_or_panics_drops_its_graph_and_no_other() {
    for way in ways(2) {
        let mut engine = Engine::start(way).unwrap();
        let rank = SliceRank::default();
        let good = engine.add_slice("good", rank, Arc::new(Hashes)).unwrap();
        let faults = [
            (Fault::Error, "task 7 (kind 1): no signal"),
            (Fault::Panic, "index 9 of 8"),
        ];
        for (fault, text) in faults {
            let bad = engine
                .add_slice("bad", rank, Arc::new(Faulty(fault)))
                .unwrap();
            for slice in [bad, good] {
                engine.submit(slice, &shape(), Arc::new([]), HOUR).unwrap();
            }
            for _ in 0..2 {
                let finished = engine.wait(PATIENCE).unwrap();
                if finished.slice == good {
                    assert_eq!(finished.result, Ok(Verdict::Done));
                    continue;
                }
                assert!(matches!(finished.result, Ok(Verdict::Failed { .. })));
                assert!(
                    finished.failure().unwrap().contains(text),
                    "{:?}",
                    finished.failure()
                );
                // What had run already is not delivered either.
                assert!((0..16).all(|task| finished.output(task).is_none()));
            }
            assert_eq!(engine.counts(bad).unwrap().failed, 1);
            engine.remove_slice(bad).unwrap();
        }
        assert_eq!(engine.counts(good).unwrap().done, 2);
    }
}

// promise: 29.9
#[test]
fn a_kernel_that_does_not_come_back_costs_its_graph_and_a_pe_that_is_replaced() {
    for way in [settings(2, ManagerPlace::Own(None)), processes(2)] {
        a_kernel_that_hangs_costs_its_graph(way);
    }
}

fn a_kernel_that_hangs_costs_its_graph(way: Settings) {
    let released = Arc::new(AtomicBool::new(false));
    let mut engine = Engine::start(Settings {
        // Beside other tests, a thread may wait for a core for long.
        hang: Duration::from_secs(2),
        ..way
    })
    .unwrap();
    let rank = SliceRank::default();
    let hangs = Faulty(Fault::Hang(released.clone()));
    let bad = engine.add_slice("bad", rank, Arc::new(hangs)).unwrap();
    let good = engine.add_slice("good", rank, Arc::new(Hashes)).unwrap();
    for round in 1..=2 {
        engine.submit(bad, &shape(), Arc::new([]), HOUR).unwrap();
        let finished = engine.wait(PATIENCE).unwrap();
        assert!(
            matches!(finished.result, Ok(Verdict::Hung { .. })),
            "{:?}",
            finished.result
        );
        assert_eq!(engine.hung(), round);
        engine.submit(good, &shape(), Arc::new([]), HOUR).unwrap();
        assert_eq!(engine.wait(PATIENCE).unwrap().result, Ok(Verdict::Done));
    }
    released.store(true, Ordering::Relaxed);
}

struct Slow;

impl Application for Slow {
    fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        std::thread::sleep(Duration::from_millis(2));
        Hashes.run(call)
    }
}

// promise: 29.7
#[test]
fn a_late_graph_is_counted_and_delivers_nothing() {
    for way in ways(2) {
        let mut engine = Engine::start(way).unwrap();
        let slice = engine
            .add_slice("slow", SliceRank::default(), Arc::new(Slow))
            .unwrap();
        let finished = loop {
            engine
                .submit(slice, &shape(), Arc::new([]), Duration::from_millis(5))
                .unwrap();
            let finished = engine.wait(PATIENCE).unwrap();
            // On a busy host, the manager may have seen it when its time was over.
            if !matches!(finished.result, Err(Refusal::CriticalPath { .. })) {
                break finished;
            }
        };
        assert_eq!(finished.result, Ok(Verdict::Late));
        assert!((0..16).all(|task| finished.output(task).is_none()));
        assert_eq!(engine.counts(slice).unwrap().late, 1);
        // The next has time.
        engine.submit(slice, &shape(), Arc::new([]), HOUR).unwrap();
        assert_eq!(engine.wait(PATIENCE).unwrap().result, Ok(Verdict::Done));
    }
}

// Catches: the end of a graph that is told of the graph that has its slot next.
// promise: 29.7
#[test]
fn a_graph_that_is_dropped_as_another_comes_ends_as_itself() {
    for way in ways(1) {
        let mut engine = Engine::start(way).unwrap();
        let wide = Shape::new(Plan::of(layers(1, 20))).unwrap();
        let (first, last) = (SliceRank { rank: 1 }, SliceRank::default());
        let slow = engine.add_slice("slow", first, Arc::new(Slow)).unwrap();
        for _ in 0..10 {
            let gone = engine.add_slice("gone", last, Arc::new(Hashes)).unwrap();
            let before = engine.submit(slow, &wide, Arc::new([]), HOUR).unwrap();
            // It waits behind the slow one. Its end and the next graph reach the core manager together.
            let dropped = engine.submit(gone, &wide, Arc::new([]), HOUR).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            engine.remove_slice(gone).unwrap();
            let after = engine.submit(slow, &wide, Arc::new([]), HOUR).unwrap();
            let mut ended: Vec<_> = (0..3)
                .map(|_| engine.wait(PATIENCE).unwrap())
                .map(|finished| (finished.ticket, finished.result))
                .collect();
            ended.sort_unstable_by_key(|(ticket, _)| *ticket);
            let done = |ticket| (ticket, Ok(Verdict::Done));
            let late = (dropped, Ok(Verdict::Late));
            assert_eq!(ended, [done(before), late, done(after)]);
        }
    }
}

// promise: 29.7
#[test]
fn what_cannot_end_in_time_is_refused_and_counted() {
    let mut engine = Engine::start(settings(1, ManagerPlace::OnPe)).unwrap();
    let slice = engine
        .add_slice("heavy", SliceRank::default(), Arc::new(Hashes))
        .unwrap();
    let heavy = Shape::new(Plan::of(graph(&[1_000_000_000], &[]))).unwrap();
    engine
        .submit(slice, &heavy, Arc::new([]), Duration::from_millis(1))
        .unwrap();
    let finished = engine.wait(PATIENCE).unwrap();
    assert!(matches!(finished.result, Err(Refusal::CriticalPath { .. })));
    assert_eq!(engine.counts(slice).unwrap().refused, 1);
}

#[test]
fn slices_are_bounded_and_their_indices_used_again() {
    let mut engine = Engine::start(settings(1, ManagerPlace::OnPe)).unwrap();
    let rank = SliceRank::default();
    for at in 0..SLICES_MAX {
        let slice = engine.add_slice("one", rank, Arc::new(Hashes)).unwrap();
        assert_eq!(usize::from(slice), at);
    }
    let full = engine.add_slice("more", rank, Arc::new(Hashes));
    assert!(matches!(full, Err(EngineError::TooManySlices)));
    engine.remove_slice(5).unwrap();
    assert!(matches!(
        engine.remove_slice(5),
        Err(EngineError::NoSlice(5))
    ));
    assert!(matches!(
        engine.submit(5, &shape(), Arc::new([]), HOUR),
        Err(EngineError::NoSlice(5))
    ));
    assert_eq!(
        engine.add_slice("again", rank, Arc::new(Hashes)).unwrap(),
        5
    );
}

#[test]
fn an_engine_ends_with_graphs_under_way() {
    for way in ways(2) {
        let mut engine = Engine::start(way).unwrap();
        let slice = engine
            .add_slice("slow", SliceRank::default(), Arc::new(Slow))
            .unwrap();
        for _ in 0..5 {
            engine.submit(slice, &shape(), Arc::new([]), HOUR).unwrap();
        }
        drop(engine);
    }
}

// promise: 29.1
#[test]
fn outputs_that_do_not_fit_are_refused() {
    let mut builder = Builder::new();
    for _ in 0..2 {
        let task = Task {
            output_bytes: 1 << 30,
            ..Task::default()
        };
        builder.task(task).unwrap();
    }
    let too_large = Shape::new(Plan::of(builder.build().unwrap()));
    let text = too_large.err().unwrap().to_string();
    assert!(text.contains("2147483648 bytes"), "{text}");
    let none = with_outputs(&graph(&[1], &[]))
        .with_costs(|_, _| 0)
        .unwrap();
    assert!(Shape::new(Plan::of(none)).is_ok());
}
