//! Graphs for tests.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::graph::{Builder, Graph, Task};

pub fn graph(costs: &[u64], edges: &[(u32, u32, u64)]) -> Graph {
    let mut builder = Builder::new();
    for &cost in costs {
        let task = Task {
            cost,
            ..Task::default()
        };
        builder.task(task).unwrap();
    }
    for &(from, to, cost) in edges {
        builder.edge(from, to, cost).unwrap();
    }
    builder.build().unwrap()
}

/// The nine-task example of Kwok and Ahmad (ACM Computing Surveys 31(4), 1999); task n here is n + 1 there.
pub fn g9() -> Graph {
    with_edge_7_9(6)
}

/// G9 with c(7-9) = 7: a graph that gives the lengths which D5.2 prints.
pub fn g9b() -> Graph {
    with_edge_7_9(7)
}

fn with_edge_7_9(cost: u64) -> Graph {
    let costs = [2, 3, 3, 4, 5, 4, 4, 4, 1];
    let edges = [
        (1, 2, 4),
        (1, 3, 1),
        (1, 4, 1),
        (1, 5, 1),
        (1, 7, 10),
        (2, 6, 1),
        (2, 7, 1),
        (3, 8, 1),
        (4, 8, 1),
        (6, 9, 5),
        (7, 9, cost),
        (8, 9, 5),
    ];
    graph(
        &costs,
        &edges.map(|(from, to, cost)| (from - 1, to - 1, cost)),
    )
}

/// Random graphs: costs from 1 to 10, edges from lower to higher tasks.
pub fn graphs(tasks: usize, edge_cost: u64) -> impl Strategy<Value = Graph> {
    let costs = prop::collection::vec(1_u64..=10, 1..=tasks);
    costs.prop_flat_map(move |costs| {
        let tasks = costs.len() as u32;
        let edge = (0..tasks, 0..tasks, 0..=edge_cost);
        let edges = prop::collection::vec(edge, 0..=costs.len() * 2);
        edges.prop_map(move |edges| {
            let mut seen = BTreeSet::new();
            let forward = edges.into_iter().filter(|edge| edge.0 != edge.1);
            let forward = forward.map(|(a, b, cost)| (a.min(b), a.max(b), cost));
            let once: Vec<_> = forward
                .filter(|edge| seen.insert((edge.0, edge.1)))
                .collect();
            graph(&costs, &once)
        })
    })
}

/// A generator for tests that need random numbers without proptest (Marsaglia's xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
