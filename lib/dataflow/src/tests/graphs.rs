//! What is no graph is refused, with its reason; levels are the literature's.

use proptest::prelude::*;

use super::examples::{g9, g9b, graphs};
use crate::graph::{Builder, EDGES_MAX, GraphError, TASKS_MAX, Task};
use crate::levels::Levels;

fn built(costs: &[u64], edges: &[(u32, u32)]) -> Result<(), GraphError> {
    let mut builder = Builder::new();
    for &cost in costs {
        builder.task(Task {
            cost,
            ..Task::default()
        })?;
    }
    for &(from, to) in edges {
        builder.edge(from, to, 0)?;
    }
    builder.build().map(|_| ())
}

// promise: 29.1
#[test]
fn what_is_no_graph_is_refused() {
    assert_eq!(built(&[], &[]), Err(GraphError::Empty));
    let dangling = GraphError::Dangling {
        from: 0,
        to: 2,
        tasks: 2,
    };
    assert_eq!(built(&[1, 1], &[(0, 2)]), Err(dangling));
    assert_eq!(
        built(&[1, 1], &[(0, 1), (0, 1)]),
        Err(GraphError::Twice { from: 0, to: 1 })
    );
    assert_eq!(built(&[1], &[(0, 0)]), Err(GraphError::Cycle { task: 0 }));
    // Task 0 hangs behind the cycle of 1 and 2: the error names a task of the cycle.
    let cycle = built(&[1; 4], &[(1, 2), (2, 1), (2, 0), (3, 1)]);
    assert!(
        matches!(cycle, Err(GraphError::Cycle { task: 1 | 2 })),
        "{cycle:?}"
    );
    assert_eq!(built(&[u64::MAX, 1], &[]), Err(GraphError::CostOverflow));
    assert_eq!(built(&[1 << 63], &[]), Err(GraphError::CostOverflow));
    assert_eq!(built(&[(1 << 63) - 1], &[]), Ok(()));
}

// promise: 29.1
#[test]
fn a_million_tasks_are_a_graph_and_one_more_is_none() {
    let mut builder = Builder::new();
    for _ in 0..TASKS_MAX {
        builder.task(Task::default()).unwrap();
    }
    assert_eq!(builder.task(Task::default()), Err(GraphError::TooManyTasks));
    for task in 1..TASKS_MAX as u32 {
        builder.edge(task - 1, task, 1).unwrap();
    }
    for task in 1..(EDGES_MAX - TASKS_MAX) as u32 + 2 {
        builder.edge(0, 2 + task % 1_000_000, 1).unwrap();
    }
    assert_eq!(builder.edge(0, 1, 1), Err(GraphError::TooManyEdges));
    // The edges from task 0 repeat.
    assert!(matches!(builder.build(), Err(GraphError::Twice { .. })));
}

// promise: 29.2
#[test]
fn levels_are_those_of_the_literature() {
    let levels = Levels::of(&g9());
    assert_eq!(levels.critical_path, 23);
    assert_eq!(*levels.fixed, [11, 8, 8, 9, 5, 5, 5, 5, 1]);
    assert_eq!(*levels.top, [0, 6, 3, 3, 3, 10, 12, 8, 22]);
    assert_eq!(*levels.bottom, [23, 15, 14, 15, 5, 10, 11, 10, 1]);
    let latest: Vec<u64> = (0..9).map(|task| levels.latest_start(task)).collect();
    assert_eq!(latest, [0, 8, 9, 8, 18, 13, 12, 13, 22]);
    assert_eq!(Levels::of(&g9b()).critical_path, 24);
}

proptest! {
    // promise: 29.1
    #[test]
    fn an_order_has_each_task_once_after_its_predecessors(graph in graphs(40, 10)) {
        let mut place = vec![usize::MAX; graph.len()];
        for (at, &task) in graph.order().iter().enumerate() {
            prop_assert_eq!(place[task as usize], usize::MAX);
            place[task as usize] = at;
        }
        for task in 0..graph.len() as u32 {
            for link in graph.predecessors(task) {
                prop_assert!(place[link.task as usize] < place[task as usize]);
                let back = graph.successors(link.task).iter().filter(|back| back.task == task);
                prop_assert_eq!(back.count(), 1);
            }
        }
    }
}
