//! Kernels that end their process, or write nonsense into all memory that they have: the other slices get all their outputs, in
//! time.

use std::sync::Arc;
use std::time::Duration;

use super::engine::{Hashes, PATIENCE, layers, outputs, processes, serial};
use super::examples::Random;
use crate::engine::{
    Application, Call, Engine, EngineError, Failure, REGION_BYTES, Settings, Shape,
};
use crate::graph::{Builder, Graph, Task};
use crate::manager::{Partition, SliceRank, SliceSet, Verdict};
use crate::plan::Plan;

const HOUR: Duration = Duration::from_secs(3600);
/// The task that misbehaves: in the middle of the graph.
const CULPRIT: u32 = 7;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Abort,
    BadAddress,
    Exit,
    StackOverflow,
    /// Writes nonsense over queues, graphs, states and outputs, again and again, while others use them.
    Scribble,
}

struct Rogue(Fault);

impl Application for Rogue {
    fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        if call.task != CULPRIT {
            return Hashes.run(call);
        }
        match self.0 {
            Fault::Abort => std::process::abort(),
            // SAFETY: none: this is the crash that the test wants.
            Fault::BadAddress => unsafe { std::ptr::write_volatile(8 as *mut u8, 1) },
            Fault::Exit => std::process::exit(3),
            Fault::StackOverflow => {
                std::hint::black_box(deep(call.argument));
            }
            Fault::Scribble => scribble(u64::from(call.task) + call.external.len() as u64),
        }
        Ok(())
    }
}

#[expect(unconditional_recursion, reason = "this is what the test wants")]
fn deep(depth: u64) -> u64 {
    let page = std::hint::black_box([depth; 512]);
    deep(page[0] + 1) + page[1]
}

/// Writes words into the part of the region that is in use: random ones, and ones that could be messages.
fn scribble(seed: u64) {
    const IN_USE: usize = 64 << 10;
    let Some((start, bytes)) = crate::engine::everything::get() else {
        return;
    };
    let mut random = Random(seed | 1);
    for _ in 0..20_000 {
        let at = random.below(IN_USE.min(bytes) as u64 / 8) as usize;
        let word = match random.below(4) {
            0 => 0,
            1 => random.below(u64::MAX),
            // A completion, or a failure, of some unit.
            kind => (1 + kind) << 56 | random.below(3) << 32 | random.below(20),
        };
        // SAFETY: within the mapping. That others read it meanwhile is what the test wants.
        unsafe { std::ptr::write_volatile(start.cast::<u64>().add(at), word) };
    }
}

/// Runs a graph of `good` again and again beside one of `bad`, and returns how those of `bad` ended.
fn beside(
    way: Settings,
    partition: Option<fn([SliceSet; 2]) -> Partition>,
    fault: Fault,
) -> Vec<Verdict> {
    const INTERVALS: usize = 20;
    let mut engine = Engine::start(way).unwrap();
    let rank = SliceRank::default();
    let bad = engine
        .add_slice("bad", rank, Arc::new(Rogue(fault)))
        .unwrap();
    let good = engine.add_slice("good", rank, Arc::new(Hashes)).unwrap();
    if let Some(partition) = partition {
        let sets = [bad, good].map(SliceSet::of);
        engine.set_partition(partition(sets)).unwrap();
        engine.begin_interval();
    }
    let graph = layers(4, 4);
    let shape = Shape::new(Plan::of(graph.clone())).unwrap();
    let mut verdicts = Vec::new();
    for interval in 0..INTERVALS {
        let input = vec![interval as u8; interval];
        for slice in [bad, good, good] {
            engine
                .submit(slice, &shape, input.clone().into(), HOUR)
                .unwrap();
        }
        for _ in 0..3 {
            let finished = engine.wait(PATIENCE).unwrap();
            if finished.slice == good {
                assert_eq!(finished.result, Ok(Verdict::Done), "{fault:?}");
                assert_eq!(outputs(&finished, graph.len()), serial(&graph, &input));
                continue;
            }
            let verdict = finished.result.unwrap();
            assert!(
                finished
                    .runs()
                    .all(|run| run.pe < 2 && run.start + run.took <= finished.ended)
            );
            // What was said of one graph is not said of another. Whatever a process says is printable.
            let why = finished.failure().unwrap_or_default();
            assert_eq!(
                verdict == Verdict::Done,
                why.is_empty(),
                "{verdict:?} {why}"
            );
            assert!(!why.chars().any(char::is_control), "{why:?}");
            let is_told = why.contains("ended by signal") || why.contains("ended with status");
            assert!(
                fault == Fault::Scribble || is_told,
                "{fault:?} {verdict:?} {why}"
            );
            verdicts.push(verdict);
        }
    }
    assert_eq!(engine.counts(good).unwrap().done, 2 * INTERVALS as u64);
    let lost = verdicts
        .iter()
        .filter(|it| matches!(it, Verdict::Hung { .. }));
    assert!(engine.hung() >= lost.count() as u64);
    verdicts
}

const CRASHES: [Fault; 4] = [
    Fault::Abort,
    Fault::BadAddress,
    Fault::Exit,
    Fault::StackOverflow,
];

// promise: 29.12
#[test]
fn a_process_that_ends_costs_its_slices_graph_and_no_other() {
    // Its end is seen, and not that it does not come back.
    let way = || Settings {
        hang: HOUR,
        ..processes(2)
    };
    for fault in CRASHES {
        let verdicts = beside(way(), None, fault);
        assert!(
            verdicts.iter().all(|it| matches!(it, Verdict::Hung { .. })),
            "{verdicts:?}"
        );
    }
    let spatial = |[bad, good]: [SliceSet; 2]| Partition::spatial(vec![bad, good]);
    let verdicts = beside(way(), Some(spatial), Fault::Abort);
    assert!(verdicts.iter().all(|it| matches!(it, Verdict::Hung { .. })));
}

// promise: 29.12
#[test]
fn a_process_that_writes_nonsense_into_all_memory_that_it_has_disturbs_no_other_slice() {
    let way = Settings {
        // What it writes over can make it wait for ever. Beside other tests, a process may wait for a core for long.
        hang: Duration::from_secs(3),
        ..processes(2)
    };
    let verdicts = beside(way, None, Fault::Scribble);
    assert!(
        verdicts.iter().any(|it| *it != Verdict::Done),
        "it has disturbed nothing: {verdicts:?}"
    );
}

/// Each output begins with the number of the process that has written it.
struct Numbers;

impl Application for Numbers {
    fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        call.output[..4].copy_from_slice(&std::process::id().to_ne_bytes());
        Ok(())
    }
}

// promise: 29.12
#[test]
fn a_process_that_is_killed_between_two_intervals_costs_none() {
    let mut engine = Engine::start(processes(1)).unwrap();
    let rank = SliceRank::default();
    let slice = engine.add_slice("killed", rank, Arc::new(Numbers)).unwrap();
    let shape = Shape::new(Plan::of(layers(3, 5))).unwrap();
    let mut before = std::process::id();
    for round in 0..20 {
        engine.submit(slice, &shape, Arc::new([]), HOUR).unwrap();
        let finished = engine.wait(PATIENCE).unwrap();
        assert_eq!(
            finished.result,
            Ok(Verdict::Done),
            "{:?}",
            finished.failure()
        );
        let number = finished.output(0).unwrap()[..4].try_into().unwrap();
        let number = u32::from_ne_bytes(number);
        assert_ne!(number, before);
        assert_eq!(engine.hung(), round);
        before = number;
        // The core manager lets it sleep last of all.
        await_state(number, 'S');
        kill(number);
    }
}

/// Kills a process, and waits until it has ended.
fn kill(number: u32) {
    let pid = rustix::process::Pid::from_raw(number as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    await_state(number, 'Z');
}

/// Waits until a process is in this state (proc_pid_stat(5)).
fn await_state(number: u32, state: char) {
    let stat = || std::fs::read_to_string(format!("/proc/{number}/stat"));
    let wanted = format!(") {state} ");
    while !stat().unwrap_or_default().contains(&wanted) {
        std::thread::yield_now();
    }
}

/// Each output is what its process has: mappings of shared memory, and descriptors beside the standard streams.
struct Belongings;

impl Application for Belongings {
    fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let shared = maps.lines().filter(|line| line.contains(" rw-s ")).count();
        // One is the listing's own.
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        call.output[..2].copy_from_slice(&[shared as u8, open as u8]);
        Ok(())
    }
}

// promise: 29.12
#[test]
fn a_process_has_the_memory_of_its_slice_and_no_descriptor() {
    let _open = std::fs::File::open("/dev/null").unwrap();
    let mut engine = Engine::start(processes(2)).unwrap();
    let rank = SliceRank::default();
    let slices: Vec<_> = (0..5)
        .map(|_| engine.add_slice("one", rank, Arc::new(Belongings)).unwrap())
        .collect();
    let shape = Shape::new(Plan::of(layers(1, 8))).unwrap();
    for slice in slices.iter().chain(&slices) {
        engine.submit(*slice, &shape, Arc::new([]), HOUR).unwrap();
        let finished = engine.wait(PATIENCE).unwrap();
        assert_eq!(finished.result, Ok(Verdict::Done));
        for task in 0..8 {
            let found = &finished.output(task).unwrap()[..2];
            assert!(found[0] == 1 && found[1] <= 4, "{found:?}");
        }
    }
}

// promise: 29.12
#[test]
fn graphs_that_do_not_fit_into_the_shared_memory_are_refused() {
    let mut builder = Builder::new();
    let task = Task {
        output_bytes: 1 + REGION_BYTES as u32 / 4,
        cost: 1,
        ..Task::default()
    };
    builder.task(task).unwrap();
    let large: Graph = builder.build().unwrap();
    let shape = Shape::new(Plan::of(large)).unwrap();
    let mut engine = Engine::start(processes(1)).unwrap();
    let slice = engine
        .add_slice("large", SliceRank::default(), Arc::new(Numbers))
        .unwrap();
    let submitted: Vec<_> = (0..4)
        .map(|_| engine.submit(slice, &shape, Arc::new([]), HOUR))
        .collect();
    assert!(submitted[..3].iter().all(Result::is_ok));
    assert!(matches!(submitted[3], Err(EngineError::NoRoom)));
    for _ in 0..3 {
        assert_eq!(engine.wait(PATIENCE).unwrap().result, Ok(Verdict::Done));
    }
    // There is room again.
    engine.submit(slice, &shape, Arc::new([]), HOUR).unwrap();
    assert_eq!(engine.wait(PATIENCE).unwrap().result, Ok(Verdict::Done));
}
