//! The core manager: holds graphs of many slices, gives ready units to PEs, and takes completions.
//!
//! The manager knows no clock, thread or queue: whoever drives it hands in the time and carries out what it decides. The
//! engine on threads drives it with a real clock, [`crate::replay`] with a virtual one. Times are nanoseconds on the
//! driver's clock.
//!
//! - A PE has at most [`Settings::ahead`] units: the one that runs and those queued behind it, so that it does not wait for
//!   the next message. No queue can fill up, and a bounded queue can cause no deadlock (Parks' rule has nothing to do).
//! - A graph that is late or has failed is dropped whole: what has not started never does, and one outcome tells of it.
//! - A slice's unit starts on a PE only if the slice owns the PE then, until the unit's expected end.

mod admission;
mod losses;
mod partition;
mod ready;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub use admission::Refusal;
pub use partition::{Partition, PartitionError, SLICES_MAX, SliceId, SliceSet, Window};

use crate::message::GraphSlot;
use crate::plan::Plan;
use ready::Ready;

/// Most graphs at once.
pub const GRAPHS_MAX: usize = 1024;

/// Which PE a ready unit goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// The PE that is free first. Moving data counts as nothing.
    #[default]
    List,
    /// The PE on which the unit starts first, with the time to move its inputs there (earliest time first, for the ready
    /// unit of the highest static level).
    EarliestStart,
}

/// Settings of a manager.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Number of PEs, at least one.
    pub pes: usize,
    /// Which PE a ready unit goes to.
    pub policy: Policy,
    /// Units that a PE has at once: one that runs, and those that wait behind it.
    pub ahead: usize,
    /// A unit that runs this many nanoseconds has hung, and its PE is lost.
    pub hang: u64,
}

/// A slice as the manager sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SliceRank {
    /// Slices of a higher rank are served first.
    pub rank: u8,
}

/// A unit for a PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    /// Index of the PE.
    pub pe: usize,
    /// The graph.
    pub slot: GraphSlot,
    /// The unit.
    pub unit: u32,
}

/// How a graph ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All tasks have run, before the deadline.
    Done,
    /// The deadline passed; the graph was dropped whole.
    Late,
    /// A task failed; the graph was dropped whole.
    Failed {
        /// The unit of the task that failed first.
        unit: u32,
    },
    /// A PE did not come back from one of the graph's units, and is lost.
    Hung {
        /// The unit.
        unit: u32,
    },
}

/// The end of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The graph's slot, free again.
    pub slot: GraphSlot,
    /// The graph's slice.
    pub slice: SliceId,
    /// How the graph ended.
    pub verdict: Verdict,
    /// Nanoseconds from the graph's admission to its end.
    pub makespan: u64,
    /// Units that had run.
    pub ran: u32,
}

/// What a PE has sent is no answer to what it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("PE {pe} reports a unit that it was not given")]
pub struct Nonsense {
    /// The PE.
    pub pe: usize,
}

/// A graph under way.
struct Active {
    plan: Arc<Plan>,
    slice: SliceId,
    rank: u8,
    admitted: u64,
    deadline: u64,
    ready: Ready,
    /// Missing inputs of each unit.
    missing: Vec<u32>,
    /// The PE that ran each unit, for the policy that counts moves.
    ran_on: Vec<u16>,
    /// Expected cost of all units that have not run.
    left: u64,
    /// Units that PEs have.
    outstanding: u32,
    ran: u32,
    /// The graph is dropped as soon as no PE has a unit of it.
    dropped: Option<Verdict>,
}

/// A unit that a PE has.
#[derive(Debug, Clone, Copy)]
struct Given {
    slot: GraphSlot,
    unit: u32,
    slice: SliceId,
    cost: u64,
}

#[derive(Default)]
struct Pe {
    given: VecDeque<Given>,
    /// The start of the first unit of `given`, as far as the manager can tell.
    since: u64,
    /// Expected end of everything given.
    free: u64,
    lost: bool,
}

/// The core manager.
pub struct Manager {
    settings: Settings,
    pes: Vec<Pe>,
    graphs: Vec<Option<Active>>,
    /// Slots of graphs under way, the next to serve first.
    queue: Vec<GraphSlot>,
    partition: Partition,
    /// The partition that holds once no PE has a unit.
    coming: Option<(Partition, u64)>,
    interval: u64,
    outcomes: VecDeque<Outcome>,
    /// Nanoseconds that the last change of the partition waited for PEs.
    switched_in: u64,
    /// PE time that units took in each bounded window of this interval.
    busy: Vec<u64>,
    /// PE time of bounded windows of all intervals before that nobody used.
    unused: u64,
}

impl Manager {
    /// Returns a manager without graphs; all slices share all PEs.
    pub fn new(settings: Settings) -> Self {
        let settings = Settings {
            pes: settings.pes.clamp(1, usize::from(u16::MAX)),
            ahead: settings.ahead.max(1),
            ..settings
        };
        Self {
            pes: (0..settings.pes).map(|_| Pe::default()).collect(),
            graphs: Vec::new(),
            queue: Vec::new(),
            partition: Partition::shared(settings.pes),
            coming: None,
            interval: 0,
            outcomes: VecDeque::new(),
            switched_in: 0,
            busy: Vec::new(),
            unused: 0,
            settings,
        }
    }

    /// Begins an interval: windows count from here. A change of the partition that was asked for begins now: PEs get nothing
    /// new until each has ended what it has, so that no unit ever runs on a PE that its slice no longer owns.
    pub fn begin_interval(&mut self, now: u64) {
        for (window, busy) in self.partition.windows().iter().zip(self.busy.drain(..)) {
            if window.end <= now.saturating_sub(self.interval) {
                let unused = window.owned().saturating_sub(busy);
                self.unused = self.unused.saturating_add(unused);
            }
        }
        self.interval = now;
        if let Some((_, asked)) = &mut self.coming {
            *asked = now;
        }
        self.switch_if_idle(now);
    }

    /// Changes the owners of PEs, from the next interval on.
    ///
    /// # Errors
    /// [`PartitionError::Pes`].
    pub fn set_partition(&mut self, partition: Partition) -> Result<(), PartitionError> {
        let pes = self.settings.pes;
        let wrong = |window: &Window| window.owners.len() != pes;
        if let Some(window) = partition.windows().iter().position(wrong) {
            let named = partition.windows()[window].owners.len();
            return Err(PartitionError::Pes { window, named, pes });
        }
        self.coming = Some((partition, u64::MAX));
        Ok(())
    }

    /// PE nanoseconds of windows in which their owners ran nothing, in all intervals that have ended. Only windows with an
    /// end count, and only intervals in which something ran.
    pub fn unused(&self) -> u64 {
        self.unused
    }

    /// Nanoseconds that the last change of the partition waited for PEs to end what they had.
    pub fn switched_in(&self) -> u64 {
        self.switched_in
    }

    /// Decides one unit for one PE. `None` until a completion, a graph, or the time at [`Self::wake_at`].
    #[inline]
    pub fn next(&mut self, now: u64) -> Option<Dispatch> {
        // As soon as a unit was given, mostly none is ready.
        let first = self.first_ready()?;
        if self.waits_for_partition() {
            return None;
        }
        let mut refused = 0_u64;
        loop {
            let pe = self.first_free(refused, now)?;
            let start = self.pes[pe].free.max(now);
            if let Some(at) = self.graph_for(first, pe, start) {
                return self.dispatch(at, pe, now);
            }
            // PEs from 64 on are not tried again in this call.
            if pe >= 63 {
                return None;
            }
            refused |= 1 << pe;
        }
    }

    /// The place in the queue of the first graph that has a ready unit.
    fn first_ready(&self) -> Option<usize> {
        self.queue.iter().position(|&slot| {
            let graph = self.graphs[usize::from(slot)].as_ref();
            graph.is_some_and(|graph| graph.dropped.is_none() && !graph.ready.is_empty())
        })
    }

    /// The PE with room that is free first; the lowest among equals.
    fn first_free(&self, refused: u64, now: u64) -> Option<usize> {
        let ahead = self.settings.ahead;
        let mut first = None;
        for (index, pe) in self.pes.iter().enumerate() {
            let is_refused = index <= 63 && refused & (1 << index) != 0;
            if pe.lost || is_refused || pe.given.len() >= ahead {
                continue;
            }
            let free = pe.free.max(now);
            if first.is_none_or(|(_, before)| free < before) {
                first = Some((index, free));
            }
        }
        first.map(|(index, _)| index)
    }

    /// The place in the queue, from `from` on, of the first graph that has a ready unit which may start on the PE.
    fn graph_for(&self, from: usize, pe: usize, start: u64) -> Option<usize> {
        (from..self.queue.len()).find(|&at| {
            let Some(graph) = &self.graphs[usize::from(self.queue[at])] else {
                return false;
            };
            let Some(unit) = graph.ready.first() else {
                return false;
            };
            let cost = graph.plan.units().task(unit).cost;
            graph.dropped.is_none() && self.may_start(graph.slice, pe, start, cost)
        })
    }

    fn may_start(&self, slice: SliceId, pe: usize, start: u64, cost: u64) -> bool {
        let start = start.saturating_sub(self.interval);
        self.partition
            .permits(slice, pe, start, start.saturating_add(cost))
    }

    fn dispatch(&mut self, at: usize, pe: usize, now: u64) -> Option<Dispatch> {
        let slot = self.queue[at];
        let pe = match self.settings.policy {
            Policy::List => pe,
            Policy::EarliestStart => self.earliest(slot, now).unwrap_or(pe),
        };
        let graph = self.graphs[usize::from(slot)].as_mut()?;
        let unit = graph.ready.take()?;
        let cost = graph.plan.units().task(unit).cost;
        graph.outstanding += 1;
        let given = Given {
            slot,
            unit,
            slice: graph.slice,
            cost,
        };
        let pe_state = &mut self.pes[pe];
        if pe_state.given.is_empty() {
            pe_state.since = now;
        }
        pe_state.given.push_back(given);
        pe_state.free = pe_state.free.max(now).saturating_add(cost);
        Some(Dispatch { pe, slot, unit })
    }

    /// The PE on which the graph's first ready unit starts first, with the moves of its inputs.
    fn earliest(&self, slot: GraphSlot, now: u64) -> Option<usize> {
        let graph = self.graphs[usize::from(slot)].as_ref()?;
        let unit = graph.ready.first()?;
        let units = graph.plan.units();
        let cost = units.task(unit).cost;
        let free = self
            .pes
            .iter()
            .enumerate()
            .filter(|(_, pe)| !pe.lost && pe.given.len() < self.settings.ahead);
        let starts = free.filter_map(|(index, pe)| {
            let moves = units.predecessors(unit).iter().map(|link| {
                let ran_on = usize::from(graph.ran_on[link.task as usize]);
                if ran_on == index { 0 } else { link.cost }
            });
            let arrival = now.saturating_add(moves.max().unwrap_or(0));
            let start = pe.free.max(arrival);
            self.may_start(graph.slice, index, start, cost)
                .then_some((start, index))
        });
        starts.min().map(|(_, pe)| pe)
    }

    /// Takes the completion of a unit. PEs run what they are given in its order: any other report is nonsense, and changes
    /// nothing.
    ///
    /// # Errors
    /// [`Nonsense`].
    #[inline]
    pub fn done(
        &mut self,
        pe: usize,
        slot: GraphSlot,
        unit: u32,
        now: u64,
    ) -> Result<(), Nonsense> {
        self.ended(pe, slot, unit, now)?;
        let Some(graph) = &mut self.graphs[usize::from(slot)] else {
            return Ok(());
        };
        graph.ran += 1;
        graph.left = graph
            .left
            .saturating_sub(graph.plan.units().task(unit).cost);
        if let Some(ran_on) = graph.ran_on.get_mut(unit as usize) {
            *ran_on = pe as u16;
        }
        if graph.dropped.is_none() {
            for link in graph.plan.units().successors(unit) {
                let missing = &mut graph.missing[link.task as usize];
                *missing -= 1;
                if *missing == 0 {
                    graph.ready.add(link.task, graph.plan.bucket(link.task));
                }
            }
        }
        self.settle(slot, now);
        Ok(())
    }

    /// Takes the failure of a unit: its graph is dropped.
    ///
    /// # Errors
    /// [`Nonsense`], as [`Self::done`].
    pub fn failed(
        &mut self,
        pe: usize,
        slot: GraphSlot,
        unit: u32,
        now: u64,
    ) -> Result<(), Nonsense> {
        self.ended(pe, slot, unit, now)?;
        self.drop_graph(slot, Verdict::Failed { unit }, now);
        Ok(())
    }

    fn ended(&mut self, pe: usize, slot: GraphSlot, unit: u32, now: u64) -> Result<(), Nonsense> {
        let state = self.pes.get_mut(pe).filter(|state| !state.lost);
        let state = state.ok_or(Nonsense { pe })?;
        match state.given.front() {
            Some(given) if (given.slot, given.unit) == (slot, unit) => {}
            _ => return Err(Nonsense { pe }),
        }
        state.given.pop_front();
        let (since, took) = (state.since, now.saturating_sub(state.since));
        state.since = now;
        let waiting = state.given.iter().map(|given| given.cost);
        state.free = waiting.fold(now, u64::saturating_add);
        if let Some(graph) = &mut self.graphs[usize::from(slot)] {
            graph.outstanding -= 1;
        }
        let in_interval = since.saturating_sub(self.interval);
        if let Some(window) = self.partition.bounded_window(in_interval) {
            self.busy.resize(self.partition.windows().len(), 0);
            self.busy[window] = self.busy[window].saturating_add(took);
        }
        self.switch_if_idle(now);
        Ok(())
    }

    fn drop_graph(&mut self, slot: GraphSlot, verdict: Verdict, now: u64) {
        if let Some(graph) = &mut self.graphs[usize::from(slot)] {
            graph.dropped.get_or_insert(verdict);
        }
        self.settle(slot, now);
    }

    /// Ends a graph that has nothing left to do.
    #[inline]
    fn settle(&mut self, slot: GraphSlot, now: u64) {
        let place = &mut self.graphs[usize::from(slot)];
        let Some(graph) = place else { return };
        if graph.outstanding > 0 {
            return;
        }
        let is_done = graph.ran as usize == graph.plan.units().len();
        let verdict = match graph.dropped {
            Some(verdict) => verdict,
            // Whoever drives the manager may look at deadlines later than a graph ends.
            None if is_done && now > graph.deadline => Verdict::Late,
            None if is_done => Verdict::Done,
            None => return,
        };
        self.outcomes.push_back(Outcome {
            slot,
            slice: graph.slice,
            verdict,
            makespan: now.saturating_sub(graph.admitted),
            ran: graph.ran,
        });
        *place = None;
        self.queue.retain(|&other| other != slot);
    }

    /// The next graph that has ended. Its slot may be given to another graph from now on.
    #[inline]
    pub fn outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// Returns true if no graph is under way, and no end of one is still to be told: whoever drives the manager may sleep.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.outcomes.is_empty()
    }

    /// The next time at which something may change without a completion: a window begins, or a deadline passes.
    pub fn wake_at(&self, now: u64) -> Option<u64> {
        let graphs = self.queue.iter().filter_map(|&slot| {
            let graph = self.graphs[usize::from(slot)].as_ref()?;
            graph.dropped.is_none().then_some(graph.deadline)
        });
        let deadline = graphs.min()?;
        let in_interval = now.saturating_sub(self.interval);
        let window = self.partition.next_begin(in_interval);
        let window = window.map(|begin| self.interval.saturating_add(begin));
        Some(window.map_or(deadline, |window| window.min(deadline)))
    }

    /// The plan of a graph under way.
    pub fn plan(&self, slot: GraphSlot) -> Option<&Arc<Plan>> {
        let graph = self.graphs.get(usize::from(slot))?.as_ref()?;
        Some(&graph.plan)
    }

    /// Slices whose units a PE has.
    pub fn slices_on(&self, pe: usize) -> impl Iterator<Item = SliceId> {
        let given = self.pes.get(pe).map(|pe| pe.given.iter());
        given.into_iter().flatten().map(|given| given.slice)
    }

    fn waits_for_partition(&self) -> bool {
        matches!(self.coming, Some((_, asked)) if asked != u64::MAX)
    }

    fn switch_if_idle(&mut self, now: u64) {
        let is_idle = || self.pes.iter().all(|pe| pe.given.is_empty());
        if self.waits_for_partition()
            && is_idle()
            && let Some((partition, asked)) = self.coming.take()
        {
            self.switched_in = now.saturating_sub(asked);
            self.partition = partition;
            self.busy.clear();
        }
    }
}
