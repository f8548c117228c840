//! The engine: the same outputs for any PEs, policy, gathering, place of the core manager and back end.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::examples::{Random, graphs};
use crate::engine::trace;
use crate::engine::{
    Application, BackEnd, Call, Engine, Failure, Finished, ManagerPlace, Settings, Shape,
};
use crate::graph::{Builder, Graph, Task};
use crate::manager::{Partition, Policy, SliceRank, SliceSet, Verdict};
use crate::plan::Plan;

pub const PATIENCE: Duration = Duration::from_secs(180);
const HOUR: Duration = Duration::from_secs(3600);
const OUTPUT: u32 = 24;

/// Each output is a hash of argument, external input, and all inputs in their order (FNV-1a).
pub struct Hashes;

fn hash(argument: u64, external: &[u8], inputs: &[&[u8]], output: &mut [u8]) {
    let mut state = argument ^ 0xcbf2_9ce4_8422_2325;
    let bytes = external.iter().chain(inputs.iter().copied().flatten());
    for &byte in bytes {
        state = (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    for (at, byte) in output.iter_mut().enumerate() {
        *byte = (state.rotate_left(at as u32 * 7) & 0xff) as u8;
    }
}

impl Application for Hashes {
    fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        let inputs: Vec<&[u8]> = call.inputs.iter().collect();
        hash(call.argument, call.external, &inputs, call.output);
        Ok(())
    }
}

/// The graph with outputs and arguments.
pub fn with_outputs(graph: &Graph) -> Graph {
    let mut builder = Builder::new();
    for (id, task) in graph.tasks().iter().enumerate() {
        let task = Task {
            output_bytes: OUTPUT + id as u32 % 70,
            argument: id as u64,
            kind: id as u16 % 3,
            ..*task
        };
        builder.task(task).unwrap();
    }
    for to in 0..graph.len() as u32 {
        for link in graph.predecessors(to) {
            builder.edge(link.task, to, link.cost).unwrap();
        }
    }
    builder.build().unwrap()
}

/// The outputs of all tasks, computed one after the other.
pub fn serial(graph: &Graph, external: &[u8]) -> Vec<Vec<u8>> {
    let mut outputs = vec![Vec::new(); graph.len()];
    for &task in graph.order() {
        let inputs = graph.predecessors(task).iter();
        let inputs: Vec<&[u8]> = inputs.map(|link| &*outputs[link.task as usize]).collect();
        let node = graph.task(task);
        let mut output = vec![0; node.output_bytes as usize];
        hash(node.argument, external, &inputs, &mut output);
        outputs[task as usize] = output;
    }
    outputs
}

pub fn outputs(finished: &Finished, tasks: usize) -> Vec<Vec<u8>> {
    let output = |task| finished.output(task).map_or_else(Vec::new, <[u8]>::to_vec);
    (0..tasks as u32).map(output).collect()
}

pub fn settings(pes: usize, manager: ManagerPlace) -> Settings {
    Settings {
        manager,
        ..Settings::new(pes)
    }
}

/// Settings whose PEs are processes.
pub fn processes(pes: usize) -> Settings {
    Settings {
        back_end: BackEnd::Processes,
        ..Settings::new(pes)
    }
}

/// All ways to run slices on so many PEs.
pub fn ways(pes: usize) -> [Settings; 3] {
    [
        settings(pes, ManagerPlace::OnPe),
        settings(pes, ManagerPlace::Own(None)),
        processes(pes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    // promise: 29.5
    #[test]
    fn outputs_are_the_serial_programs_whatever_runs_them(
        graph in graphs(80, 3),
        pes in 1_usize..5,
        way in 0_usize..3,
        earliest in any::<bool>(),
        grain in 0_u64..40,
        ahead in 1_usize..4,
    ) {
        let graph = with_outputs(&graph);
        let policy = if earliest { Policy::EarliestStart } else { Policy::List };
        let settings = Settings { policy, ahead, ..ways(pes)[way].clone() };
        let mut engine = Engine::start(settings).unwrap();
        let slice = engine.add_slice("hashes", SliceRank::default(), Arc::new(Hashes)).unwrap();
        let shape = Shape::new(Plan::clustered(graph.clone(), grain).unwrap()).unwrap();
        // Several intervals under way at once, then one by one: arenas are used again.
        for interval in 0..3_u8 {
            engine.submit(slice, &shape, Arc::new([interval]), HOUR).unwrap();
        }
        let mut ended = Vec::new();
        for interval in 0..6_u8 {
            let finished = engine.wait(PATIENCE).unwrap();
            prop_assert_eq!(finished.result, Ok(Verdict::Done));
            let ticket = finished.ticket as u8 - 1;
            prop_assert_eq!(outputs(&finished, graph.len()), serial(&graph, &[ticket]));
            ended.push(ticket);
            if (2..5).contains(&interval) {
                engine.submit(slice, &shape, Arc::new([interval + 1]), HOUR).unwrap();
            }
        }
        ended.sort_unstable();
        prop_assert_eq!(ended, [0, 1, 2, 3, 4, 5]);
        prop_assert_eq!(engine.counts(slice).unwrap().done, 6);
    }
}

/// A graph of layers, each task of which reads two tasks of the layer before.
pub fn layers(layers: u32, width: u32) -> Graph {
    let mut builder = Builder::new();
    let mut random = Random(7);
    for task in 0..layers * width {
        let task = Task {
            kind: (task / width) as u16,
            output_bytes: OUTPUT,
            cost: 500,
            argument: task.into(),
        };
        builder.task(task).unwrap();
    }
    for layer in 1..layers {
        for at in 0..width {
            let before = (layer - 1) * width;
            let first = random.below(width.into()) as u32;
            builder
                .edge(before + first, layer * width + at, 100)
                .unwrap();
            let second = (first + 1) % width;
            builder
                .edge(before + second, layer * width + at, 100)
                .unwrap();
        }
    }
    builder.build().unwrap()
}

// promise: 29.5
#[test]
fn thousands_of_intervals_of_two_slices_end_right() {
    for way in ways(2) {
        // Slices that share PEs wake each other's processes.
        let intervals = match way.back_end {
            BackEnd::Threads => 1500,
            BackEnd::Processes => 200,
        };
        let mut engine = Engine::start(way).unwrap();
        let graphs = [layers(6, 8), layers(3, 20)];
        let mut slices = Vec::new();
        for (at, graph) in graphs.iter().enumerate() {
            let name = format!("slice-{at}");
            let slice = engine
                .add_slice(&name, SliceRank::default(), Arc::new(Hashes))
                .unwrap();
            assert_eq!(engine.name(slice), Some(&*name));
            slices.push((slice, Shape::new(Plan::of(graph.clone())).unwrap()));
        }
        let expected: Vec<_> = graphs.iter().map(|graph| serial(graph, b"x")).collect();
        for interval in 0..intervals {
            // Some intervals find the engine asleep.
            if interval % 100 == 0 {
                std::thread::sleep(Duration::from_millis(2));
                engine.wake(slices[0].0, Duration::from_millis(1));
            }
            for (slice, shape) in &slices {
                engine
                    .submit(*slice, shape, Arc::from(&b"x"[..]), HOUR)
                    .unwrap();
            }
            for _ in 0..2 {
                let finished = engine.wait(PATIENCE).unwrap();
                let at = usize::from(finished.slice);
                assert_eq!(finished.result, Ok(Verdict::Done));
                assert_eq!(outputs(&finished, graphs[at].len()), expected[at]);
            }
        }
        for (slice, _) in &slices {
            assert_eq!(engine.counts(*slice).unwrap().done, intervals);
            let kinds = engine.costs(*slice).unwrap().kinds();
            assert!(kinds.len() >= 3 && kinds.iter().all(|(_, cost)| cost.samples > 0));
        }
    }
}

// promise: 29.10
#[test]
fn nothing_begins_before_it_was_asked_for_though_the_engine_slept() {
    // One PE: with the core manager on it, its thread runs the last unit and then sleeps.
    for way in ways(1) {
        let mut engine = Engine::start(way).unwrap();
        let slice = engine
            .add_slice("slept", SliceRank::default(), Arc::new(Hashes))
            .unwrap();
        let shape = Shape::new(Plan::of(layers(3, 5))).unwrap();
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(20));
            let asked = engine.clock().now();
            engine.submit(slice, &shape, Arc::new([]), HOUR).unwrap();
            let finished = engine.wait(PATIENCE).unwrap();
            assert!(finished.runs().all(|run| run.start >= asked));
        }
    }
}

// promise: 29.8
#[test]
fn a_partition_holds_and_changes_lose_nothing() {
    changes_of_a_partition_lose_nothing(settings(3, ManagerPlace::Own(None)), 200);
    changes_of_a_partition_lose_nothing(processes(3), 40);
}

fn changes_of_a_partition_lose_nothing(way: Settings, rounds: usize) {
    let mut engine = Engine::start(way).unwrap();
    let graph = layers(4, 12);
    let shape = Shape::new(Plan::of(graph)).unwrap();
    let slices = ["a", "b"].map(|name| {
        engine
            .add_slice(name, SliceRank::default(), Arc::new(Hashes))
            .unwrap()
    });
    let wrong = Partition::shared(2);
    assert!(engine.set_partition(wrong).is_err());
    for round in 0..rounds {
        let (a, b) = (
            SliceSet::of(slices[round % 2]),
            SliceSet::of(slices[1 - round % 2]),
        );
        engine
            .set_partition(Partition::spatial(vec![a, b, b]))
            .unwrap();
        engine.begin_interval();
        for slice in slices {
            engine.submit(slice, &shape, Arc::new([]), HOUR).unwrap();
        }
        for _ in 0..2 {
            let finished = engine.wait(PATIENCE).unwrap();
            assert_eq!(finished.result, Ok(Verdict::Done));
            let is_first = finished.slice == slices[round % 2];
            assert!(finished.runs().all(|run| (run.pe == 0) == is_first));
        }
    }
}

// promise: 29.10
#[test]
fn a_trace_shows_each_run_once() {
    for way in [settings(2, ManagerPlace::Own(None)), processes(2)] {
        a_trace_shows_each_run_of(way);
    }
}

fn a_trace_shows_each_run_of(way: Settings) {
    let mut engine = Engine::start(way).unwrap();
    let slice = engine
        .add_slice("traced", SliceRank::default(), Arc::new(Hashes))
        .unwrap();
    let shape = Shape::new(Plan::of(layers(3, 5))).unwrap();
    engine.submit(slice, &shape, Arc::new([]), HOUR).unwrap();
    let finished = engine.wait(PATIENCE).unwrap();
    let bars = trace::bars([&finished]);
    assert_eq!(bars.len(), 15);
    for pair in bars.windows(2).filter(|pair| pair[0].pe == pair[1].pe) {
        assert!(pair[0].start + pair[0].took <= pair[1].start);
    }
    let taken = finished.ended - finished.makespan;
    let marks = trace::marks(finished.ticket, taken, finished.ended);
    assert!(
        bars.iter()
            .all(|bar| taken <= bar.start && bar.start + bar.took <= finished.ended)
    );
    let json = trace::chrome(&bars, &marks);
    assert_eq!(json.matches("\"ph\":\"X\"").count(), 15);
    assert!(json.starts_with('{') && json.ends_with("}\n"));
    assert_eq!(trace::gantt(&bars, &marks).matches("<rect").count(), 15);
    assert!(trace::gantt(&[], &[]).starts_with("<svg"));
}
