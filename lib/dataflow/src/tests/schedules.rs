//! Schedulers against the literature's lengths, against the optimum of small graphs, and against proven bounds.

use proptest::prelude::*;

use super::examples::{Random, g9, g9b, graphs};
use crate::graph::Graph;
use crate::levels::Levels;
use crate::schedule::optimum::{optimum, over_optimum};
use crate::schedule::{Cp, Dls, Etf, EtfTie, Hlfet, HlfetLevel, Mcp, Scheduler};

const BY_FIXED: Hlfet = Hlfet {
    level: HlfetLevel::Fixed,
};
const BY_BOTTOM: Hlfet = Hlfet {
    level: HlfetLevel::Bottom,
};
const TIE_TOP: Etf = Etf { tie: EtfTie::Top };
const TIE_FIXED: Etf = Etf { tie: EtfTie::Fixed };

fn all() -> [&'static dyn Scheduler; 7] {
    [&BY_BOTTOM, &BY_FIXED, &Cp, &Mcp, &TIE_TOP, &TIE_FIXED, &Dls]
}

fn lengths(graph: &Graph, pes: usize) -> [u64; 8] {
    let length = |scheduler: &dyn Scheduler| scheduler.schedule(graph, pes).length();
    let replayed = Cp.schedule(graph, pes).replayed(graph).unwrap();
    replayed.check(graph).unwrap();
    [
        length(&BY_BOTTOM),
        length(&BY_FIXED),
        length(&Cp),
        replayed.length(),
        length(&Mcp),
        length(&TIE_TOP),
        length(&TIE_FIXED),
        length(&Dls),
    ]
}

// promise: 29.2
#[test]
fn lengths_are_those_of_the_literature() {
    // HLFET by b-level and SL; CP as if edges cost nothing, and replayed; MCP; ETF with both ties; DLS.
    assert_eq!(lengths(&g9(), 2), [19, 23, 17, 26, 19, 20, 21, 21]);
    assert_eq!(lengths(&g9(), 3), [16, 19, 14, 24, 16, 17, 19, 19]);
    assert_eq!(lengths(&g9(), 4), [16, 19, 11, 23, 16, 17, 19, 19]);
    for (pes, expected) in [
        (2, [20, 23, 17, 26, 20, 20, 21]),
        (3, [17, 19, 14, 24, 17, 17, 19]),
        (4, [17, 19, 11, 24, 17, 17, 19]),
    ] {
        assert_eq!(lengths(&g9b(), pes)[..7], expected, "{pes} PEs");
    }
    for graph in [g9(), g9b()] {
        assert_eq!(lengths(&graph, 1), [30; 8]);
    }
}

/// `task:start-end` of each PE, tasks numbered from 1.
fn rows(scheduler: &dyn Scheduler, graph: &Graph) -> Vec<String> {
    let schedule = scheduler.schedule(graph, 3);
    let row = |list: &Vec<u32>| {
        let tasks = list.iter().map(|&task| {
            let slot = schedule.slot(task);
            format!("{}:{}-{}", task + 1, slot.start, slot.end)
        });
        tasks.collect::<Vec<_>>().join(" ")
    };
    schedule.lists().iter().map(row).collect()
}

// promise: 29.2
#[test]
fn schedules_are_those_of_the_reference() {
    let g9_rows = [
        "1:0-2 2:2-5 7:5-9 5:9-14",
        "4:3-7 8:7-11 9:15-16",
        "3:3-6 6:6-10",
    ];
    let g9b_rows = [
        "1:0-2 2:2-5 7:5-9 5:9-14 9:16-17",
        "4:3-7 8:7-11",
        "3:3-6 6:6-10",
    ];
    for scheduler in [&BY_BOTTOM as &dyn Scheduler, &Mcp] {
        assert_eq!(rows(scheduler, &g9()), g9_rows, "{}", scheduler.name());
        assert_eq!(rows(scheduler, &g9b()), g9b_rows, "{}", scheduler.name());
    }
    let top = [
        "1:0-2 3:2-5 2:5-8 6:8-12 7:12-16 9:16-17",
        "4:3-7 8:7-11",
        "5:3-8",
    ];
    let fixed = [
        "1:0-2 4:2-6 2:6-9 6:9-13",
        "3:3-6 8:7-11 7:12-16 9:18-19",
        "5:3-8",
    ];
    let cp = [
        "1:0-2 4:2-6 7:6-10 9:13-14",
        "2:2-5 5:5-10",
        "3:2-5 6:5-9 8:9-13",
    ];
    for graph in [g9(), g9b()] {
        assert_eq!(rows(&TIE_TOP, &graph), top);
        assert_eq!(rows(&TIE_FIXED, &graph), fixed);
        assert_eq!(rows(&Cp, &graph), cp);
    }
}

// promise: 29.2
#[test]
fn the_optimum_of_the_examples_is_the_references() {
    let optima = [2, 3, 4].map(|pes| (optimum(&g9(), pes, true), optimum(&g9(), pes, false)));
    assert_eq!(optima, [(17, 17), (16, 13), (16, 11)]);
    assert_eq!(
        [2, 3, 4].map(|pes| optimum(&g9b(), pes, true)),
        [17, 16, 16]
    );
}

/// The largest sum of edges' costs along a path.
fn longest_moves(graph: &Graph) -> u64 {
    let mut sums = vec![0; graph.len()];
    for &task in graph.order() {
        let before = graph.predecessors(task).iter();
        let sum = before
            .map(|link| sums[link.task as usize] + link.cost)
            .max();
        sums[task as usize] = sum.unwrap_or(0);
    }
    sums.into_iter().max().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // promise: 29.2
    #[test]
    fn a_schedule_is_valid_and_no_shorter_than_it_can_be(graph in graphs(60, 20), pes in 1_usize..6) {
        let least = Levels::of(&graph).fixed.iter().copied().max().unwrap();
        let least = least.max(graph.work().div_ceil(pes as u64));
        for scheduler in all() {
            let schedule = scheduler.schedule(&graph, pes);
            let schedule = if scheduler.name() == "CP" {
                schedule.replayed(&graph).unwrap()
            } else {
                schedule
            };
            prop_assert_eq!(schedule.check(&graph), Ok(()), "{}", scheduler.name());
            prop_assert!(schedule.length() >= least);
            if pes == 1 {
                prop_assert_eq!(schedule.length(), graph.work());
            }
        }
    }

    // promise: 29.2
    #[test]
    fn lengths_keep_the_bounds_of_graham_and_hwang(graph in graphs(7, 10), pes in 2_usize..4) {
        let without = optimum(&graph, pes, false);
        let graham = (2 * pes as u64 - 1) * without;
        let cp = Cp.schedule(&graph, pes).length();
        prop_assert!(cp * pes as u64 <= graham, "CP {} optimum {}", cp, without);
        let optimum = optimum(&graph, pes, true);
        for scheduler in [&TIE_TOP, &TIE_FIXED] {
            let length = scheduler.schedule(&graph, pes).length();
            let bound = graham + longest_moves(&graph) * pes as u64;
            prop_assert!(length * pes as u64 <= bound);
            prop_assert!(length >= optimum);
        }
        prop_assert!(Mcp.schedule(&graph, pes).length() >= optimum);
    }
}

// promise: 29.2
#[test]
fn mean_lengths_over_the_optimum_are_near_the_references() {
    for (ratio, most) in [(0.1, 1.02), (1.0, 1.06), (3.0, 1.2)] {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let means = over_optimum(ratio, 300, |limit| random.below(limit));
        assert!((1.0..=most).contains(&means.mcp), "{ratio}: {means:?}");
        assert!((1.0..=most).contains(&means.etf), "{ratio}: {means:?}");
    }
}
