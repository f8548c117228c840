//! A graph of tasks: what one slice has to compute in one interval.
//!
//! A graph is immutable. Its arrays are in compressed sparse row form: the edges of all tasks lie in one array, and each
//! task knows its range. A [`Builder`] checks what it is given: a graph that exists has no cycle, no edge to a task that
//! does not exist, and no path whose cost overflows.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Index of a task in its graph.
pub type TaskId = u32;
/// Most tasks of a graph: an index has room beside kind, flags and slot in a 64-bit message.
pub const TASKS_MAX: usize = 1 << 20;
/// Most edges of a graph.
pub const EDGES_MAX: usize = 1 << 22;

/// A task: one call of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Task {
    /// The kernel that the task calls; costs are measured per kind.
    pub kind: u16,
    /// Bytes of the task's output, which all its successors read.
    pub output_bytes: u32,
    /// Expected run time in nanoseconds.
    pub cost: u64,
    /// What the kernel is told: which antenna, layer, symbol.
    pub argument: u64,
}

/// An edge at one of its ends: the task at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The task at the other end.
    pub task: TaskId,
    /// Nanoseconds to move the output to another PE; on the same PE it costs nothing.
    pub cost: u64,
}

/// Why tasks and edges are no graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// There is nothing to do.
    #[error("the graph has no task; a graph has at least one")]
    Empty,
    /// More tasks than [`TASKS_MAX`].
    #[error("the graph has more than {TASKS_MAX} tasks; split it into several slices")]
    TooManyTasks,
    /// More edges than [`EDGES_MAX`].
    #[error("the graph has more than {EDGES_MAX} edges; split it into several slices")]
    TooManyEdges,
    /// An edge names a task that the graph does not have.
    #[error(
        "the edge from task {from} to task {to} leads to a task that the graph of {tasks} tasks does not have"
    )]
    Dangling {
        /// The edge's first end.
        from: TaskId,
        /// The edge's other end.
        to: TaskId,
        /// Tasks of the graph.
        tasks: usize,
    },
    /// Two edges join the same tasks.
    #[error(
        "the edge from task {from} to task {to} is there twice; one edge carries the whole output"
    )]
    Twice {
        /// The edge's first end.
        from: TaskId,
        /// The edge's other end.
        to: TaskId,
    },
    /// A task waits for its own output.
    #[error("the graph has a cycle through task {task}: it would wait for its own output")]
    Cycle {
        /// A task on the cycle.
        task: TaskId,
    },
    /// The costs of all tasks and edges together exceed what 64 bits of nanoseconds hold.
    #[error("the costs of the graph's tasks and edges together exceed 2^63 ns")]
    CostOverflow,
}

/// A checked graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    tasks: Box<[Task]>,
    successors: Rows,
    predecessors: Rows,
    /// All tasks, each after its predecessors.
    order: Box<[TaskId]>,
}

/// Edges by the task at one of their ends.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rows {
    /// `starts[n]..starts[n + 1]` is the range of task n.
    starts: Box<[u32]>,
    links: Box<[Link]>,
}

impl Rows {
    /// Sorts edges by the end that `key` names; edges of a task keep their order.
    fn new(tasks: usize, edges: &[Edge], key: fn(&Edge) -> (TaskId, TaskId)) -> Self {
        let mut starts = vec![0_u32; tasks + 1];
        for edge in edges {
            starts[key(edge).0 as usize + 1] += 1;
        }
        for task in 0..tasks {
            starts[task + 1] += starts[task];
        }
        let mut next = starts.clone();
        let mut links = vec![Link { task: 0, cost: 0 }; edges.len()];
        for edge in edges {
            let (here, there) = key(edge);
            let place = &mut next[here as usize];
            links[*place as usize] = Link {
                task: there,
                cost: edge.cost,
            };
            *place += 1;
        }
        Self {
            starts: starts.into(),
            links: links.into(),
        }
    }

    fn of(&self, task: TaskId) -> &[Link] {
        let task = task as usize;
        &self.links[self.starts[task] as usize..self.starts[task + 1] as usize]
    }
}

#[derive(Debug, Clone, Copy)]
struct Edge {
    from: TaskId,
    to: TaskId,
    cost: u64,
}

/// Collects tasks and edges.
#[derive(Debug, Default)]
pub struct Builder {
    tasks: Vec<Task>,
    edges: Vec<Edge>,
}

impl Builder {
    /// Returns a builder without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a task, and returns its index.
    ///
    /// # Errors
    /// [`GraphError::TooManyTasks`].
    pub fn task(&mut self, task: Task) -> Result<TaskId, GraphError> {
        if self.tasks.len() == TASKS_MAX {
            return Err(GraphError::TooManyTasks);
        }
        self.tasks.push(task);
        Ok((self.tasks.len() - 1) as TaskId)
    }

    /// Bytes of the output of a task that was added; 0 if there is no such task.
    pub fn output_bytes(&self, task: TaskId) -> u32 {
        let task = self.tasks.get(task as usize);
        task.map_or(0, |task| task.output_bytes)
    }

    /// Adds an edge: task `to` reads the output of task `from`. A task reads its inputs in the order in which their
    /// edges were added.
    ///
    /// # Errors
    /// [`GraphError::TooManyEdges`].
    pub fn edge(&mut self, from: TaskId, to: TaskId, cost: u64) -> Result<(), GraphError> {
        if self.edges.len() == EDGES_MAX {
            return Err(GraphError::TooManyEdges);
        }
        self.edges.push(Edge { from, to, cost });
        Ok(())
    }

    /// Checks everything, and returns the graph. Takes O(tasks + edges), whatever the input.
    ///
    /// # Errors
    /// Each of [`GraphError`] except the two of a full builder.
    pub fn build(self) -> Result<Graph, GraphError> {
        let tasks = self.tasks.len();
        if tasks == 0 {
            return Err(GraphError::Empty);
        }
        let exists = |task: TaskId| (task as usize) < tasks;
        for &Edge { from, to, .. } in &self.edges {
            if !exists(from) || !exists(to) {
                return Err(GraphError::Dangling { from, to, tasks });
            }
        }
        let costs = self.tasks.iter().map(|task| task.cost);
        let costs = costs.chain(self.edges.iter().map(|edge| edge.cost));
        // No path is longer than everything together: sums along paths need no further check.
        costs
            .into_iter()
            .try_fold(0_u64, |sum, cost| sum.checked_add(cost))
            .filter(|&sum| sum <= i64::MAX as u64)
            .ok_or(GraphError::CostOverflow)?;
        let successors = Rows::new(tasks, &self.edges, |edge| (edge.from, edge.to));
        let predecessors = Rows::new(tasks, &self.edges, |edge| (edge.to, edge.from));
        no_edge_twice(&predecessors, tasks)?;
        let order = order(&successors, &predecessors, tasks)?;
        Ok(Graph {
            tasks: self.tasks.into(),
            successors,
            predecessors,
            order,
        })
    }
}

fn no_edge_twice(predecessors: &Rows, tasks: usize) -> Result<(), GraphError> {
    // The task whose edge from here was seen last.
    let mut seen = vec![TaskId::MAX; tasks];
    for to in 0..tasks as TaskId {
        for link in predecessors.of(to) {
            let last = &mut seen[link.task as usize];
            if *last == to {
                let from = link.task;
                return Err(GraphError::Twice { from, to });
            }
            *last = to;
        }
    }
    Ok(())
}

/// Kahn's order: the entries, then each task once its last predecessor is there.
fn order(
    successors: &Rows,
    predecessors: &Rows,
    tasks: usize,
) -> Result<Box<[TaskId]>, GraphError> {
    let ids = 0..tasks as TaskId;
    let mut missing: Vec<u32> = ids
        .clone()
        .map(|task| predecessors.of(task).len() as u32)
        .collect();
    let mut order: Vec<TaskId> = ids
        .clone()
        .filter(|&task| missing[task as usize] == 0)
        .collect();
    let mut next = 0;
    while let Some(&task) = order.get(next) {
        next += 1;
        for link in successors.of(task) {
            let missing = &mut missing[link.task as usize];
            *missing -= 1;
            if *missing == 0 {
                order.push(link.task);
            }
        }
    }
    if order.len() == tasks {
        return Ok(order.into());
    }
    // A task that still waits may hang behind the cycle: its waiting predecessors lead into it.
    let waits = |task: TaskId| missing[task as usize] > 0;
    let mut task = ids.clone().find(|&task| waits(task)).unwrap_or_default();
    for _ in 0..tasks {
        let before = predecessors.of(task).iter().map(|link| link.task);
        match before.into_iter().find(|&before| waits(before)) {
            Some(before) => task = before,
            None => break,
        }
    }
    Err(GraphError::Cycle { task })
}

impl Graph {
    /// Number of tasks.
    #[allow(clippy::len_without_is_empty)] // A graph is never empty.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.successors.links.len()
    }

    /// Returns a task.
    pub fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task as usize]
    }

    /// Returns all tasks, by index.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Returns the edges to the tasks that read this task's output.
    pub fn successors(&self, task: TaskId) -> &[Link] {
        self.successors.of(task)
    }

    /// Returns the edges from the tasks whose outputs this task reads, in the order in which it reads them.
    pub fn predecessors(&self, task: TaskId) -> &[Link] {
        self.predecessors.of(task)
    }

    /// Returns all tasks, each after its predecessors.
    pub fn order(&self) -> &[TaskId] {
        &self.order
    }

    /// Sum of all tasks' costs: the time on one PE.
    pub fn work(&self) -> u64 {
        self.tasks.iter().map(|task| task.cost).sum()
    }

    /// Returns the same graph with other costs of its tasks, as a slice processor has measured them.
    ///
    /// # Errors
    /// [`GraphError::CostOverflow`].
    pub fn with_costs(&self, cost: impl Fn(TaskId, &Task) -> u64) -> Result<Self, GraphError> {
        let mut graph = self.clone();
        let mut sum: u64 = graph.successors.links.iter().map(|link| link.cost).sum();
        for (id, task) in graph.tasks.iter_mut().enumerate() {
            task.cost = cost(id as TaskId, task);
            sum = sum.checked_add(task.cost).ok_or(GraphError::CostOverflow)?;
        }
        if sum > i64::MAX as u64 {
            return Err(GraphError::CostOverflow);
        }
        Ok(graph)
    }
}
