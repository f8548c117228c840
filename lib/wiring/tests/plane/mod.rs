//! A data plane in memory: it carries operations out, and says which way a frame goes.

use nfluid_control::model::{PortRef, Switch};
use nfluid_control::quantity::Mac;
use nfluid_wiring::{Entry, Join, Operation, Ports};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Where the frames of a port go.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    Link(u32),
    Join(Join),
    Classify(Vec<Entry>),
}

/// Ports with one queue each, and the orders that they were given.
#[derive(Default)]
pub struct Plane {
    pub numbers: BTreeMap<PortRef, u32>,
    pub switches: BTreeMap<String, u32>,
    /// The doorbell that a port's owner was given for it.
    pub doorbells: BTreeMap<PortRef, String>,
    /// Instances of which there are several.
    pub members: BTreeSet<String>,
    pub ways: BTreeMap<u32, Way>,
    /// Ports at which the switch wakes the owner.
    pub woken_by_switch: BTreeSet<u32>,
    /// The entries that NICs classify, by uplink.
    pub steered: BTreeMap<String, Vec<Entry>>,
}

/// An uplink (`lan`), or a port of an instance (`fw.in`).
pub fn port(name: &str) -> PortRef {
    match name.split_once('.') {
        Some((instance, port)) => PortRef::instance(instance, port),
        None => PortRef::Uplink(name.to_owned()),
    }
}

impl Plane {
    pub fn with_uplinks(mut self, names: &[&str]) -> Self {
        for name in names {
            self.add(port(name));
        }
        self
    }

    /// Instances with the ports `in` and `out`.
    pub fn with_instances(mut self, names: &[&str]) -> Self {
        for name in names {
            self.add(PortRef::instance(*name, "in"));
            self.add(PortRef::instance(*name, "out"));
        }
        self
    }

    pub fn add(&mut self, port: PortRef) {
        let number = self.numbers.len() as u32 + 1;
        self.numbers.insert(port, number);
    }

    pub fn carry_out(&mut self, operations: &[Operation]) {
        for operation in operations {
            match operation.clone() {
                Operation::Steer {
                    uplink, entries, ..
                } => drop(self.steered.insert(uplink, entries)),
                Operation::Link { queues, to: None } => drop(self.ways.remove(&queues.start)),
                Operation::Link {
                    queues,
                    to: Some(to),
                } => drop(self.ways.insert(queues.start, Way::Link(to))),
                Operation::Join(join) => drop(self.ways.insert(join.port, Way::Join(join))),
                Operation::Classify { port, entries } => {
                    self.ways.insert(port, Way::Classify(entries));
                }
                Operation::Doorbell { port, by_switch } => {
                    if by_switch {
                        self.woken_by_switch.insert(port);
                    } else {
                        self.woken_by_switch.remove(&port);
                    }
                }
            }
        }
    }
}

impl Ports for Plane {
    fn queues(&self, port: &PortRef) -> Option<Range<u32>> {
        let number = *self.numbers.get(port)?;
        Some(number..number + 1)
    }

    fn names(&self, instance: &str) -> Option<Vec<&str>> {
        let own = self.numbers.keys().filter_map(|port| match port {
            PortRef::Instance {
                instance: owner,
                port,
            } if owner == instance => Some(port.as_str()),
            _ => None,
        });
        let own: Vec<&str> = own.collect();
        (!own.is_empty()).then_some(own)
    }

    fn address(&self, port: &PortRef) -> Option<Mac> {
        let number = *self.numbers.get(port)?;
        port.owner().map(|_| Mac([2, 0, 0, 0, 0, number as u8]))
    }

    fn rings(&self, port: &PortRef) -> Option<&str> {
        self.doorbells.get(port).map(String::as_str)
    }

    fn is_member(&self, instance: &str) -> bool {
        self.members.contains(instance)
    }

    fn steers(&self, _uplink: &str) -> bool {
        true
    }

    fn switch(&self, name: &str) -> Option<(u32, Switch)> {
        let number = *self.switches.get(name)?;
        Some((number, Switch::default()))
    }
}
