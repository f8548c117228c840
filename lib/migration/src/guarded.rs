//! An instance with its guards (docs/adr/0053). A guard is made anew at the target, and gets the state of the one at the source: connections
//! go on.

use crate::addresses::Addresses;
use crate::site::Instances;
use nfluid_control::guards::OUTSIDE;
use nfluid_control::model::Deployment;
use nfluid_formats::message::Address;
use std::collections::BTreeMap;

/// An instance that moves, and its guards.
pub struct Guarded {
    instance: String,
    /// By the number of the port that is guarded.
    guards: BTreeMap<u8, String>,
}

impl Guarded {
    /// Returns an instance of a deployment with its guards.
    pub fn of(deployment: &Deployment, instance: &str) -> Self {
        let found = deployment.instances.get(instance);
        let guards = found.map(|it| it.guards(instance)).into_iter().flatten();
        Guarded {
            instance: instance.to_owned(),
            guards: guards.collect(),
        }
    }

    /// Returns the instance's name.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the names of the guards, in the order in which both ends speak of them.
    pub fn guards(&self) -> impl Iterator<Item = &str> {
        self.guards.values().map(String::as_str)
    }

    /// Returns the names of the instance and of its guards, in the order in which both ends speak of them.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.instance()).chain(self.guards())
    }

    /// The instance announces its own addresses, and `recent` ones, which were behind it on another host.
    pub fn announce_here(&self, instances: &impl Instances, recent: Vec<Address>) {
        let (_, addresses) = Addresses::of(instances, self.instance(), recent);
        self.announce(instances, &addresses);
    }

    /// The instance announces addresses that are behind its ports. The guard of a port announces in its place: the guard would drop the
    /// instance's announcement.
    pub(crate) fn announce(&self, instances: &impl Instances, addresses: &[Address]) {
        let mut by_speaker: BTreeMap<&str, Vec<Address>> = BTreeMap::new();
        for &(port, mac) in addresses {
            let (speaker, port) = match self.guards.get(&port) {
                Some(guard) => (guard.as_str(), OUTSIDE),
                None => (self.instance(), port),
            };
            by_speaker.entry(speaker).or_default().push((port, mac));
        }
        for (speaker, addresses) in by_speaker {
            if let Err(why) = instances.announce(speaker, &addresses) {
                tracing::warn!(
                    instance = speaker,
                    "telling the network where it is: {why:#}"
                );
            }
        }
    }
}
