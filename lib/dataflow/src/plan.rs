//! A plan: a graph as the core manager executes it, with tasks gathered into units.
//!
//! A task of half a microsecond costs less than a message to another core. A unit is a few tasks that one PE runs in a row,
//! after one message. Gathering keeps the graph's meaning: a unit runs its tasks in the graph's order, and units wait for
//! each other where their tasks do.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::graph::{Builder, Graph, GraphError, Task, TaskId};
use crate::levels::Levels;

/// Buckets of priorities.
pub const BUCKETS: usize = 256;

/// A graph whose tasks are gathered into units: all that a PE has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathered {
    tasks: Graph,
    /// `starts[u]..starts[u + 1]` is the range of unit u in `members`.
    starts: Box<[u32]>,
    members: Box<[TaskId]>,
}

impl Gathered {
    /// Gathers tasks as told: `sizes` are the numbers of tasks of the units, `members` the tasks of one unit after the other.
    /// `None` if the numbers do not agree, or a task does not exist.
    pub fn new(tasks: Graph, sizes: &[u32], members: Box<[TaskId]>) -> Option<Self> {
        let mut starts = Vec::with_capacity(sizes.len() + 1);
        let mut end = 0_u32;
        starts.push(end);
        for &size in sizes {
            end = end.checked_add(size)?;
            starts.push(end);
        }
        let exists = |&task: &TaskId| (task as usize) < tasks.len();
        let agrees = end as usize == members.len() && members.iter().all(exists);
        agrees.then(|| Self {
            tasks,
            starts: starts.into(),
            members,
        })
    }

    /// The graph of tasks.
    pub fn tasks(&self) -> &Graph {
        &self.tasks
    }

    /// Number of units.
    pub fn units(&self) -> usize {
        self.starts.len() - 1
    }

    /// The tasks of a unit, in the order in which they run; none of a unit that does not exist.
    pub fn members(&self, unit: u32) -> &[TaskId] {
        let unit = unit as usize;
        match self.starts.get(unit..unit.saturating_add(2)) {
            Some(&[start, end]) => &self.members[start as usize..end as usize],
            _ => &[],
        }
    }
}

/// A graph, its units, and their priorities.
#[derive(Debug, Clone)]
pub struct Plan {
    gathered: Arc<Gathered>,
    units: Graph,
    /// Bucket of each unit: 0 is taken first.
    buckets: Box<[u8]>,
    critical_path: u64,
}

impl Plan {
    /// Each task by itself.
    pub fn of(graph: Graph) -> Self {
        let ids = 0..graph.len() as u32;
        let (starts, members) = ((0..=graph.len() as u32).collect(), ids.collect());
        Self::new(graph.clone(), graph, starts, members)
    }

    /// Gathers tasks into units of about `grain` nanoseconds.
    ///
    /// Two rules, neither of which can make a cycle. Tasks of the same depth that share a predecessor or a successor are
    /// gathered until a unit has `grain`. Then a unit and its only successor, which has no other predecessor, become one:
    /// nothing could run beside them.
    ///
    /// # Errors
    /// [`GraphError::CostOverflow`]: edges between the same units are added.
    pub fn clustered(graph: Graph, grain: u64) -> Result<Self, GraphError> {
        let (unit_of, units) = gather(&graph, grain);
        let (unit_of, units) = join_chains(&graph, unit_of, units)?;
        let (starts, members) = members(&graph, &unit_of, units);
        let cluster = contract(&graph, &unit_of, units)?;
        Ok(Self::new(graph, cluster, starts, members))
    }

    fn new(tasks: Graph, units: Graph, starts: Box<[u32]>, members: Box<[TaskId]>) -> Self {
        let levels = Levels::of(&units);
        let mut ranked: Vec<u32> = (0..units.len() as u32).collect();
        ranked.sort_by_key(|&unit| (u64::MAX - levels.fixed[unit as usize], unit));
        let mut buckets = vec![0; units.len()];
        // Units of one level share a bucket: a bucket gives them out in the order in which they become ready.
        let (mut rank, mut before) = (0, None);
        for (at, &unit) in ranked.iter().enumerate() {
            let level = levels.fixed[unit as usize];
            if before != Some(level) {
                (rank, before) = (at * BUCKETS / units.len(), Some(level));
            }
            buckets[unit as usize] = rank as u8;
        }
        Self {
            critical_path: *levels.fixed.iter().max().unwrap_or(&0),
            gathered: Arc::new(Gathered {
                tasks,
                starts,
                members,
            }),
            units,
            buckets: buckets.into(),
        }
    }

    /// The graph of tasks.
    pub fn tasks(&self) -> &Graph {
        &self.gathered.tasks
    }

    /// What a PE has to know.
    pub fn gathered(&self) -> &Arc<Gathered> {
        &self.gathered
    }

    /// The graph of units; its `argument`s and output sizes mean nothing.
    pub fn units(&self) -> &Graph {
        &self.units
    }

    /// The tasks of a unit, in the order in which they run.
    pub fn members(&self, unit: u32) -> &[TaskId] {
        self.gathered.members(unit)
    }

    /// The bucket of a unit by its priority: 0 is taken first.
    pub fn bucket(&self, unit: u32) -> u8 {
        self.buckets[unit as usize]
    }

    /// The longest path of units, in nanoseconds, as if edges cost nothing: no number of PEs is faster.
    pub fn critical_path(&self) -> u64 {
        self.critical_path
    }
}

/// Gathers tasks of the same depth. Returns the unit of each task, and how many units there are.
fn gather(graph: &Graph, grain: u64) -> (Vec<u32>, usize) {
    let mut depth = vec![0_u32; graph.len()];
    for &task in graph.order() {
        let before = graph.predecessors(task).iter();
        let before = before.map(|link| depth[link.task as usize] + 1);
        depth[task as usize] = before.max().unwrap_or(0);
    }
    let mut unit_of = vec![u32::MAX; graph.len()];
    let unit_before = |unit_of: &[u32], task: TaskId| {
        let units = graph.predecessors(task).iter();
        units.map(|link| unit_of[link.task as usize]).min()
    };
    let mut by_depth: Vec<TaskId> = graph.order().to_vec();
    by_depth.sort_by_key(|&task| depth[task as usize]);
    let mut units = 0;
    for level in by_depth.chunk_by_mut(|&a, &b| depth[a as usize] == depth[b as usize]) {
        level.sort_by_key(|&task| {
            let after = graph.successors(task).iter().map(|link| link.task).min();
            (unit_before(&unit_of, task), after, task)
        });
        let mut open: Option<(u32, u64, TaskId)> = None;
        for &task in level.iter() {
            let cost = graph.task(task).cost;
            let joined = open.filter(|&(_, sum, last)| {
                sum < grain
                    && (share(graph.predecessors(task), graph.predecessors(last))
                        || share(graph.successors(task), graph.successors(last)))
            });
            let (unit, sum, _) = joined.unwrap_or_else(|| {
                units += 1;
                (units as u32 - 1, 0, task)
            });
            unit_of[task as usize] = unit;
            open = Some((unit, sum.saturating_add(cost), task));
        }
    }
    (unit_of, units)
}

/// Returns true if the lists name a task in common. Looks at a few links only: lists can be long.
fn share(these: &[crate::graph::Link], those: &[crate::graph::Link]) -> bool {
    const LOOK: usize = 64;
    let those = &those[..those.len().min(LOOK)];
    let these = these.iter().take(LOOK);
    these
        .into_iter()
        .any(|this| those.iter().any(|that| that.task == this.task))
}

/// Joins each unit with its only successor that has no other predecessor.
fn join_chains(
    graph: &Graph,
    mut unit_of: Vec<u32>,
    units: usize,
) -> Result<(Vec<u32>, usize), GraphError> {
    let contracted = contract(graph, &unit_of, units)?;
    let mut head: Vec<u32> = (0..units as u32).collect();
    for &unit in contracted.order() {
        if let [before] = contracted.predecessors(unit)
            && contracted.successors(before.task).len() == 1
        {
            head[unit as usize] = head[before.task as usize];
        }
    }
    let mut name = vec![u32::MAX; units];
    let mut count = 0;
    for unit in &mut unit_of {
        let name = &mut name[head[*unit as usize] as usize];
        if *name == u32::MAX {
            *name = count;
            count += 1;
        }
        *unit = *name;
    }
    Ok((unit_of, count as usize))
}

/// The tasks of each unit, in the graph's order.
fn members(graph: &Graph, unit_of: &[u32], units: usize) -> (Box<[u32]>, Box<[TaskId]>) {
    let mut starts = vec![0_u32; units + 1];
    for &unit in unit_of {
        starts[unit as usize + 1] += 1;
    }
    for unit in 0..units {
        starts[unit + 1] += starts[unit];
    }
    let mut next = starts.clone();
    let mut members = vec![0; graph.len()];
    for &task in graph.order() {
        let place = &mut next[unit_of[task as usize] as usize];
        members[*place as usize] = task;
        *place += 1;
    }
    (starts.into(), members.into())
}

/// The graph of units. Edges between the same units become one, which costs what they cost together.
fn contract(graph: &Graph, unit_of: &[u32], units: usize) -> Result<Graph, GraphError> {
    let mut costs = vec![0_u64; units];
    let mut kinds = vec![0_u16; units];
    let mut edges = Vec::new();
    for task in 0..graph.len() as TaskId {
        let unit = unit_of[task as usize];
        costs[unit as usize] += graph.task(task).cost;
        kinds[unit as usize] = graph.task(task).kind;
        for link in graph.successors(task) {
            let after = unit_of[link.task as usize];
            if after != unit {
                edges.push((unit, after, link.cost));
            }
        }
    }
    edges.sort_unstable();
    let mut builder = Builder::new();
    for (&cost, &kind) in costs.iter().zip(&kinds) {
        builder.task(Task {
            kind,
            cost,
            ..Task::default()
        })?;
    }
    for same in edges.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let sum = same
            .iter()
            .try_fold(0_u64, |sum, edge| sum.checked_add(edge.2));
        let (from, to, _) = same[0];
        builder.edge(from, to, sum.ok_or(GraphError::CostOverflow)?)?;
    }
    builder.build()
}
