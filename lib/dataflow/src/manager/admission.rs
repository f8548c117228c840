//! Which graphs the core manager takes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::ready::Ready;
use super::{Active, GRAPHS_MAX, Manager, Policy, SliceId, SliceRank};
use crate::message::GraphSlot;
use crate::plan::Plan;

/// Why a graph is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The engine has as many graphs as it can hold.
    #[error("{GRAPHS_MAX} graphs are under way; PEs are slower than graphs come")]
    Full,
    /// The slice has no PE.
    #[error("slice {0} owns no PE in any window")]
    NoPe(SliceId),
    /// The longest path takes longer than the deadline allows.
    #[error("the longest path takes {path} ns, and the deadline is {left} ns away")]
    CriticalPath {
        /// Length of the longest path.
        path: u64,
        /// Time until the deadline.
        left: u64,
    },
    /// All tasks together take more than the slice's share until the deadline.
    #[error(
        "the tasks and those of the slice's graphs under way take {work} ns, and the slice has {area} ns of PE time \
         until the deadline"
    )]
    Area {
        /// Sum of all tasks, with those of graphs under way.
        work: u64,
        /// PE time of the slice.
        area: u64,
    },
    /// One unit is longer than any of the slice's windows.
    #[error("a unit takes {unit} ns, and the slice's longest window {window} ns")]
    Window {
        /// The longest unit.
        unit: u64,
        /// The longest window.
        window: u64,
    },
}

impl Manager {
    /// Takes a graph; `deadline` is a time.
    ///
    /// # Errors
    /// The graph cannot be done until its deadline even if nothing else runs, or there is no room.
    pub fn admit(
        &mut self,
        slice: SliceId,
        rank: SliceRank,
        plan: Arc<Plan>,
        deadline: u64,
        now: u64,
    ) -> Result<GraphSlot, Refusal> {
        self.admissible(slice, &plan, deadline, now)?;
        // The driver takes an end for that of the graph that it has given the slot.
        let is_told = |slot: usize| self.outcomes.iter().all(|it| usize::from(it.slot) != slot);
        let mut free = self.graphs.iter().enumerate();
        let slot = match free.find(|(slot, graph)| graph.is_none() && is_told(*slot)) {
            Some((slot, _)) => slot,
            None if self.graphs.len() < GRAPHS_MAX => {
                self.graphs.push(None);
                self.graphs.len() - 1
            }
            None => return Err(Refusal::Full),
        };
        let units = plan.units();
        let ids = 0..units.len() as u32;
        let missing: Vec<u32> = ids
            .map(|unit| units.predecessors(unit).len() as u32)
            .collect();
        let mut ready = Ready::new(units.len());
        for unit in (0..units.len() as u32).filter(|&unit| missing[unit as usize] == 0) {
            ready.add(unit, plan.bucket(unit));
        }
        let moves_count = self.settings.policy == Policy::EarliestStart;
        self.graphs[slot] = Some(Active {
            slice,
            rank: rank.rank,
            admitted: now,
            deadline,
            ready,
            missing,
            ran_on: if moves_count {
                alloc::vec![0; units.len()]
            } else {
                Vec::new()
            },
            left: plan.units().work(),
            outstanding: 0,
            ran: 0,
            dropped: None,
            plan,
        });
        let slot = slot as GraphSlot;
        let order = |slot: &GraphSlot| {
            let graph = self.graphs[usize::from(*slot)].as_ref();
            graph.map(|graph| (u8::MAX - graph.rank, graph.deadline))
        };
        let (key, mut at) = (order(&slot), 0);
        while at < self.queue.len() && order(&self.queue[at]) <= key {
            at += 1;
        }
        self.queue.insert(at, slot);
        Ok(slot)
    }

    /// Checks area and critical path: necessary, never sufficient, conditions.
    fn admissible(
        &self,
        slice: SliceId,
        plan: &Plan,
        deadline: u64,
        now: u64,
    ) -> Result<(), Refusal> {
        let partition = self
            .coming
            .as_ref()
            .map_or(&self.partition, |(coming, _)| coming);
        let [from, until] = [now, deadline].map(|time| time.saturating_sub(self.interval));
        if partition.longest(slice, 0, u64::MAX) == 0 {
            return Err(Refusal::NoPe(slice));
        }
        let left = deadline.saturating_sub(now);
        let path = plan.critical_path();
        if path > left {
            return Err(Refusal::CriticalPath { path, left });
        }
        // What the slice has under way until then takes its time, too.
        let before = self.graphs.iter().flatten();
        let before = before.filter(|graph| graph.slice == slice && graph.deadline <= deadline);
        let before = before.map(|graph| graph.left).fold(0, u64::saturating_add);
        let work = plan.units().work().saturating_add(before);
        let area = partition.area(slice, from, until);
        if work > area {
            return Err(Refusal::Area { work, area });
        }
        let costs = plan.units().tasks().iter().map(|unit| unit.cost);
        let unit = costs.max().unwrap_or(0);
        let window = partition.longest(slice, from, until);
        if unit > window {
            return Err(Refusal::Window { unit, window });
        }
        Ok(())
    }
}
