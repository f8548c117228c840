//! States on their way: to a new configuration, to another instance.

use super::flow::FlowId;
use super::packet::Packet;
use super::rule::{KeepState, TCP};
use super::state::{Count, Settings, State};
use super::states::States;
use crate::function::Nanos;
use crate::tcp::{Connection, Summary};
use crate::traffic::OnWire;
use nfluid_ring::flow::Buckets;
use serde::{Deserialize, Serialize};

/// A flow on its way to another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Carried {
    flow: FlowId,
    in_port: u8,
    replied: bool,
    tcp: Summary,
    /// Until it ends, unless another packet comes.
    left_ns: u64,
    forth: Count,
    back: Count,
}

impl Carried {
    /// Returns true if the flow is in one of these buckets.
    pub(super) fn is_of(&self, buckets: &Buckets) -> bool {
        self.flow.is_of(buckets)
    }
}

/// A flow as version 1 of the records has it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct CarriedV1 {
    flow: FlowId,
    in_port: u8,
    /// From the lowest bit: a reply, a FIN of the first packet's sender, a FIN of the other side, a RST.
    seen: u8,
    left_ns: u64,
    forth: Count,
    back: Count,
}

impl From<CarriedV1> for Carried {
    fn from(old: CarriedV1) -> Carried {
        let [replied, fin_forth, fin_back, reset] = [1, 2, 4, 8].map(|bit| old.seen & bit != 0);
        Carried {
            flow: old.flow,
            in_port: old.in_port,
            replied,
            tcp: Summary::of_old([true, replied], [fin_forth, fin_back], reset),
            left_ns: old.left_ns,
            forth: old.forth,
            back: old.back,
        }
    }
}

impl States {
    /// Takes over the states of `old` for which `rule_now` still gives a rule; the others end.
    pub fn adopt(&mut self, old: &States, rule_now: impl Fn(&Packet) -> Option<(u32, KeepState)>) {
        for state in old.iter() {
            let first = state.first();
            let Some((rule, keep)) = rule_now(&first) else {
                continue;
            };
            self.recreate(rule, keep, &first, |adopted, _| {
                adopted.expires = state.expires;
                adopted.replied = state.replied;
                adopted.tcp = state.tcp;
                adopted.forth = state.forth;
                adopted.back = state.back;
            });
        }
        self.set_counts(old.counts());
    }

    /// Makes the state of a flow whose first packet was another instance's, and has `fill` say what became of it.
    /// Returns false if a limit forbids it.
    fn recreate(
        &mut self,
        rule: u32,
        keep: KeepState,
        first: &Packet,
        fill: impl FnOnce(&mut State, &Settings),
    ) -> bool {
        // At time zero, so that the limits hold and nothing has expired yet.
        let slot = self
            .create(rule, keep, first, None, OnWire::default(), Nanos(0))
            .ok()
            .flatten();
        let Some((slot, state)) = slot.and_then(|slot| Some((slot, self.table.get_mut(slot)?)))
        else {
            return false;
        };
        fill(state, &self.settings);
        self.half_open.set(slot, state.is_half_open());
        true
    }

    /// Returns the record that another instance needs of each flow that is still under way.
    pub(super) fn export(&self, now: Nanos) -> impl Iterator<Item = Carried> + Clone {
        let live = self.iter().filter(move |state| state.expires > now);
        live.map(move |state: &State| Carried {
            flow: state.flow,
            in_port: state.in_port,
            replied: state.replied,
            tcp: state.tcp.summary(),
            left_ns: state.expires.since(now).0,
            forth: state.forth,
            back: state.back,
        })
    }

    /// Takes over a flow of another instance, if it has none of its own and `rule_now` gives a rule for it.
    ///
    /// # Errors
    /// The record is no flow.
    pub(super) fn import(
        &mut self,
        now: Nanos,
        carried: &Carried,
        rule_now: impl Fn(&Packet) -> Option<(u32, KeepState)>,
    ) -> Result<bool, &'static str> {
        let first = carried.flow.packet_from(carried.in_port);
        if carried.in_port > 1 || FlowId::of(&first) != Some(carried.flow) {
            return Err("a flow that no packet can be of");
        }
        let is_there = |state: &State| state.flow == carried.flow;
        let hash = carried.flow.hash(self.seed);
        if self.table.len() > 0 && self.table.find(hash, is_there).is_some() {
            return Ok(false);
        }
        let Some((rule, keep)) = rule_now(&first) else {
            return Ok(false);
        };
        let taken = self.recreate(rule, keep, &first, |state, settings| {
            state.replied = carried.replied;
            if state.flow.protocol() == TCP {
                state.tcp = Connection::restored(carried.tcp);
            }
            state.forth = carried.forth;
            state.back = carried.back;
            let most = Nanos::from_secs(u64::from(state.idle_s(&settings.timeouts))).0;
            state.expires = Nanos(now.0.saturating_add(carried.left_ns.min(most)));
        });
        Ok(taken)
    }
}
