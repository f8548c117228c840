//! Graphs and kernels of the experiments.

use nfluid_dataflow::engine::{Application, Call, Clock, Failure};
use nfluid_dataflow::graph::{Builder, Graph, GraphError, Task};
use nfluid_dataflow::plan::Plan;

/// Nanoseconds that a unit of gathered tasks is to take.
pub const GRAIN: u64 = 3_000;

/// A plan of a graph: each task by itself for a grain of 0, otherwise units of this many nanoseconds.
pub fn plan(graph: Graph, grain: u64) -> Result<Plan, GraphError> {
    match grain {
        0 => Ok(Plan::of(graph)),
        _ => Plan::clustered(graph, grain),
    }
}

/// Kernels that do nothing.
pub struct Nothing;

impl Application for Nothing {
    fn run(&self, _call: Call<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

/// Kernels that compute for as many nanoseconds as their argument says.
pub struct Busy(pub Clock);

impl Application for Busy {
    fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        let end = self.0.now() + call.argument;
        while self.0.now() < end {}
        Ok(())
    }
}

/// A task that takes so many nanoseconds.
pub fn busy(nanoseconds: u64) -> Task {
    Task {
        cost: nanoseconds,
        argument: nanoseconds,
        ..Task::default()
    }
}

/// Tasks one after the other.
pub fn chain(tasks: usize) -> Result<Graph, GraphError> {
    let mut builder = Builder::new();
    for at in 0..tasks {
        let task = builder.task(busy(0))?;
        if at > 0 {
            builder.edge(task - 1, task, 0)?;
        }
    }
    builder.build()
}

/// A source, and tasks that wait for it alone.
pub fn fan(tasks: usize, nanoseconds: u64) -> Result<Graph, GraphError> {
    let mut builder = Builder::new();
    let source = builder.task(busy(0))?;
    for _ in 0..tasks {
        let task = builder.task(busy(nanoseconds))?;
        builder.edge(source, task, 0)?;
    }
    builder.build()
}

/// Layers of at least two tasks of 5 to 15 us, each of which waits for two of the layer before.
pub fn layers(layers: u32, width: u32) -> Result<Graph, GraphError> {
    let mut builder = Builder::new();
    for task in 0..layers * width {
        // Any spread will do, as long as it repeats.
        let spread = u64::from(task).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        builder.task(busy(5_000 + spread % 10_000))?;
        if task >= width {
            let (before, at) = ((task / width - 1) * width, task % width);
            builder.edge(before + at, task, 0)?;
            builder.edge(before + (at + 1) % width, task, 0)?;
        }
    }
    builder.build()
}
