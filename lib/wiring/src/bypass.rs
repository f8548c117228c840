//! Instances that frames bypass: such an instance is paused, and frames that come by one of its two ports go on by
//! the other.

use crate::operation::Operation;
use crate::ports::Ports;
use crate::wires::{Change, Wires, WiringError};
use nfluid_control::model::PortRef;
use nfluid_control::wiring::Destination;

/// Instances in a row that frames are led past: no chain is longer.
const BYPASSED_MAX: usize = 64;

/// Reason for which frames cannot bypass an instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BypassError {
    /// The instance does not exist.
    #[error("there is no instance {0}")]
    NoInstance(String),
    /// The instance has not two ports with one queue each.
    #[error(
        "frames cannot be led past instance {instance}: it has {ports} ports, and what comes by one of two goes on by the \
         other, one queue each"
    )]
    Ports {
        /// The instance.
        instance: String,
        /// The number of its ports.
        ports: usize,
    },
    /// A port is on a switch.
    #[error(
        "frames cannot be led past instance {instance}: port {port} is on switch {switch}, whose other ports would be on \
         another"
    )]
    OnSwitch {
        /// The instance.
        instance: String,
        /// The port.
        port: PortRef,
        /// The switch.
        switch: String,
    },
    /// A port's frames go nowhere, or to one of several ports.
    #[error("frames cannot be led past instance {instance}: port {port} leads to no single port")]
    NoSinglePort {
        /// The instance.
        instance: String,
        /// The port.
        port: PortRef,
    },
}

impl Wires {
    /// Checks that frames can be led past an instance: it has two ports, one queue each, and both lead to one port.
    ///
    /// # Errors
    /// [`BypassError`].
    pub fn check_bypass(&self, ports: &dyn Ports, instance: &str) -> Result<(), BypassError> {
        let names = ports.names(instance);
        let names = names.ok_or_else(|| BypassError::NoInstance(instance.to_owned()))?;
        let own = names.iter().map(|name| PortRef::instance(instance, *name));
        let own: Vec<PortRef> = own.collect();
        let has_one_queue = |port| ports.queues(port).is_some_and(|queues| queues.len() == 1);
        if own.len() != 2 || !own.iter().all(has_one_queue) {
            return Err(BypassError::Ports {
                instance: instance.to_owned(),
                ports: own.len(),
            });
        }
        for port in own {
            let instance = instance.to_owned();
            match self.get(&port) {
                Some(Destination::Port(_)) => {}
                Some(Destination::Switch(place)) => {
                    let switch = place.switch.clone();
                    return Err(BypassError::OnSwitch {
                        instance,
                        port,
                        switch,
                    });
                }
                _ => return Err(BypassError::NoSinglePort { instance, port }),
            }
        }
        Ok(())
    }

    /// Leads frames past an instance. An instance that an earlier daemon has paused may have no wires yet: these lead past it
    /// from the start then.
    ///
    /// # Errors
    /// [`WiringError`]; the wiring is as before.
    pub fn begin_bypass(
        &mut self,
        ports: &dyn Ports,
        instance: &str,
    ) -> Result<Change, WiringError> {
        self.change(ports, |wires, change| {
            if wires.bypassed.insert(instance.to_owned()) {
                change.bypass = Some(instance.to_owned());
            }
            wires.connect_around(ports, instance, change)
        })
    }

    /// Leads frames to an instance again. The instance runs, so this is not undone: operations that the data plane refuses, and
    /// ports that are not there, are left out, and the next change of their wires mends them.
    pub fn end_bypass(&mut self, ports: &dyn Ports, instance: &str) -> Vec<Operation> {
        self.bypassed.remove(instance);
        let mut change = Change::default();
        for (port, to) in self.senders_around(ports, instance) {
            // A port at either end is not there: no frames are led.
            let _missing = self.connect_one(ports, &port, Some(&to), &mut change);
        }
        change
            .operations
            .extend(self.doorbells_behind(ports, instance));
        change.operations
    }

    /// Forgets that frames bypass an instance that is gone. A later instance of the same name is not bypassed.
    pub fn forget_bypass(&mut self, instance: &str) {
        self.bypassed.remove(instance);
    }

    /// Returns true if frames are led past an instance.
    fn is_bypassed(&self, instance: &str) -> bool {
        self.bypassed.contains(instance)
    }

    /// Connects again the ports whose frames arrive at an instance, or would arrive without the bypasses on the way.
    pub(crate) fn connect_around(
        &mut self,
        ports: &dyn Ports,
        instance: &str,
        change: &mut Change,
    ) -> Result<(), WiringError> {
        for (port, to) in self.senders_around(ports, instance) {
            self.connect_one(ports, &port, Some(&to), change)?;
        }
        change
            .operations
            .extend(self.doorbells_behind(ports, instance));
        Ok(())
    }

    /// Returns the ports whose frames arrive at an instance, or would arrive without the bypasses on the way, with
    /// their destinations. In a ring of bypassed instances the instance's own ports are among them.
    fn senders_around(&self, ports: &dyn Ports, instance: &str) -> Vec<(PortRef, Destination)> {
        let is_its = |port: &PortRef| port.owner() == Some(instance);
        let leads_there = self.iter().filter(|(_, to)| {
            let mut targets = to.targets();
            targets.any(|target| is_its(target) || self.leads_to(ports, target, instance))
        });
        leads_there
            .map(|(port, to)| (port.clone(), to.clone()))
            .collect()
    }

    /// Chooses the doorbells of the peers behind an instance, after a bypass has begun or ended: frames arrive there
    /// from other senders than before.
    pub(crate) fn doorbells_behind(&self, ports: &dyn Ports, instance: &str) -> Vec<Operation> {
        let own = self.iter();
        let own = own.filter(|(port, _)| port.owner() == Some(instance));
        self.doorbells(ports, own.flat_map(|(_, to)| to.targets()))
    }

    /// The bypassed instance that owns this port.
    pub(crate) fn bypassed_owner<'a>(&self, port: &'a PortRef) -> Option<&'a str> {
        port.owner().filter(|owner| self.is_bypassed(owner))
    }

    /// Returns true if frames for a port get to an instance past others.
    fn leads_to(&self, ports: &dyn Ports, port: &PortRef, instance: &str) -> bool {
        let mut at = port.clone();
        for _ in 0..BYPASSED_MAX {
            match self.step_past(ports, &at) {
                Some(Some(next)) => at = next,
                _ => return false,
            }
            if at.owner() == Some(instance) {
                return true;
            }
        }
        false
    }

    /// The port at which frames for `port` arrive, past all bypassed instances; `None`: nowhere.
    pub(crate) fn past_bypassed(&self, ports: &dyn Ports, port: &PortRef) -> Option<PortRef> {
        let mut at = port.clone();
        for _ in 0..BYPASSED_MAX {
            match self.step_past(ports, &at) {
                None => return Some(at),
                Some(next) => at = next?,
            }
        }
        None
    }

    /// Makes a step past a bypassed instance. `None`: frames arrive here. `Some(None)`: frames go on nowhere.
    fn step_past(&self, ports: &dyn Ports, port: &PortRef) -> Option<Option<PortRef>> {
        let owner = self.bypassed_owner(port)?;
        let names = ports.names(owner)?;
        let mut own = names.iter().map(|name| PortRef::instance(owner, *name));
        let other = own.find(|other| other != port);
        let next = other.and_then(|other| match self.get(&other) {
            Some(Destination::Port(to)) => Some(to.clone()),
            _ => None,
        });
        Some(next)
    }

    /// Returns true if frames arrive at a port that were led past an instance: their senders were not given this doorbell.
    pub(crate) fn is_behind_bypassed(&self, receiver: &PortRef) -> bool {
        let mut senders = self.senders.get(receiver).into_iter().flatten();
        senders.any(|sender| self.bypassed_owner(sender).is_some())
    }
}
