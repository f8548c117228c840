//! Chains as they are, for the API: the frames that have entered each chain, and the frames that wait in it. If an
//! instance has several members, all of them count, including members that are gone.

use super::Host;
use nfluid_api::types::{ChainStats, ChainStatus, PortState};
use nfluid_congestion::thread::Figures;
use nfluid_control::matching::MatchRule;
use nfluid_control::members::{front_of, member_names};
use nfluid_control::model::{Chain, PortRef};
use nfluid_lifecycle::record::Came;
use nfluid_switch::{DropReason, PortCounters};

impl Host {
    /// Returns the state of a chain.
    pub fn chain_status(&self, name: &str, chain: &Chain) -> ChainStatus {
        let words = |rules: &[MatchRule]| rules.iter().map(ToString::to_string).collect();
        let hops = chain.via.iter();
        let hops = hops.flat_map(|hop| [hop.input_port(), hop.output_port()]);
        let ends = [chain.from.clone(), chain.to.clone()];
        let mut ports = ends
            .into_iter()
            .chain(hops)
            .flat_map(|it| self.members_port(&it));
        let is_up = ports.all(|port| self.port_state(&port) == PortState::Up);
        ChainStatus {
            name: name.to_owned(),
            from: chain.from.to_string(),
            to: chain.to.to_string(),
            via: chain.via.iter().map(|hop| hop.instance.clone()).collect(),
            rules: words(&chain.rules),
            return_rules: words(&chain.effective_return_rules()),
            state: if is_up {
                PortState::Up
            } else {
                PortState::Down
            },
        }
    }

    /// Returns the counters of a chain: the frames that its first NF received (backwards: its last), and the frames
    /// that wait in the rings of the chain.
    pub fn chain_stats(&self, name: &str, chain: &Chain, found: &Figures) -> ChainStats {
        let came = |port: Option<PortRef>| port.map(|port| self.came_to(&port)).unwrap_or_default();
        let there = came(chain.via.first().map(|hop| hop.input_port()));
        let back = came(chain.via.last().map(|hop| hop.output_port()));
        let inputs = chain.via.iter().map(|hop| hop.input_port());
        let outputs = chain.via.iter().map(|hop| hop.output_port());
        ChainStats {
            name: name.to_owned(),
            forward_packets: there.received,
            return_packets: back.received,
            forward_waiting: self.waiting(inputs.chain([chain.to.clone()])),
            return_waiting: self.waiting(outputs.chain([chain.from.clone()])),
            forward: found.way(name, true, there.refused),
            back: found.way(name, false, back.refused),
        }
    }

    /// Returns a port, and the same port of the other members of its instance.
    fn members_port(&self, port: &PortRef) -> Vec<PortRef> {
        match port {
            PortRef::Instance { instance, port } => {
                let members = self.instances.members.get(instance).copied().unwrap_or(1);
                let members = member_names(instance, members);
                members
                    .map(|member| PortRef::instance(&member, port))
                    .collect()
            }
            PortRef::Uplink(_) => vec![port.clone()],
        }
    }

    fn waiting(&self, receivers: impl Iterator<Item = PortRef>) -> Option<u64> {
        let ports = receivers.flat_map(|receiver| self.members_port(&receiver));
        let rings = ports.map(|port| {
            let used = self
                .queue_ids(&port)?
                .map(|id| self.switch.rx_ring_used(id));
            used.map(|used| used.map(u64::from)).sum::<Option<u64>>()
        });
        rings.sum()
    }

    fn came_to(&self, port: &PortRef) -> Came {
        let mut all = Came::default();
        for port in self.members_port(port) {
            if let Some(ids) = self.queue_ids(&port) {
                all += came_by(&self.switch.counters_of(ids));
            }
        }
        if let PortRef::Instance { instance, port } = port
            && let Some(running) = self.instances.get(instance)
            && let Some(before) = running.record().came_to_members.get(port)
        {
            all += *before;
        }
        all
    }

    /// Returns the counts of the ports of a member that is about to be removed. Empty for an instance that is not a
    /// further member.
    pub(super) fn came_to_member(&self, name: &str) -> Vec<(String, Came)> {
        let Some(running) = self
            .instances
            .get(name)
            .filter(|_| front_of(name).is_some())
        else {
            return Vec::new();
        };
        let ports = running.spec.ports.iter().map(|port| {
            let ids = self.queue_ids(&PortRef::instance(name, &port.name));
            let came = ids.map(|ids| came_by(&self.switch.counters_of(ids)));
            (port.name.clone(), came.unwrap_or_default())
        });
        ports.collect()
    }

    /// Adds the counts of a removed member to the first member, so that the counters of chains keep them.
    pub(super) fn add_to_first_member(&mut self, member: &str, came: Vec<(String, Came)>) {
        let Some(first) = front_of(member).filter(|_| !came.is_empty()) else {
            return;
        };
        let Some(running) = self.instances.get_mut(first) else {
            return;
        };
        let record = running.workload.record_mut();
        for (port, came) in came {
            *record.came_to_members.entry(port).or_default() += came;
        }
        if let Err(error) = running.workload.save_record() {
            tracing::warn!(instance = first, %error, "writing down what came to a member that has gone");
        }
    }
}

/// Returns the frames that have come to a port, as the switch has counted them.
fn came_by(counters: &PortCounters) -> Came {
    Came {
        received: counters.rx_frames,
        refused: counters.dropped(DropReason::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_added_up_and_never_wraps() {
        let mut all = Came::default();
        for (received, refused) in [(3, 1), (u64::MAX, 0), (1, u64::MAX)] {
            all += Came { received, refused };
        }
        assert_eq!((all.received, all.refused), (u64::MAX, u64::MAX));
    }
}
