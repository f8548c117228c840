//! What exists on a host, or shall exist: every object with nothing left to default.

use crate::model::{Deployment, PortRef, Switch};
use crate::spec::{InstanceSpec, UplinkSpec};
use crate::wiring::{Destination, Wiring, wiring};
use serde::Serialize;
use std::collections::BTreeMap;

/// Every object, by name. A plan is the difference of two inventories.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Inventory {
    /// Learning bridges.
    pub switches: BTreeMap<String, Switch>,
    /// Ports backed by real interfaces.
    pub uplinks: BTreeMap<String, UplinkSpec>,
    /// Running NFs.
    pub instances: BTreeMap<String, InstanceSpec>,
    /// Where each port's frames go.
    #[serde(serialize_with = "wires_by_name")]
    pub wires: Wiring,
}

fn wires_by_name<S: serde::Serializer>(wires: &Wiring, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(wires.iter().map(|(port, to)| (port.to_string(), to)))
}

impl Inventory {
    /// What a valid deployment asks for.
    pub fn of(deployment: &Deployment) -> Self {
        Inventory {
            switches: deployment
                .switches
                .iter()
                .map(|(name, switch)| (name.to_owned(), *switch))
                .collect(),
            uplinks: deployment
                .uplinks
                .iter()
                .map(|(name, uplink)| (name.to_owned(), UplinkSpec::resolve(deployment, uplink)))
                .collect(),
            instances: deployment
                .instances
                .iter()
                .map(|(name, instance)| {
                    let spec = InstanceSpec::resolve(deployment, name, instance);
                    (name.to_owned(), spec)
                })
                .collect(),
            wires: wiring(deployment),
        }
    }

    /// Whether the port exists.
    pub fn has_port(&self, port: &PortRef) -> bool {
        match port {
            PortRef::Uplink(name) => self.uplinks.contains_key(name),
            PortRef::Instance { instance, port } => self
                .instances
                .get(instance)
                .is_some_and(|spec| spec.ports.iter().any(|p| p.name == *port)),
        }
    }

    /// The ports that frames of `port` can reach directly, and those that can reach it.
    pub fn neighbours<'a>(&'a self, port: &'a PortRef) -> impl Iterator<Item = &'a PortRef> {
        let sends_to = self
            .wires
            .get(port)
            .into_iter()
            .flat_map(Destination::targets);
        let receives_from = self
            .wires
            .iter()
            .filter(move |(_, to)| to.targets().any(|target| target == port))
            .map(|(from, _)| from);
        sends_to.chain(receives_from)
    }
}
