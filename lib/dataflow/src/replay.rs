//! Execution in virtual time: the same core manager, with costs instead of kernels.
//!
//! Two cores cannot show sixty-four PEs. A replay can, and its result depends on nothing but its input: what a trace has
//! recorded, or what a [`crate::costs::CostBook`] has measured. A figure from here is labelled "replayed".

use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::manager::{Dispatch, Manager, Outcome, Settings, SliceId, SliceRank};
use crate::message::GraphSlot;
use crate::plan::Plan;

/// A unit's run in virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The PE that ran the unit.
    pub pe: usize,
    /// The unit's graph.
    pub slot: GraphSlot,
    /// The unit's slice.
    pub slice: SliceId,
    /// The unit.
    pub unit: u32,
    /// Begin in nanoseconds.
    pub start: u64,
    /// End in nanoseconds.
    pub end: u64,
}

/// A graph that comes at a time.
pub struct Arrival {
    /// Nanoseconds; arrivals are in this order.
    pub at: u64,
    /// The graph begins an interval: windows count from it.
    pub begins_interval: bool,
    /// The slice.
    pub slice: SliceId,
    /// The slice's rank.
    pub rank: SliceRank,
    /// The graph.
    pub plan: Arc<Plan>,
    /// Nanoseconds from `at` to the deadline.
    pub deadline: u64,
}

/// What a replay did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// All runs, in the order of their starts.
    pub runs: Vec<Run>,
    /// All graphs, in the order of their ends.
    pub outcomes: Vec<Outcome>,
    /// Graphs that were refused.
    pub refused: usize,
}

/// Replays graphs on a manager with these settings. `cost` tells what a unit takes on a PE in nanoseconds, `message` what a
/// decision and its message take.
pub fn replay(
    settings: Settings,
    arrivals: &[Arrival],
    message: u64,
    cost: impl FnMut(&Plan, u32, usize) -> u64,
) -> Replayed {
    on(
        &mut Manager::new(settings),
        settings.pes,
        arrivals,
        message,
        cost,
    )
}

/// As [`replay`], on a manager that has been set up.
pub fn on(
    manager: &mut Manager,
    pes: usize,
    arrivals: &[Arrival],
    message: u64,
    mut cost: impl FnMut(&Plan, u32, usize) -> u64,
) -> Replayed {
    let mut replayed = Replayed::default();
    // What ends next: time, number of the run.
    let mut ends = BinaryHeap::new();
    let mut free = alloc::vec![0_u64; pes.max(1)];
    let mut coming = arrivals.iter().peekable();
    let mut now = 0;
    loop {
        while let Some(arrival) = coming.next_if(|arrival| arrival.at <= now) {
            if arrival.begins_interval {
                manager.begin_interval(now);
            }
            let deadline = now.saturating_add(arrival.deadline);
            let plan = arrival.plan.clone();
            let admitted = manager.admit(arrival.slice, arrival.rank, plan, deadline, now);
            replayed.refused += usize::from(admitted.is_err());
        }
        manager.expire(now);
        while let Some(Dispatch { pe, slot, unit }) = manager.next(now) {
            let Some(plan) = manager.plan(slot) else {
                break;
            };
            let start = free[pe].max(now).saturating_add(message);
            let end = start.saturating_add(cost(plan, unit, pe));
            free[pe] = end;
            let slice = manager.slices_on(pe).last().unwrap_or_default();
            ends.push(Reverse((end, replayed.runs.len())));
            replayed.runs.push(Run {
                pe,
                slot,
                slice,
                unit,
                start,
                end,
            });
        }
        while let Some(outcome) = manager.outcome() {
            replayed.outcomes.push(outcome);
        }
        let arrival = coming.peek().map(|arrival| arrival.at);
        let end = ends.peek().map(|Reverse((end, _))| *end);
        let wake = manager.wake_at(now).filter(|&wake| wake > now);
        let Some(next) = [arrival, end, wake].into_iter().flatten().min() else {
            return replayed;
        };
        now = next;
        while let Some(&Reverse((end, run))) = ends.peek() {
            if end > now {
                break;
            }
            ends.pop();
            let Run { pe, slot, unit, .. } = replayed.runs[run];
            // A PE of a replay reports what it was given, in its order.
            let _always_ok = manager.done(pe, slot, unit, now);
        }
    }
}
