//! Carries out the operations of `nfluid_wiring` on the switch.

use super::{Host, errors};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::members::front_of;
use nfluid_control::model::{PortRef, Switch as SwitchModel};
use nfluid_control::quantity::Mac;
use nfluid_control::wiring::Destination;
use nfluid_lifecycle::table::Instances;
use nfluid_switch::Destination as SwitchDestination;
use nfluid_switch::SwitchError;
use nfluid_uplinks::Uplinks;
use nfluid_uplinks::rules::rules;
use nfluid_wiring::{Change, Join, Operation, Ports, Wires, WiringError};
use std::collections::BTreeMap;
use std::ops::Range;

/// The ports and switches of this host.
pub(super) struct HostPorts<'a> {
    instances: &'a Instances,
    uplinks: &'a Uplinks,
    switches: &'a BTreeMap<String, (u32, SwitchModel)>,
}

impl Ports for HostPorts<'_> {
    fn queues(&self, port: &PortRef) -> Option<Range<u32>> {
        match port {
            PortRef::Uplink(name) => {
                let number = self.uplinks.port_id(name)?;
                Some(number..number + 1)
            }
            PortRef::Instance { instance, port } => {
                let mut ports = self.instances.get(instance)?.workload.ports().iter();
                let first = ports.find(|part| part.name == *port)?;
                Some(first.number..first.number + u32::from(first.queues))
            }
        }
    }

    fn names(&self, instance: &str) -> Option<Vec<&str>> {
        let ports = self.instances.get(instance)?.spec.ports.iter();
        Some(ports.map(|port| port.name.as_str()).collect())
    }

    fn address(&self, port: &PortRef) -> Option<Mac> {
        let PortRef::Instance { instance, port } = port else {
            return None;
        };
        let mut ports = self.instances.get(instance)?.spec.ports.iter();
        ports.find(|spec| spec.name == *port).map(|spec| spec.mac)
    }

    fn rings(&self, port: &PortRef) -> Option<&str> {
        let PortRef::Instance { instance, port } = port else {
            return None;
        };
        let running = self.instances.get(instance)?;
        let mut ports = running.spec.ports.iter();
        let index = ports.position(|spec| spec.name == *port)?;
        running.record().doorbells.get(index)?.as_deref()
    }

    fn is_member(&self, instance: &str) -> bool {
        front_of(instance).is_some() || self.instances.members.contains_key(instance)
    }

    fn steers(&self, uplink: &str) -> bool {
        self.uplinks.steers(uplink)
    }

    fn switch(&self, name: &str) -> Option<(u32, SwitchModel)> {
        self.switches.get(name).cloned()
    }
}

impl Host {
    /// Returns the ports and switches that exist.
    pub(super) fn ports(&self) -> HostPorts<'_> {
        HostPorts {
            instances: &self.instances,
            uplinks: &self.uplinks,
            switches: &self.switches,
        }
    }

    /// Returns the wiring, to be changed, with the ports and switches that exist.
    fn wires_and_ports(&mut self) -> (&mut Wires, HostPorts<'_>) {
        let ports = HostPorts {
            instances: &self.instances,
            uplinks: &self.uplinks,
            switches: &self.switches,
        };
        (&mut self.wires, ports)
    }

    /// Returns the platform-wide number of a port's first queue.
    pub(super) fn port_id(&self, port: &PortRef) -> Option<u32> {
        self.ports().number(port)
    }

    /// Returns the platform-wide numbers of a port's queues.
    pub(super) fn queue_ids(&self, port: &PortRef) -> Option<Range<u32>> {
        self.ports().queues(port)
    }

    /// Sends the frames of `port` to `to`, or nowhere.
    pub(super) fn connect(
        &mut self,
        port: &PortRef,
        to: Option<&Destination>,
    ) -> Result<(), PlatformError> {
        let (wires, ports) = self.wires_and_ports();
        let change = wires.connect(&ports, port, to).map_err(refused)?;
        self.carry_out(change)
    }

    /// Leads frames past an instance.
    pub(super) fn lead_past(&mut self, name: &str) -> Result<(), PlatformError> {
        let (wires, ports) = self.wires_and_ports();
        let change = wires.begin_bypass(&ports, name).map_err(refused)?;
        self.carry_out(change)
    }

    /// Leads frames to an instance again, as far as the switch and NICs accept the operations.
    ///
    /// # Errors
    /// Returns the error of the first operation that was refused.
    pub(super) fn lead_to(&mut self, name: &str) -> Result<(), PlatformError> {
        let (wires, ports) = self.wires_and_ports();
        let operations = wires.end_bypass(&ports, name);
        let done = operations.iter().map(|operation| self.operate(operation));
        // All operations are tried, also those after a refused one.
        let done: Vec<_> = done.collect();
        done.into_iter().collect()
    }

    /// Makes the switch, or all senders, wake instances.
    pub(super) fn choose(&self, doorbells: &[Operation]) {
        for operation in doorbells {
            if let Operation::Doorbell { port, by_switch } = operation {
                self.switch.set_kernel_doorbell(*port, *by_switch);
            }
        }
    }

    /// Sets how many addresses a switch learns on a port, and for how long.
    pub(super) fn limit_learning(&self, port: u32, model: &SwitchModel) {
        let ageing_s = (model.ageing.0 / 1000).clamp(1, u64::from(u32::MAX)) as u32;
        self.switch.set_fdb_limits(port, ageing_s, model.addresses);
    }

    /// Carries out a change. If an operation is refused, frames go as before.
    fn carry_out(&mut self, change: Change) -> Result<(), PlatformError> {
        let mut operations = change.operations.iter();
        let done = operations.try_for_each(|operation| self.operate(operation));
        if done.is_err() {
            let (wires, ports) = self.wires_and_ports();
            for operation in wires.undo(&ports, change) {
                if let Err(error) = self.operate(&operation) {
                    tracing::warn!(%error, "leading frames as before a change that was refused");
                }
            }
        }
        done
    }

    fn operate(&mut self, operation: &Operation) -> Result<(), PlatformError> {
        match operation {
            Operation::Steer {
                uplink,
                entries,
                before,
            } => return self.uplinks.steer(uplink, entries, before),
            Operation::Link { queues, to } => {
                let to = to.map_or(SwitchDestination::None, SwitchDestination::Link);
                let mut queues = queues.clone();
                queues.try_for_each(|queue| self.switch.connect(queue, to))
            }
            Operation::Join(join) => self.join(join),
            Operation::Classify { port, entries } => {
                let set = self.switch.set_rules(*port, &rules(entries));
                set.and_then(|()| self.switch.connect(*port, SwitchDestination::Classifier))
            }
            Operation::Doorbell { port, by_switch } => {
                self.switch.set_kernel_doorbell(*port, *by_switch);
                Ok(())
            }
        }
        .map_err(errors::switch_failed)
    }

    fn join(&self, join: &Join) -> Result<(), SwitchError> {
        self.switch.set_learning(join.port, join.learn);
        self.limit_learning(join.port, &join.limits);
        let switch = SwitchDestination::Switch(join.switch);
        self.switch.connect(join.port, switch)?;
        match join.address {
            Some(address) => {
                let pinned = self
                    .switch
                    .pin_address(join.switch, 0, address.0, join.port);
                pinned.map(drop)
            }
            None => Ok(()),
        }
    }
}

/// An error of the wiring, for the operator.
fn refused(error: WiringError) -> PlatformError {
    let kind = match &error {
        WiringError::AccessVlan(_) => {
            let refused = PlatformError::new(PlatformErrorKind::Unsupported, error.to_string());
            let remedy = "remove 'vlan' from the port; the nf 'vlan' pushes and pops tags";
            return refused.with_remedy(remedy);
        }
        WiringError::NoPort(_) | WiringError::NoSwitch(_) => PlatformErrorKind::NotFound,
    };
    PlatformError::new(kind, error.to_string())
}
