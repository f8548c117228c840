//! Graphs that are dropped, and PEs that are given up.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Dispatch, Given, Manager, Pe, SliceId, Verdict};
use crate::message::GraphSlot;

impl Manager {
    /// Drops graphs whose deadline has passed.
    pub fn expire(&mut self, now: u64) {
        for at in (0..self.queue.len()).rev() {
            let slot = self.queue[at];
            let graph = self.graphs[usize::from(slot)].as_ref();
            if graph.is_some_and(|graph| graph.deadline <= now && graph.dropped.is_none()) {
                self.drop_graph(slot, Verdict::Late, now);
            }
        }
    }

    /// Drops everything of a slice, for its removal.
    pub fn flush(&mut self, slice: SliceId, now: u64) {
        for slot in self.queue.clone() {
            let graph = self.graphs[usize::from(slot)].as_ref();
            if graph.is_some_and(|graph| graph.slice == slice) {
                self.drop_graph(slot, Verdict::Late, now);
            }
        }
    }

    /// The PE whose unit has hung, with the unit.
    pub fn hung(&self, now: u64) -> Option<Dispatch> {
        self.pes.iter().enumerate().find_map(|(pe, state)| {
            let given = state.given.front().filter(|_| !state.lost)?;
            let runs = now.saturating_sub(state.since);
            (runs > self.settings.hang).then_some(Dispatch {
                pe,
                slot: given.slot,
                unit: given.unit,
            })
        })
    }

    /// Gives a PE up: it gets nothing more, graphs of the units that it has are dropped, and what it still reports is
    /// nonsense. [`Self::replaced`] takes a new PE in its place.
    pub fn lose(&mut self, pe: usize, now: u64) {
        if let Some(state) = self.pes.get_mut(pe) {
            state.lost = true;
        }
        let _slots = self.lose_units(pe, |_| true, now);
    }

    /// Gives a slice's units on a PE up, whose graphs are dropped. The PE goes on. Returns the slot of each unit's graph.
    pub fn lose_slice(&mut self, pe: usize, slice: SliceId, now: u64) -> Vec<GraphSlot> {
        self.lose_units(pe, |given| given.slice == slice, now)
    }

    fn lose_units(
        &mut self,
        pe: usize,
        is_lost: impl Fn(&Given) -> bool,
        now: u64,
    ) -> Vec<GraphSlot> {
        let Some(state) = self.pes.get_mut(pe) else {
            return Vec::new();
        };
        if state.given.front().is_some_and(&is_lost) {
            state.since = now;
        }
        let given = core::mem::take(&mut state.given).into_iter();
        let (lost, kept): (VecDeque<_>, VecDeque<_>) = given.partition(is_lost);
        state.free = kept.iter().map(|it| it.cost).fold(now, u64::saturating_add);
        state.given = kept;
        let slots = lost.iter().map(|given| given.slot).collect();
        for given in lost {
            if let Some(graph) = &mut self.graphs[usize::from(given.slot)] {
                graph.outstanding -= 1;
            }
            self.drop_graph(given.slot, Verdict::Hung { unit: given.unit }, now);
        }
        self.switch_if_idle(now);
        slots
    }

    /// A new PE is in the place of one that was given up.
    pub fn replaced(&mut self, pe: usize, now: u64) {
        if let Some(state) = self.pes.get_mut(pe) {
            *state = Pe {
                free: now,
                since: now,
                ..Pe::default()
            };
        }
    }

    /// Drops every graph: no PE is left to run them.
    pub fn lose_all(&mut self, now: u64) {
        for slot in self.queue.clone() {
            self.drop_graph(slot, Verdict::Hung { unit: 0 }, now);
        }
    }
}
