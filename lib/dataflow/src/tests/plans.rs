//! Gathering tasks into units keeps a graph's meaning.

use proptest::prelude::*;

use super::examples::{graph, graphs};
use crate::graph::{Builder, Task};
use crate::plan::Plan;

proptest! {
    // promise: 29.4
    #[test]
    fn units_have_each_task_once_and_wait_where_tasks_wait(graph in graphs(60, 5), grain in 0_u64..60) {
        let plan = Plan::clustered(graph.clone(), grain).unwrap();
        let mut unit_of = vec![u32::MAX; graph.len()];
        for unit in 0..plan.units().len() as u32 {
            let mut cost = 0;
            for &task in plan.members(unit) {
                prop_assert_eq!(unit_of[task as usize], u32::MAX);
                unit_of[task as usize] = unit;
                cost += graph.task(task).cost;
            }
            prop_assert_eq!(plan.units().task(unit).cost, cost);
        }
        for unit in 0..plan.units().len() as u32 {
            let members = plan.members(unit);
            for (at, &task) in members.iter().enumerate() {
                for link in graph.predecessors(task) {
                    let before = unit_of[link.task as usize];
                    if before == unit {
                        prop_assert!(members[..at].contains(&link.task));
                    } else {
                        let waits = plan.units().predecessors(unit);
                        prop_assert!(waits.iter().any(|link| link.task == before));
                    }
                }
            }
        }
        prop_assert!(plan.critical_path() <= graph.work());
    }
}

// promise: 29.4
#[test]
fn siblings_become_units_of_the_grain_and_chains_become_one() {
    // One source, twelve siblings, one sink.
    let mut edges = Vec::new();
    for sibling in 1..=12 {
        edges.extend([(0, sibling, 0), (sibling, 13, 0)]);
    }
    let plan = Plan::clustered(graph(&[10; 14], &edges), 30).unwrap();
    assert_eq!(plan.units().len(), 6);
    assert!((0..6).all(|unit| matches!(plan.members(unit).len(), 1 | 3)));
    let chain: Vec<_> = (1..8).map(|task| (task - 1, task, 3)).collect();
    let plan = Plan::clustered(graph(&[10; 8], &chain), 0).unwrap();
    assert_eq!(plan.units().len(), 1);
    assert_eq!(plan.members(0), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn what_is_on_the_longest_path_is_taken_first() {
    let plan = Plan::of(graph(&[1, 100, 1, 50], &[(0, 1, 0), (2, 3, 0)]));
    let buckets: Vec<u8> = (0..4).map(|unit| plan.bucket(unit)).collect();
    assert!(buckets[0] < buckets[1] && buckets[1] < buckets[2] && buckets[2] < buckets[3]);
}

#[test]
fn wide_graphs_are_gathered_in_time_that_grows_with_them() {
    // Each task shares all its neighbours with its siblings: comparing lists pair by pair would take hours.
    let mut builder = Builder::new();
    for _ in 0..2000 {
        builder.task(Task::default()).unwrap();
    }
    for from in 0..1000 {
        for to in 1000..2000 {
            builder.edge(from, to, 0).unwrap();
        }
    }
    let plan = Plan::clustered(builder.build().unwrap(), 10).unwrap();
    assert_eq!(plan.units().len(), 1);
}
