//! The shortest schedule there is, by trying all: what schedulers are compared with, for graphs of some ten tasks.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::{Etf, EtfTie, Mcp, Scheduler};
use crate::graph::{Builder, Graph, Task, TaskId};
use crate::levels::Levels;

/// The length of the shortest schedule on `pes` PEs. The time grows with the factorial of the number of tasks.
///
/// Some order of tasks, each on some PE and started as early as it can, is optimal; this tries every one that may still be
/// shorter than the best so far.
pub fn optimum(graph: &Graph, pes: usize, edges_cost: bool) -> u64 {
    let mut search = Search {
        fixed: Levels::of(graph).fixed,
        edges_cost,
        placed: vec![None; graph.len()],
        best: graph.work() + 1,
        graph,
    };
    search.place_rest(&mut vec![0; pes.max(1)], graph.len());
    search.best
}

struct Search<'a> {
    graph: &'a Graph,
    fixed: Box<[u64]>,
    edges_cost: bool,
    /// PE and end of each task.
    placed: Vec<Option<(usize, u64)>>,
    best: u64,
}

impl Search<'_> {
    fn place_rest(&mut self, free: &mut [u64], left: usize) {
        if left == 0 {
            self.best = self.best.min(free.iter().copied().max().unwrap_or(0));
            return;
        }
        for task in 0..self.graph.len() as TaskId {
            if self.placed[task as usize].is_some() {
                continue;
            }
            for pe in 0..free.len() {
                let Some(arrival) = self.arrival(task, pe) else {
                    break;
                };
                let start = arrival.max(free[pe]);
                let before = free[pe];
                if start + self.fixed[task as usize] < self.best {
                    let end = start + self.graph.task(task).cost;
                    self.placed[task as usize] = Some((pe, end));
                    free[pe] = end;
                    self.place_rest(free, left - 1);
                    free[pe] = before;
                    self.placed[task as usize] = None;
                }
                // PEs that have nothing yet are all alike.
                if before == 0 {
                    break;
                }
            }
        }
    }

    /// When a task's inputs are at a PE; `None` if one of its predecessors is not placed.
    fn arrival(&self, task: TaskId, pe: usize) -> Option<u64> {
        let mut arrival = 0;
        for link in self.graph.predecessors(task) {
            let (on, end) = self.placed[link.task as usize]?;
            let moves = on != pe && self.edges_cost;
            arrival = arrival.max(end + if moves { link.cost } else { 0 });
        }
        Some(arrival)
    }
}

/// Mean lengths over the optimum's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OverOptimum {
    /// Of MCP.
    pub mcp: f64,
    /// Of ETF, ties broken by static level.
    pub etf: f64,
}

/// Schedules random graphs on three PEs: seven tasks that cost 1 to 10, each forward edge with probability 0.35, edges that
/// cost `ratio` times 1 to 10. `below(n)` draws a number below n.
pub fn over_optimum(ratio: f64, graphs: usize, mut below: impl FnMut(u64) -> u64) -> OverOptimum {
    const PES: usize = 3;
    let mut sums = OverOptimum { mcp: 0.0, etf: 0.0 };
    let etf = Etf { tie: EtfTie::Fixed };
    let mut drawn = 0;
    while drawn < graphs {
        // A graph of seven tasks with edges from lower to higher tasks is always a graph.
        let Some(graph) = random_graph(ratio, &mut below) else {
            continue;
        };
        let best = optimum(&graph, PES, true) as f64;
        sums.mcp += Mcp.schedule(&graph, PES).length() as f64 / best;
        sums.etf += etf.schedule(&graph, PES).length() as f64 / best;
        drawn += 1;
    }
    OverOptimum {
        mcp: sums.mcp / graphs as f64,
        etf: sums.etf / graphs as f64,
    }
}

fn random_graph(ratio: f64, below: &mut impl FnMut(u64) -> u64) -> Option<Graph> {
    const TASKS: TaskId = 7;
    let mut builder = Builder::new();
    for _ in 0..TASKS {
        let cost = 1 + below(10);
        let task = Task {
            cost,
            ..Task::default()
        };
        builder.task(task).ok()?;
    }
    for from in 0..TASKS {
        for to in from + 1..TASKS {
            if below(100) < 35 {
                // Rounds, without the standard library's function.
                let cost = (ratio * (1 + below(10)) as f64 + 0.5) as u64;
                builder.edge(from, to, cost).ok()?;
            }
        }
    }
    builder.build().ok()
}
