//! Schedulers that take ready tasks by a priority that is known before: HLFET, CP, MCP.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Board, Missing, Schedule, Scheduler};
use crate::graph::{Graph, TaskId};
use crate::levels::Levels;

/// The level by which [`Hlfet`] takes tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HlfetLevel {
    /// The b-level, with edges: shorter schedules in all of our comparisons.
    #[default]
    Bottom,
    /// The static level, as the literature has it.
    Fixed,
}

/// Highest level first with estimated times (Adam, Chandy and Dickson, 1974).
#[derive(Debug, Clone, Copy, Default)]
pub struct Hlfet {
    /// The level by which tasks are taken.
    pub level: HlfetLevel,
}

/// Critical path: as if edges cost nothing. [`Schedule::replayed`] charges them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cp;

/// Modified critical path (Wu and Gajski, 1990), with insertion into gaps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mcp;

impl Scheduler for Hlfet {
    fn name(&self) -> &'static str {
        "HLFET"
    }

    fn schedule(&self, graph: &Graph, pes: usize) -> Schedule {
        let levels = Levels::of(graph);
        let priority = match self.level {
            HlfetLevel::Bottom => levels.bottom,
            HlfetLevel::Fixed => levels.fixed,
        };
        at_the_end(graph, pes, &priority, true)
    }
}

impl Scheduler for Cp {
    fn name(&self) -> &'static str {
        "CP"
    }

    fn schedule(&self, graph: &Graph, pes: usize) -> Schedule {
        at_the_end(graph, pes, &Levels::of(graph).fixed, false)
    }
}

impl Scheduler for Mcp {
    fn name(&self) -> &'static str {
        "MCP"
    }

    fn schedule(&self, graph: &Graph, pes: usize) -> Schedule {
        // The smallest latest start is the highest b-level.
        let priority = Levels::of(graph).bottom;
        let mut board = Board::new(graph, pes);
        let mut gaps = vec![Gaps::default(); board.free.len()];
        by_priority(graph, &priority, |task| {
            let cost = graph.task(task).cost;
            let start = |pe: usize| gaps[pe].start(board.arrival(graph, task, pe, true), cost);
            let (start, pe) = earliest(board.free.len(), start);
            gaps[pe].take(start, cost);
            board.place(graph, task, pe, start);
        });
        board.finish()
    }
}

/// Calls `place` for each task, the ready task of the highest priority first, the lowest id among equals.
fn by_priority(graph: &Graph, priority: &[u64], mut place: impl FnMut(TaskId)) {
    let mut missing = Missing::new(graph);
    let key = |task: TaskId| (priority[task as usize], Reverse(task));
    let mut ready: BinaryHeap<_> = missing.entries().map(key).collect();
    while let Some((_, Reverse(task))) = ready.pop() {
        place(task);
        ready.extend(missing.done(graph, task).map(key));
    }
}

/// The smallest start, and the lowest PE that has it.
fn earliest(pes: usize, start: impl Fn(usize) -> u64) -> (u64, usize) {
    let starts = (0..pes).map(|pe| (start(pe), pe));
    starts.min().unwrap_or((0, 0))
}

fn at_the_end(graph: &Graph, pes: usize, priority: &[u64], edges_cost: bool) -> Schedule {
    let mut board = Board::new(graph, pes);
    by_priority(graph, priority, |task| {
        let start = |pe| board.start(graph, task, pe, edges_cost);
        let (start, pe) = earliest(board.free.len(), start);
        board.place(graph, task, pe, start);
    });
    board.finish()
}

/// Times at which a PE has nothing to do, before its last task's end, and that end.
#[derive(Debug, Clone, Default)]
struct Gaps {
    /// Disjoint, ascending.
    gaps: Vec<(u64, u64)>,
    end: u64,
}

impl Gaps {
    /// The earliest start from `from` on of something that takes `cost`.
    fn start(&self, from: u64, cost: u64) -> u64 {
        let fits = |&(begin, end): &(u64, u64)| {
            let start = begin.max(from);
            // What takes no time does not start inside of another task.
            (start + cost <= end && start < end).then_some(start)
        };
        self.gaps
            .iter()
            .find_map(fits)
            .unwrap_or(self.end.max(from))
    }

    fn take(&mut self, start: u64, cost: u64) {
        let end = start + cost;
        if start >= self.end {
            if start > self.end {
                self.gaps.push((self.end, start));
            }
            self.end = end;
            return;
        }
        let Some(at) = self
            .gaps
            .iter()
            .position(|gap| gap.0 <= start && end <= gap.1)
        else {
            return;
        };
        let (first, last) = self.gaps[at];
        let left = [(first, start), (end, last)];
        self.gaps
            .splice(at..=at, left.into_iter().filter(|gap| gap.0 < gap.1));
    }
}
