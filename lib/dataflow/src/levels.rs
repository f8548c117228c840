//! Levels of tasks: how long the longest path before and after each is.
//!
//! Kwok and Ahmad, "Static Scheduling Algorithms for Allocating Directed Task Graphs to Multiprocessors", ACM Computing
//! Surveys 31(4), 1999, section 3.

use alloc::boxed::Box;
use alloc::vec;

use crate::graph::{Graph, TaskId};

/// Levels of all tasks of a graph, in nanoseconds, by task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    /// t-level: the longest path from an entry to the task, without the task itself, with its edges.
    pub top: Box<[u64]>,
    /// b-level: the longest path from the task to an exit, with the task, with its edges.
    pub bottom: Box<[u64]>,
    /// SL: the b-level without edges.
    pub fixed: Box<[u64]>,
    /// CPL: the longest path through the graph.
    pub critical_path: u64,
}

impl Levels {
    /// Computes all levels, in O(tasks + edges).
    pub fn of(graph: &Graph) -> Self {
        let mut levels = Self {
            top: vec![0; graph.len()].into(),
            bottom: vec![0; graph.len()].into(),
            fixed: vec![0; graph.len()].into(),
            critical_path: 0,
        };
        for &task in graph.order() {
            let paths = graph.predecessors(task).iter().map(|link| {
                levels.top[link.task as usize] + graph.task(link.task).cost + link.cost
            });
            levels.top[task as usize] = paths.max().unwrap_or(0);
        }
        for &task in graph.order().iter().rev() {
            let after = graph.successors(task).iter();
            let (mut bottom, mut fixed) = (0, 0);
            for link in after {
                bottom = bottom.max(levels.bottom[link.task as usize] + link.cost);
                fixed = fixed.max(levels.fixed[link.task as usize]);
            }
            let cost = graph.task(task).cost;
            levels.bottom[task as usize] = bottom + cost;
            levels.fixed[task as usize] = fixed + cost;
        }
        let through = levels.top.iter().zip(&levels.bottom);
        levels.critical_path = through.map(|(top, bottom)| top + bottom).max().unwrap_or(0);
        levels
    }

    /// ALAP: the latest start of a task that does not lengthen the critical path.
    pub fn latest_start(&self, task: TaskId) -> u64 {
        self.critical_path - self.bottom[task as usize]
    }
}
