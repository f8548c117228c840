//! A graph as words, as PEs' processes read it.

use crate::graph::{Builder, Task};
use crate::plan::Gathered;

/// Writes the graph: the numbers of tasks, edges and units; a kind, an argument and an output's bytes per task; edges by the
/// task that they lead to, in its order; sizes of units; their tasks. Costs are the manager's.
pub fn write(gathered: &Gathered) -> Vec<u64> {
    let graph = gathered.tasks();
    let ids = 0..graph.len() as u32;
    let edges = ids.clone().flat_map(|to| {
        let from = graph.predecessors(to).iter();
        from.map(move |link| pair(link.task, to))
    });
    let edges: Vec<u64> = edges.collect();
    let units = gathered.units();
    let mut words = vec![graph.len() as u64, edges.len() as u64, units as u64];
    for task in graph.tasks() {
        words.push(pair(task.output_bytes, task.kind.into()));
        words.push(task.argument);
    }
    words.extend(edges);
    let members = |unit| gathered.members(unit);
    words.extend((0..units as u32).map(|unit| members(unit).len() as u64));
    let tasks = (0..units as u32).flat_map(members);
    words.extend(tasks.map(|&task| u64::from(task)));
    words
}

/// Reads what [`write`] has written; `None` if it is no graph.
pub fn read(words: &[u64]) -> Option<Gathered> {
    let mut words = words.iter().copied();
    let mut count = || usize::try_from(words.next()?).ok();
    let (tasks, edges, units) = (count()?, count()?, count()?);
    let mut builder = Builder::new();
    for _ in 0..tasks {
        let (output_bytes, kind) = halves(words.next()?);
        let task = Task {
            kind: kind.try_into().ok()?,
            output_bytes,
            cost: 0,
            argument: words.next()?,
        };
        builder.task(task).ok()?;
    }
    for _ in 0..edges {
        let (from, to) = halves(words.next()?);
        builder.edge(from, to, 0).ok()?;
    }
    let rest: Vec<u32> = words.map(|word| word as u32).collect();
    let (sizes, members) = rest.split_at_checked(units)?;
    let used = members.get(..tasks)?;
    Gathered::new(builder.build().ok()?, sizes, used.into())
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::tests::engine::with_outputs;
    use crate::tests::examples::graphs;
    use proptest::prelude::*;

    proptest! {
        // promise: 29.11
        #[test]
        fn a_form_is_read_as_it_was_written(graph in graphs(60, 3), grain in 0_u64..40) {
            let free = with_outputs(&graph).with_costs(|_, _| 0).unwrap();
            let plan = Plan::clustered(with_outputs(&graph), grain).unwrap();
            let read = read(&write(plan.gathered())).unwrap();
            prop_assert_eq!(read.tasks().tasks(), free.tasks());
            for task in 0..graph.len() as u32 {
                let [read, written] = [read.tasks(), plan.tasks()].map(|graph| {
                    graph.predecessors(task).iter().map(|link| link.task).collect::<Vec<_>>()
                });
                prop_assert_eq!(read, written);
            }
            let units = 0..plan.units().len() as u32;
            prop_assert_eq!(read.units(), units.len());
            for unit in units {
                prop_assert_eq!(read.members(unit), plan.members(unit));
            }
        }

        #[test]
        fn nonsense_is_no_graph_and_does_no_harm(words in prop::collection::vec(0_u64..9, 0..40)) {
            let _one_or_none = read(&words);
        }
    }
}
