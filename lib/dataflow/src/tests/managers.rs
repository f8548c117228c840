//! The core manager in virtual time: order, slicing modes, deadlines, admission, PEs that lie.

use std::sync::Arc;

use proptest::prelude::*;

use super::examples::{g9, graph, graphs};
use crate::manager::{
    Manager, Partition, PartitionError, Policy, Refusal, Settings, SliceId, SliceRank, SliceSet,
    Verdict, Window,
};
use crate::plan::Plan;
use crate::replay::{Arrival, Replayed, on, replay};

const FOREVER: u64 = 1 << 40;

fn settings(pes: usize) -> Settings {
    Settings {
        pes,
        policy: Policy::List,
        ahead: 2,
        hang: 1000,
    }
}

fn arrival(at: u64, slice: SliceId, plan: &Arc<Plan>, deadline: u64) -> Arrival {
    Arrival {
        at,
        begins_interval: false,
        slice,
        rank: SliceRank::default(),
        plan: plan.clone(),
        deadline,
    }
}

fn expected(plan: &Plan, unit: u32, _pe: usize) -> u64 {
    plan.units().task(unit).cost
}

/// So many tasks of this cost, without edges.
fn heap(tasks: usize, cost: u64) -> Arc<Plan> {
    Arc::new(Plan::of(graph(&vec![cost; tasks], &[])))
}

fn check(replayed: &Replayed, plan: &Plan, pes: usize) {
    let mut ends = vec![None; plan.units().len()];
    for run in &replayed.runs {
        assert_eq!(
            ends[run.unit as usize].replace(run.end),
            None,
            "a unit ran twice"
        );
        for link in plan.units().predecessors(run.unit) {
            assert!(ends[link.task as usize].is_some_and(|end| end <= run.start));
        }
    }
    for pe in 0..pes {
        let runs: Vec<_> = replayed.runs.iter().filter(|run| run.pe == pe).collect();
        assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
}

proptest! {
    // promise: 29.6
    #[test]
    fn each_unit_runs_once_after_its_inputs_within_grahams_bound(
        graph in graphs(60, 5),
        pes in 1_usize..70,
        ahead in 1_usize..4,
        earliest in any::<bool>(),
    ) {
        let policy = if earliest { Policy::EarliestStart } else { Policy::List };
        let settings = Settings { policy, ahead, ..settings(pes) };
        let plan = Arc::new(Plan::of(graph));
        let arrivals = [arrival(0, 0, &plan, FOREVER)];
        let replayed = replay(settings, &arrivals, 0, expected);
        check(&replayed, &plan, pes);
        prop_assert_eq!(replayed.outcomes.len(), 1);
        prop_assert_eq!(replayed.outcomes[0].verdict, Verdict::Done);
        // With one unit ahead, each PE that is free takes what is ready.
        if ahead == 1 && !earliest {
            let least = plan.critical_path().max(plan.units().work().div_ceil(pes as u64));
            prop_assert!(replayed.outcomes[0].makespan <= 2 * least);
        }
        prop_assert_eq!(replay(settings, &arrivals, 0, expected), replayed);
    }
}

#[test]
fn the_example_takes_what_the_cp_schedule_takes() {
    let plan = Arc::new(Plan::of(g9()));
    let ahead_one = Settings {
        ahead: 1,
        ..settings(3)
    };
    let replayed = replay(ahead_one, &[arrival(0, 0, &plan, FOREVER)], 0, expected);
    assert_eq!(replayed.outcomes[0].makespan, 14);
}

// promise: 29.7
#[test]
fn a_late_graph_is_dropped_whole_and_the_other_is_not() {
    let (slow, quick) = (heap(10, 100), heap(2, 10));
    // Costs are twice what was expected: the graph is admitted, and late.
    let arrivals = [arrival(0, 0, &slow, 1000), arrival(0, 1, &quick, 2000)];
    let replayed = replay(settings(1), &arrivals, 0, |plan, unit, pe| {
        2 * expected(plan, unit, pe)
    });
    let verdicts: Vec<_> = replayed
        .outcomes
        .iter()
        .map(|end| (end.slice, end.verdict))
        .collect();
    assert_eq!(verdicts, [(0, Verdict::Late), (1, Verdict::Done)]);
    let ran = replayed.runs.iter().filter(|run| run.slice == 0).count();
    // Five ended, one ran when the deadline passed, and one waited behind it.
    assert!((5..=7).contains(&ran), "{ran}");
}

// promise: 29.7
#[test]
fn what_cannot_end_in_time_is_refused_with_its_reason() {
    let mut manager = Manager::new(settings(2));
    let mut admit = |slice, plan: &Arc<Plan>, deadline| {
        manager.admit(slice, SliceRank::default(), plan.clone(), deadline, 0)
    };
    let chain = Arc::new(Plan::of(graph(&[60, 60], &[(0, 1, 0)])));
    let path = Refusal::CriticalPath {
        path: 120,
        left: 100,
    };
    assert_eq!(admit(0, &chain, 100), Err(path));
    let area = Refusal::Area {
        work: 210,
        area: 200,
    };
    assert_eq!(admit(0, &heap(21, 10), 100), Err(area));
    assert_eq!(admit(0, &heap(20, 10), 100), Ok(0));
    let owners = vec![SliceSet::of(0), SliceSet::of(1)];
    manager.set_partition(Partition::spatial(owners)).unwrap();
    let refused = manager.admit(2, SliceRank::default(), heap(1, 1), 100, 0);
    assert_eq!(refused, Err(Refusal::NoPe(2)));
    let windows = Partition::temporal(2, &[(0, 50), (1, 50)]).unwrap();
    manager.set_partition(windows).unwrap();
    let refused = manager.admit(1, SliceRank::default(), heap(1, 60), 100, 0);
    let window = Refusal::Window {
        unit: 60,
        window: 50,
    };
    assert_eq!(refused, Err(window));
}

#[test]
fn a_table_that_is_full_refuses_and_recovers() {
    let mut manager = Manager::new(settings(1));
    let plan = heap(1, 1);
    let rank = SliceRank::default();
    for _ in 0..crate::manager::GRAPHS_MAX {
        manager.admit(0, rank, plan.clone(), FOREVER, 0).unwrap();
    }
    assert_eq!(
        manager.admit(0, rank, plan.clone(), FOREVER, 0),
        Err(Refusal::Full)
    );
    let run = manager.next(0).unwrap();
    manager.done(run.pe, run.slot, run.unit, 1).unwrap();
    // The slot is its graph's until the end of that has been told.
    assert_eq!(
        manager.admit(0, rank, plan.clone(), FOREVER, 1),
        Err(Refusal::Full)
    );
    assert_eq!(
        manager.outcome().map(|end| end.verdict),
        Some(Verdict::Done)
    );
    assert!(manager.admit(0, rank, plan, FOREVER, 1).is_ok());
}

#[test]
fn a_slice_of_higher_rank_goes_first_then_the_nearer_deadline() {
    let plan = heap(1, 10);
    let mut high = arrival(0, 2, &plan, FOREVER);
    high.rank = SliceRank { rank: 9 };
    let arrivals = [
        arrival(0, 0, &plan, FOREVER),
        arrival(0, 1, &plan, 500),
        high,
    ];
    let replayed = replay(settings(1), &arrivals, 0, expected);
    let order: Vec<_> = replayed.runs.iter().map(|run| run.slice).collect();
    assert_eq!(order, [2, 1, 0]);
}

/// A slice that is overloaded beside one that is not: the runs of both, and the end of the second. Units on PEs 0 and 1 take
/// `factor` times what was expected.
fn beside_an_overload(partition: Partition, is_overloaded: bool, factor: u64) -> (Replayed, u64) {
    let mut manager = Manager::new(settings(4));
    manager.set_partition(partition).unwrap();
    let plan = heap(40, 10);
    let mut arrivals = vec![arrival(0, 1, &plan, FOREVER)];
    arrivals[0].begins_interval = true;
    if is_overloaded {
        arrivals.extend((0..20).map(|_| arrival(0, 0, &plan, FOREVER)));
    }
    let replayed = on(&mut manager, 4, &arrivals, 0, |plan, unit, pe| {
        expected(plan, unit, pe) * if pe < 2 { factor } else { 1 }
    });
    let end = replayed.outcomes.iter().find(|end| end.slice == 1).unwrap();
    let makespan = end.makespan;
    (replayed, makespan)
}

// promise: 29.8
#[test]
fn an_overloaded_slice_changes_nothing_for_another_that_has_pes_of_its_own() {
    let own = || {
        let (first, second) = (SliceSet::of(0), SliceSet::of(1));
        Partition::spatial(vec![first, first, second, second])
    };
    let (replayed, makespan) = beside_an_overload(own(), true, 2);
    assert_eq!(makespan, beside_an_overload(own(), false, 1).1);
    assert!(
        replayed
            .runs
            .iter()
            .all(|run| (run.pe < 2) == (run.slice == 0))
    );
}

// promise: 29.8
#[test]
fn a_window_is_its_slices_alone_until_its_end() {
    let mut manager = Manager::new(settings(4));
    let windows = [(0, 105), (1, 205)];
    manager
        .set_partition(Partition::temporal(4, &windows).unwrap())
        .unwrap();
    let plan = heap(30, 10);
    let mut first = arrival(0, 1, &plan, 310);
    first.begins_interval = true;
    let arrivals = [first, arrival(0, 0, &plan, 310), arrival(0, 0, &plan, 310)];
    let replayed = on(&mut manager, 4, &arrivals, 0, expected);
    for run in &replayed.runs {
        let window = if run.slice == 0 { 0..=105 } else { 105..=310 };
        assert!(
            window.contains(&run.start) && window.contains(&run.end),
            "{run:?}"
        );
    }
    // Thirty units fit into four PEs' 105, sixty do not.
    assert_eq!((replayed.runs.len(), replayed.refused), (60, 1));
    manager.begin_interval(310);
    assert_eq!(manager.unused(), 4 * 310 - 60 * 10);
}

// promise: 29.8
#[test]
fn pes_and_windows_can_both_be_divided() {
    let window = |begin, end, owners: [u8; 4]| Window {
        begin,
        end,
        owners: owners.map(SliceSet::of).to_vec(),
    };
    let table = vec![window(0, 100, [0, 0, 1, 1]), window(100, 400, [0, 1, 1, 1])];
    let partition = Partition::new(4, table.clone()).unwrap();
    let (replayed, _) = beside_an_overload(partition, true, 1);
    for run in &replayed.runs {
        let owns = |window: &Window| {
            run.start >= window.begin
                && run.end <= window.end
                && window.owners[run.pe].contains(run.slice)
        };
        assert!(table.iter().any(owns), "{run:?}");
    }
}

#[test]
fn windows_that_are_no_partition_are_refused() {
    assert_eq!(Partition::new(1, vec![]), Err(PartitionError::Empty));
    assert_eq!(
        Partition::temporal(1, &[(0, 0)]),
        Err(PartitionError::Order(0))
    );
    let wrong = PartitionError::Pes {
        window: 0,
        named: 3,
        pes: 2,
    };
    let three = Partition::shared(3);
    assert_eq!(Manager::new(settings(2)).set_partition(three), Err(wrong));
}

// promise: 29.8
#[test]
fn owners_change_under_load_without_a_run_on_a_foreign_pe() {
    let mut manager = Manager::new(settings(2));
    let mine = |first, second| Partition::spatial(vec![SliceSet::of(first), SliceSet::of(second)]);
    let plan = heap(50, 10);
    let mut all = Vec::new();
    let mut changes = 0;
    for interval in 0..20_u64 {
        let (first, second) = if interval % 2 == 0 { (0, 1) } else { (1, 0) };
        manager.set_partition(mine(first, second)).unwrap();
        manager.begin_interval(0);
        let arrivals = [arrival(0, 0, &plan, FOREVER), arrival(0, 1, &plan, FOREVER)];
        let replayed = on(&mut manager, 2, &arrivals, 0, expected);
        assert_eq!(replayed.outcomes.len(), 2);
        for run in &replayed.runs {
            let owner = [first, second][run.pe];
            assert_eq!(run.slice, owner);
        }
        changes += 1;
        all.extend(replayed.runs);
    }
    assert_eq!(all.len(), changes * 100);
}

// promise: 29.8
#[test]
fn a_change_waits_for_what_pes_have() {
    let mut manager = Manager::new(settings(1));
    let rank = SliceRank::default();
    manager.admit(0, rank, heap(3, 10), FOREVER, 0).unwrap();
    let first = manager.next(0).unwrap();
    let second = manager.next(0).unwrap();
    manager
        .set_partition(Partition::spatial(vec![SliceSet::of(1)]))
        .unwrap();
    // Until the next interval, the old owners have the PE.
    manager.done(0, first.slot, first.unit, 10).unwrap();
    let third = manager.next(10).unwrap();
    manager.begin_interval(15);
    manager.admit(1, rank, heap(1, 10), FOREVER, 15).unwrap();
    manager.done(0, second.slot, second.unit, 20).unwrap();
    assert_eq!(manager.next(20), None);
    manager.done(0, third.slot, third.unit, 30).unwrap();
    assert_eq!(manager.switched_in(), 15);
    assert_eq!(
        manager.outcome().map(|end| (end.slice, end.verdict)),
        Some((0, Verdict::Done))
    );
    assert!(manager.next(30).is_some());
}

// promise: 29.9
#[test]
fn a_pe_that_reports_what_it_was_not_given_changes_nothing() {
    let mut manager = Manager::new(settings(2));
    let chain = Arc::new(Plan::of(graph(&[10, 10], &[(0, 1, 0)])));
    manager
        .admit(0, SliceRank::default(), chain, FOREVER, 0)
        .unwrap();
    let run = manager.next(0).unwrap();
    for (pe, slot, unit) in [
        (1 - run.pe, run.slot, run.unit),
        (run.pe, run.slot, 1),
        (run.pe, run.slot, u32::MAX),
        (run.pe, u16::MAX, run.unit),
        (usize::MAX, run.slot, run.unit),
    ] {
        assert!(manager.done(pe, slot, unit, 1).is_err());
        assert!(manager.failed(pe, slot, unit, 1).is_err());
    }
    assert_eq!(manager.next(1), None);
    manager.done(run.pe, run.slot, run.unit, 2).unwrap();
    assert!(manager.done(run.pe, run.slot, run.unit, 2).is_err());
    assert_eq!(manager.next(2).map(|run| run.unit), Some(1));
}

// promise: 29.9
#[test]
fn a_pe_that_does_not_come_back_is_given_up_and_replaced() {
    let mut manager = Manager::new(settings(2));
    let rank = SliceRank::default();
    manager.admit(0, rank, heap(4, 10), FOREVER, 0).unwrap();
    let runs: Vec<_> = std::iter::from_fn(|| manager.next(0)).collect();
    assert_eq!(runs.len(), 4);
    for run in runs.iter().filter(|run| run.pe == 0) {
        manager.done(0, run.slot, run.unit, 20).unwrap();
    }
    assert_eq!(manager.hung(1000), None);
    let hung = manager.hung(1001).unwrap();
    assert_eq!(hung.pe, 1);
    manager.lose(1, 1001);
    let outcome = manager.outcome().unwrap();
    assert!(
        matches!(outcome.verdict, Verdict::Hung { .. }),
        "{outcome:?}"
    );
    // It comes back after all: nobody listens.
    assert!(manager.done(1, hung.slot, hung.unit, 1002).is_err());
    manager.admit(0, rank, heap(2, 10), FOREVER, 1003).unwrap();
    assert!(std::iter::from_fn(|| manager.next(1003)).all(|run| run.pe == 0));
    manager.replaced(1, 1004);
    manager.admit(0, rank, heap(2, 10), FOREVER, 1004).unwrap();
    assert!(std::iter::from_fn(|| manager.next(1004)).any(|run| run.pe == 1));
}
