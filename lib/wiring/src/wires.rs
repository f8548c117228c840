//! The destinations of all ports, and the operations that bring them about.

use crate::operation::{ClientEntry, Entry, Join, Operation};
use crate::ports::Ports;
use crate::templates::Templates;
use nfluid_control::model::PortRef;
use nfluid_control::wiring::{Classified, Destination, SwitchPort};
use std::collections::{BTreeMap, BTreeSet};

/// Reason for which a port cannot be connected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WiringError {
    /// The port, or the port at the other end, is not there.
    #[error("there is no port {0}")]
    NoPort(PortRef),
    /// The switch is not there.
    #[error("no switch {0}")]
    NoSwitch(String),
    /// The data plane has no access VLANs.
    #[error("port {0}: access VLANs are not there yet; tagged frames pass a switch unchanged")]
    AccessVlan(PortRef),
}

/// A change of the wiring: operations for the data plane, in their order. If one of them fails, the change goes to
/// [`Wires::undo`].
#[derive(Debug, Default)]
pub struct Change {
    /// Operations for the data plane.
    pub operations: Vec<Operation>,
    /// The former destinations of changed ports, in the order of the changes.
    before: Vec<(PortRef, Option<Destination>)>,
    /// The instance that frames are led past from this change on.
    pub(crate) bypass: Option<String>,
}

/// The destinations of all ports.
#[derive(Debug)]
pub struct Wires {
    pub(crate) destinations: BTreeMap<PortRef, Destination>,
    /// By receiver: the ports whose frames go to that receiver and to no other.
    pub(crate) senders: BTreeMap<PortRef, BTreeSet<PortRef>>,
    /// The instances that frames are led past.
    pub(crate) bypassed: BTreeSet<String>,
    /// Destinations of the plan in progress. An instance is given the doorbells of its future peers when it starts.
    planned: BTreeMap<PortRef, Destination>,
    templates: Templates,
    /// By uplink whose NIC classifies: the entries that the NIC was given last.
    steered: BTreeMap<String, Vec<Entry>>,
}

impl Wires {
    /// No port is connected. Templates have numbers below `templates_end`.
    pub fn new(templates_end: u32) -> Self {
        Wires {
            destinations: BTreeMap::new(),
            senders: BTreeMap::new(),
            bypassed: BTreeSet::new(),
            planned: BTreeMap::new(),
            templates: Templates::new(templates_end),
            steered: BTreeMap::new(),
        }
    }

    /// Returns the destination of a port's frames.
    pub fn get(&self, port: &PortRef) -> Option<&Destination> {
        self.destinations.get(port)
    }

    /// All connected ports and their destinations.
    pub fn iter(&self) -> impl Iterator<Item = (&PortRef, &Destination)> {
        self.destinations.iter()
    }

    /// The ports whose frames go into this port and nowhere else; `None`: no port is known to.
    pub fn senders_of(&self, receiver: &PortRef) -> Option<&BTreeSet<PortRef>> {
        self.senders.get(receiver)
    }

    /// The ports on a switch.
    pub fn on_switch<'a>(&'a self, switch: &'a str) -> impl Iterator<Item = &'a PortRef> {
        let wires = self.destinations.iter();
        let members = wires.filter(move |(_, to)| to.switch() == Some(switch));
        members.map(|(port, _)| port)
    }

    /// The numbers of templates.
    pub fn templates(&self) -> &Templates {
        &self.templates
    }

    /// Notes a destination that the plan in progress will bring about.
    pub fn plan(&mut self, port: &PortRef, to: &Destination) {
        self.planned.insert(port.clone(), to.clone());
    }

    /// Forgets the destinations of the plan: it has ended.
    pub fn end_plan(&mut self) {
        self.planned.clear();
    }

    /// The doorbell at the other end of a link, if the port is or will be linked.
    pub fn link_peer(&self, port: &PortRef) -> Option<String> {
        let planned = self.planned.get(port);
        match planned.or_else(|| self.destinations.get(port))? {
            Destination::Port(peer) => Some(peer.doorbell()),
            _ => None,
        }
    }

    /// Leads the frames of `port` to `to`; `None`: nowhere. Frames for a bypassed instance are led past it.
    ///
    /// # Errors
    /// [`WiringError`]; the wiring is as before.
    pub fn connect(
        &mut self,
        ports: &dyn Ports,
        port: &PortRef,
        to: Option<&Destination>,
    ) -> Result<Change, WiringError> {
        self.change(ports, |wires, change| {
            wires.connect_one(ports, port, to, change)?;
            match wires.bypassed_owner(port) {
                Some(owner) => wires.connect_around(ports, owner, change),
                None => Ok(()),
            }
        })
    }

    /// Undoes a change of which the data plane has refused an operation: the record is as before. Returns operations that lead
    /// frames as before; those that were not led elsewhere yet are led once more to where they go.
    pub fn undo(&mut self, ports: &dyn Ports, change: Change) -> Vec<Operation> {
        let mut ends: BTreeSet<PortRef> = BTreeSet::new();
        let mut changed: BTreeSet<PortRef> = BTreeSet::new();
        if let Some(instance) = &change.bypass {
            self.bypassed.remove(instance);
        }
        for (port, before) in change.before.into_iter().rev() {
            let after = self.set(&port, before);
            let both = after.iter().chain(self.get(&port));
            ends.extend(both.flat_map(Destination::targets).cloned());
            changed.insert(port);
        }
        let mut operations = Vec::new();
        for port in &changed {
            let to = self.get(port).cloned();
            if let Some(Operation::Steer {
                uplink, entries, ..
            }) = self.steer(ports, port, to.as_ref())
            {
                // The NIC has taken these once.
                let before = entries.clone();
                operations.push(Operation::Steer {
                    uplink,
                    entries,
                    before,
                });
            }
            operations.extend(self.lead(ports, port, to.as_ref()));
        }
        operations.extend(self.doorbells(ports, ends.iter()));
        if let Some(instance) = &change.bypass {
            operations.extend(self.doorbells_behind(ports, instance));
        }
        operations
    }

    /// Makes a change as a whole, or not at all.
    pub(crate) fn change(
        &mut self,
        ports: &dyn Ports,
        make: impl FnOnce(&mut Self, &mut Change) -> Result<(), WiringError>,
    ) -> Result<Change, WiringError> {
        let mut change = Change::default();
        match make(self, &mut change) {
            Ok(()) => Ok(change),
            Err(why) => {
                // The data plane has had no order yet.
                let _as_it_is = self.undo(ports, change);
                Err(why)
            }
        }
    }

    /// Connects one port, and chooses the doorbells of the ports at its other end.
    pub(crate) fn connect_one(
        &mut self,
        ports: &dyn Ports,
        port: &PortRef,
        to: Option<&Destination>,
        change: &mut Change,
    ) -> Result<(), WiringError> {
        if let Some(Destination::Classify(entries)) = to {
            self.templates.number(entries);
        }
        let lead = self.lead(ports, port, to)?;
        change.operations.extend(self.steer(ports, port, to));
        change.operations.push(lead);
        let before = self.set(port, to.cloned());
        let ends = before.iter().chain(to).flat_map(Destination::targets);
        change.operations.extend(self.doorbells(ports, ends));
        change.before.push((port.clone(), before));
        Ok(())
    }

    /// The operation for an uplink's NIC, where the NIC is to classify.
    fn steer(
        &mut self,
        ports: &dyn Ports,
        port: &PortRef,
        to: Option<&Destination>,
    ) -> Option<Operation> {
        let PortRef::Uplink(uplink) = port else {
            return None;
        };
        if !ports.steers(uplink) {
            self.steered.remove(uplink);
            return None;
        }
        let entries = self.entries(ports, to);
        let before = self.steered.insert(uplink.clone(), entries.clone());
        Some(Operation::Steer {
            uplink: uplink.clone(),
            entries,
            before: before.unwrap_or_default(),
        })
    }

    /// The operation that leads the frames of `port` to `to`.
    fn lead(
        &self,
        ports: &dyn Ports,
        port: &PortRef,
        to: Option<&Destination>,
    ) -> Result<Operation, WiringError> {
        let missing = |port: &PortRef| WiringError::NoPort(port.clone());
        let queues = ports.queues(port).ok_or_else(|| missing(port))?;
        Ok(match to {
            None => Operation::Link { queues, to: None },
            Some(Destination::Port(peer)) => {
                ports.number(peer).ok_or_else(|| missing(peer))?;
                let to = self.number_past(ports, peer);
                Operation::Link { queues, to }
            }
            Some(Destination::Switch(place)) => {
                Operation::Join(join(ports, port, queues.start, place)?)
            }
            Some(Destination::Classify(_)) => Operation::Classify {
                port: queues.start,
                entries: self.entries(ports, to),
            },
        })
    }

    /// A classifier's entries, in numbers; none: the destination is no classifier.
    pub fn entries(&self, ports: &dyn Ports, to: Option<&Destination>) -> Vec<Entry> {
        let Some(Destination::Classify(entries)) = to else {
            return Vec::new();
        };
        let entry = |entry: &Classified| Entry {
            rules: entry.rules.clone(),
            to: entry.to.as_ref().and_then(|to| self.number_past(ports, to)),
            clients: entry.clients.as_ref().and_then(|clients| {
                Some(ClientEntry {
                    template: self.templates.number_of(&clients.template)?,
                    by: clients.by,
                    back: clients.back,
                })
            }),
        };
        entries.iter().map(entry).collect()
    }

    /// The number of the port at which frames for `port` arrive.
    fn number_past(&self, ports: &dyn Ports, port: &PortRef) -> Option<u32> {
        ports.number(&self.past_bypassed(ports, port)?)
    }

    /// Notes where the frames of `port` go. Returns where they went before.
    fn set(&mut self, port: &PortRef, to: Option<Destination>) -> Option<Destination> {
        if let Some(Destination::Port(receiver)) = self.get(port).cloned()
            && let Some(senders) = self.senders.get_mut(&receiver)
        {
            senders.remove(port);
            if senders.is_empty() {
                self.senders.remove(&receiver);
            }
        }
        if let Some(Destination::Port(receiver)) = &to {
            let senders = self.senders.entry(receiver.clone()).or_default();
            senders.insert(port.clone());
        }
        match to {
            Some(to) => self.destinations.insert(port.clone(), to),
            None => self.destinations.remove(port),
        }
    }
}

fn join(
    ports: &dyn Ports,
    port: &PortRef,
    number: u32,
    place: &SwitchPort,
) -> Result<Join, WiringError> {
    let found = ports.switch(&place.switch);
    let (switch, limits) = found.ok_or_else(|| WiringError::NoSwitch(place.switch.clone()))?;
    if place.vlan.is_some() {
        return Err(WiringError::AccessVlan(port.clone()));
    }
    Ok(Join {
        port: number,
        switch,
        learn: place.learn,
        limits,
        address: ports.address(port),
    })
}
