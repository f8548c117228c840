//! Doorbells: receivers that the switch wakes, and receivers that their senders wake.
//!
//! An instance is given the doorbells of its link peers when it starts. A sender that has its receiver's doorbell rings it itself,
//! after a whole batch; for all other senders the switch does that, for each call. So the switch rings at a port unless every
//! sender can.

use crate::operation::Operation;
use crate::ports::Ports;
use crate::wires::Wires;
use nfluid_control::model::PortRef;
use nfluid_control::wiring::Destination;

impl Wires {
    /// Chooses the doorbells of the owners of these ports, and of the ports at which their frames arrive past a
    /// bypassed owner.
    pub(crate) fn doorbells<'a>(
        &self,
        ports: &dyn Ports,
        receivers: impl Iterator<Item = &'a PortRef>,
    ) -> Vec<Operation> {
        let mut operations = Vec::new();
        for receiver in receivers {
            operations.extend(self.doorbell(ports, receiver));
            if let Some(end) = self.past_bypassed(ports, receiver)
                && end != *receiver
            {
                operations.extend(self.doorbell(ports, &end));
            }
        }
        operations
    }

    /// Chooses the doorbell of the owner of a port: the switch wakes it, or its senders do.
    fn doorbell(&self, ports: &dyn Ports, receiver: &PortRef) -> Option<Operation> {
        let (queues, own) = (ports.queues(receiver)?, receiver.doorbell());
        if queues.len() > 1 {
            // Such a port is made so that the switch rings.
            return None;
        }
        let mut senders = self.senders.get(receiver).into_iter().flatten();
        let all_ring = senders.all(|from| ports.rings(from) == Some(&own))
            && !self.is_behind_bypassed(receiver);
        // The switch divides the flows, so it rings: a sender has the doorbell of the first member at most.
        Some(Operation::Doorbell {
            port: queues.start,
            by_switch: !all_ring || receiver.owner().is_some_and(|owner| ports.is_member(owner)),
        })
    }

    /// Chooses the doorbells of an instance, for all its ports. To be called when the senders to the instance have
    /// changed.
    pub fn own_doorbells(&self, ports: &dyn Ports, instance: &str) -> Vec<Operation> {
        let names = ports.names(instance).unwrap_or_default().into_iter();
        let own: Vec<PortRef> = names
            .map(|name| PortRef::instance(instance, name))
            .collect();
        let operations = own.iter().filter_map(|port| self.doorbell(ports, port));
        operations.collect()
    }

    /// Chooses the doorbells of an instance's peers. To be called when the instance was given other doorbells than
    /// before.
    pub fn doorbells_of_peers(&self, ports: &dyn Ports, instance: &str) -> Vec<Operation> {
        let own = self.destinations.iter();
        let own = own.filter(|(port, _)| port.owner() == Some(instance));
        let ends = own.flat_map(|(_, to)| Destination::targets(to));
        let operations = ends.filter_map(|end| self.doorbell(ports, end));
        operations.collect()
    }
}
