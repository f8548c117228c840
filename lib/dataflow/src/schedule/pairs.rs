//! Schedulers that look at every pair of a ready task and a PE: ETF and DLS.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Board, Missing, Schedule, Scheduler};
use crate::graph::{Graph, TaskId};
use crate::levels::Levels;

/// What decides between pairs that can start at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EtfTie {
    /// The higher static level, as the literature has it: shorter schedules in all of our comparisons.
    #[default]
    Fixed,
    /// The smaller t-level (Superfluidity D5.2, section 7).
    Top,
}

/// Earliest time first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Etf {
    /// What decides between pairs that can start at the same time.
    pub tie: EtfTie,
}

/// Dynamic level scheduling: the highest static level minus start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dls;

impl Scheduler for Etf {
    fn name(&self) -> &'static str {
        "ETF"
    }

    fn schedule(&self, graph: &Graph, pes: usize) -> Schedule {
        let levels = Levels::of(graph);
        // Smaller is better.
        let tie = |task: TaskId| match self.tie {
            EtfTie::Fixed => u64::MAX - levels.fixed[task as usize],
            EtfTie::Top => levels.top[task as usize],
        };
        by_pairs(graph, pes, |task, pe, start| (start, tie(task), task, pe))
    }
}

impl Scheduler for Dls {
    fn name(&self) -> &'static str {
        "DLS"
    }

    fn schedule(&self, graph: &Graph, pes: usize) -> Schedule {
        let levels = Levels::of(graph);
        by_pairs(graph, pes, |task, pe, start| {
            // A graph's costs together are at most i64::MAX.
            let level = levels.fixed[task as usize] as i64 - start as i64;
            (Reverse(level), task, pe)
        })
    }
}

/// Places, again and again, the ready task on the PE whose pair has the smallest `key`.
fn by_pairs<K: Ord>(graph: &Graph, pes: usize, key: impl Fn(TaskId, usize, u64) -> K) -> Schedule {
    let mut board = Board::new(graph, pes);
    let mut missing = Missing::new(graph);
    let mut ready: Vec<TaskId> = missing.entries().collect();
    loop {
        let tasks = ready.iter().enumerate();
        let pairs = tasks.flat_map(|(at, &task)| {
            let board = &board;
            (0..board.free.len()).map(move |pe| (at, task, pe, board.start(graph, task, pe, true)))
        });
        let best = pairs.min_by_key(|&(_, task, pe, start)| key(task, pe, start));
        let Some((at, task, pe, start)) = best else {
            return board.finish();
        };
        board.place(graph, task, pe, start);
        ready.swap_remove(at);
        ready.extend(missing.done(graph, task));
    }
}
