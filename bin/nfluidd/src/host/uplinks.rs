//! The connection of uplinks with the rest of the host: the destinations of their frames, and the frames that the
//! instances behind them received.

use super::Host;
use nfluid_api::types::UplinkStatus;
use nfluid_control::apply::PlatformError;
use nfluid_control::model::PortRef;
use nfluid_control::spec::UplinkSpec;
use nfluid_control::wiring::Destination;

impl Host {
    pub(super) fn create_uplink(
        &mut self,
        name: &str,
        spec: &UplinkSpec,
    ) -> Result<(), PlatformError> {
        self.uplinks.create(name, spec)?;
        if self.uplinks.runs(name) {
            self.steer_again(name);
        }
        Ok(())
    }

    /// Starts ended processes of uplinks again, and restores the classification by their NICs.
    pub(super) fn watch_uplinks(&mut self) {
        if let Some(name) = self.uplinks.watch() {
            self.steer_again(&name);
        }
    }

    /// Makes the NIC of an uplink classify as the wiring says. The uplink's process was just started.
    fn steer_again(&mut self, name: &str) {
        let to = self.wires.get(&PortRef::Uplink(name.to_owned()));
        if to.is_none() || !self.uplinks.steers(name) {
            return;
        }
        let entries = self.wires.entries(&self.ports(), to);
        self.uplinks.steer_again(name, &entries);
    }

    /// Measures the cost of receiving at uplinks. Called a few times a second.
    pub(super) fn meter_uplinks(&mut self) {
        let delivered = self.uplinks.metered().map(|name| {
            let receivers = self.receivers_behind(&PortRef::Uplink(name.to_owned()));
            let receivers = receivers.into_iter().map(|receiver| {
                let frames = self.counters_of(&receiver).rx_packets;
                (receiver, frames)
            });
            (name.to_owned(), receivers.collect())
        });
        let delivered = delivered.collect();
        let instances = &self.instances;
        self.uplinks
            .measure(&delivered, |name| instances.contains(name));
    }

    /// The ports to which an uplink's frames go. On a switch, the number of frames that a port received is known, but not the
    /// senders.
    fn receivers_behind(&self, port: &PortRef) -> Vec<PortRef> {
        let Some(to) = self.wires.get(port) else {
            return Vec::new();
        };
        match to.switch() {
            Some(switch) => {
                let members = self.wires.on_switch(switch);
                members.filter(|member| *member != port).cloned().collect()
            }
            None => Destination::targets(to).cloned().collect(),
        }
    }

    /// Returns the state of all uplinks.
    pub fn uplink_statuses(&self) -> Vec<UplinkStatus> {
        let mut statuses = self.uplinks.statuses();
        for status in &mut statuses {
            let port = PortRef::Uplink(status.name.clone());
            status.destination = self.destination_of(&port);
            status.counters = self.counters_of(&port);
        }
        statuses
    }
}
