//! Static schedules: which PE runs each task, and when, if every cost is as expected.
//!
//! | name | order of tasks | PE | insertion | time |
//! |---|---|---|---|---|
//! | [`Hlfet`] | ready tasks, highest level first | earliest start | no | O(v log v + e p) |
//! | [`Cp`] | ready tasks, highest static level first | earliest start as if edges cost nothing | no | O(v log v + e p) |
//! | [`Mcp`] | ready tasks, smallest latest start first | earliest start | yes | O(v²) |
//! | [`Etf`] | the ready task and PE that can start first | the pair's | no | O(v w p), w the most ready tasks |
//! | [`Dls`] | the ready task and PE of the highest dynamic level | the pair's | no | O(v w p) |
//!
//! All further ties: the lowest task, then the lowest PE. The rules: Kwok and Ahmad, ACM Computing Surveys 31(4), 1999;
//! Hwang, Chow, Anger and Lee, SIAM J. Computing 18(2), 1989 (ETF); Sih and Lee, IEEE TPDS 4(2), 1993 (DLS).

mod list;
pub mod optimum;
mod pairs;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::graph::{Graph, TaskId};

pub use list::{Cp, Hlfet, HlfetLevel, Mcp};
pub use pairs::{Dls, Etf, EtfTie};

/// Computes static schedules.
pub trait Scheduler {
    /// Name of the algorithm in the literature.
    fn name(&self) -> &'static str;

    /// Schedules all tasks of `graph` onto `pes` PEs (at least one).
    fn schedule(&self, graph: &Graph, pes: usize) -> Schedule;
}

/// Where and when a task runs, in nanoseconds from the graph's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    /// Index of the PE.
    pub pe: u16,
    /// Start of the task.
    pub start: u64,
    /// End of the task.
    pub end: u64,
}

/// A static schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// By task.
    slots: Box<[Slot]>,
    pes: usize,
}

/// What is wrong with a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A task does not take what it costs.
    #[error("task {0} does not run for its cost")]
    Duration(TaskId),
    /// Two tasks are on one PE at once.
    #[error("tasks {0} and {1} run on one PE at once")]
    Overlap(TaskId, TaskId),
    /// A task starts before an input is there.
    #[error("task {1} starts before the output of task {0} has come")]
    Precedence(TaskId, TaskId),
    /// A task is on a PE that does not exist.
    #[error("task {0} runs on a PE that does not exist")]
    Pe(TaskId),
}

impl Schedule {
    /// The time from the graph's start to its last task's end.
    pub fn length(&self) -> u64 {
        self.slots.iter().map(|slot| slot.end).max().unwrap_or(0)
    }

    /// Where and when a task runs.
    pub fn slot(&self, task: TaskId) -> Slot {
        self.slots[task as usize]
    }

    /// Tasks of each PE, in the order in which they run.
    pub fn lists(&self) -> Vec<Vec<TaskId>> {
        let mut lists = vec![Vec::new(); self.pes];
        for task in 0..self.slots.len() as TaskId {
            lists[usize::from(self.slot(task).pe)].push(task);
        }
        for list in &mut lists {
            list.sort_by_key(|&task| (self.slot(task).start, self.slot(task).end, task));
        }
        lists
    }

    /// Checks that tasks take what they cost, never overlap on a PE, and start after their inputs have come.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, graph: &Graph) -> Result<(), ScheduleError> {
        for task in 0..graph.len() as TaskId {
            let slot = self.slot(task);
            if usize::from(slot.pe) >= self.pes {
                return Err(ScheduleError::Pe(task));
            }
            if slot.end - slot.start != graph.task(task).cost {
                return Err(ScheduleError::Duration(task));
            }
            for link in graph.predecessors(task) {
                let before = self.slot(link.task);
                let arrival = before.end + if before.pe == slot.pe { 0 } else { link.cost };
                if slot.start < arrival {
                    return Err(ScheduleError::Precedence(link.task, task));
                }
            }
        }
        for list in self.lists() {
            for pair in list.windows(2) {
                if self.slot(pair[1]).start < self.slot(pair[0]).end {
                    return Err(ScheduleError::Overlap(pair[0], pair[1]));
                }
            }
        }
        Ok(())
    }

    /// Keeps each PE's list of tasks, charges what edges cost, and lets every task start as early as it can. The length of
    /// a schedule that was made as if edges cost nothing ([`Cp`]) is no length; this schedule's is.
    ///
    /// Returns `None` if the lists wait for each other, which lists of a valid schedule never do.
    pub fn replayed(&self, graph: &Graph) -> Option<Self> {
        let mut lists = self.lists();
        let mut board = Board::new(graph, self.pes);
        let mut next = vec![0; self.pes];
        let mut left = graph.len();
        let mut done = vec![false; graph.len()];
        while left > 0 {
            let before = left;
            for (pe, list) in lists.iter_mut().enumerate() {
                while let Some(&task) = list.get(next[pe]) {
                    let ready = graph.predecessors(task).iter();
                    if !ready.into_iter().all(|link| done[link.task as usize]) {
                        break;
                    }
                    let start = board.start(graph, task, pe, true);
                    board.place(graph, task, pe, start);
                    done[task as usize] = true;
                    next[pe] += 1;
                    left -= 1;
                }
            }
            if left == before {
                return None;
            }
        }
        Some(board.finish())
    }
}

/// A schedule in the making, without insertion: each PE is free from the end of its last task.
struct Board {
    slots: Box<[Slot]>,
    free: Vec<u64>,
}

impl Board {
    fn new(graph: &Graph, pes: usize) -> Self {
        Self {
            slots: vec![Slot::default(); graph.len()].into(),
            free: vec![0; pes.max(1)],
        }
    }

    /// The time at which all inputs of a task, whose predecessors are placed, are at a PE.
    fn arrival(&self, graph: &Graph, task: TaskId, pe: usize, edges_cost: bool) -> u64 {
        let inputs = graph.predecessors(task).iter().map(|link| {
            let before = self.slots[link.task as usize];
            let moves = edges_cost && usize::from(before.pe) != pe;
            before.end + if moves { link.cost } else { 0 }
        });
        inputs.max().unwrap_or(0)
    }

    /// The earliest start of a task after a PE's last task.
    fn start(&self, graph: &Graph, task: TaskId, pe: usize, edges_cost: bool) -> u64 {
        self.arrival(graph, task, pe, edges_cost).max(self.free[pe])
    }

    fn place(&mut self, graph: &Graph, task: TaskId, pe: usize, start: u64) {
        let end = start + graph.task(task).cost;
        self.slots[task as usize] = Slot {
            pe: pe as u16,
            start,
            end,
        };
        self.free[pe] = self.free[pe].max(end);
    }

    fn finish(self) -> Schedule {
        Schedule {
            slots: self.slots,
            pes: self.free.len(),
        }
    }
}

/// Counts inputs that are still missing, and tells which tasks a task makes ready.
struct Missing(Vec<u32>);

impl Missing {
    fn new(graph: &Graph) -> Self {
        let inputs = |task| graph.predecessors(task).len() as u32;
        Self((0..graph.len() as TaskId).map(inputs).collect())
    }

    fn entries(&self) -> impl Iterator<Item = TaskId> {
        let ids = 0..self.0.len() as TaskId;
        ids.filter(|&task| self.0[task as usize] == 0)
    }

    fn done<'a>(&'a mut self, graph: &'a Graph, task: TaskId) -> impl Iterator<Item = TaskId> + 'a {
        graph.successors(task).iter().filter_map(|link| {
            let missing = &mut self.0[link.task as usize];
            *missing -= 1;
            (*missing == 0).then_some(link.task)
        })
    }
}
