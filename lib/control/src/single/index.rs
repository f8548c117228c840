//! An index of a deployment by the ports and addresses in use: a change of one object need not search all others.

use super::reach::Reach;
use crate::frames::Node;
use crate::model::{Attachment, Deployment, Instance, Link, PortRef};
use crate::quantity::{Mac, Share};
use crate::spec::port_specs;
use crate::validate::shares::Limits;
use std::collections::HashMap;

/// The use of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The port is on a switch.
    Switch,
    /// The port is an end of the link at this place of the deployment's list.
    Link(usize),
    /// Chains cross the port, or begin or end there.
    Chain,
}

/// The index of one deployment.
#[derive(Clone, Debug, Default)]
pub struct Index {
    uses: HashMap<PortRef, Use>,
    /// Addresses of instances' ports on switches.
    addresses: HashMap<(String, Mac), PortRef>,
    /// Hundredths of a percent of a core that are promised at the top.
    promised: u64,
    /// Instances and groups with a guarantee.
    guarantees: usize,
    cpus: usize,
    reach: Reach,
}

impl Index {
    /// Builds the index of a whole deployment on a host with `cpus` CPUs.
    pub fn of(deployment: &Deployment, cpus: usize) -> Self {
        let mut index = Index {
            cpus,
            ..Index::default()
        };
        for (name, uplink) in deployment.uplinks.iter() {
            if uplink.attachment.is_some() {
                let port = PortRef::Uplink(name.to_owned());
                index.uses.insert(port, Use::Switch);
            }
        }
        for (_, group) in deployment.groups.iter() {
            let limits = Limits::of_group(group);
            index.promised += limits.promised_at_top(cpus);
            index.guarantees += usize::from(group.guarantee.is_some());
        }
        for (name, instance) in deployment.instances.iter() {
            index.add_instance(name, instance);
        }
        for (at, link) in deployment.links.iter().enumerate() {
            index.add_link(link, at);
        }
        for (_, chain) in deployment.chains.iter() {
            let hops = chain.via.iter();
            let ports = hops.flat_map(|hop| [hop.input_port(), hop.output_port()]);
            for port in ports.chain([chain.from.clone(), chain.to.clone()]) {
                index.uses.insert(port, Use::Chain);
            }
        }
        for (_, template) in deployment.templates.iter() {
            for port in [&template.from, &template.to] {
                index.uses.insert(port.clone(), Use::Chain);
            }
        }
        index.reach = Reach::of(deployment);
        index
    }

    /// Returns the use of a port.
    pub fn use_of(&self, port: &PortRef) -> Option<Use> {
        self.uses.get(port).copied()
    }

    /// Returns true if a port on the switch has this address.
    pub fn has_address(&self, switch: &str, mac: Mac) -> bool {
        self.addresses.contains_key(&(switch.to_owned(), mac))
    }

    /// Returns true if the host can promise `instance` the asked share, whatever the others use. If not, the check of the whole
    /// decides.
    pub fn has_room_for(&self, instance: &Instance) -> bool {
        if self.guarantees > 0 || instance.guarantee.is_some() {
            return false;
        }
        let own = Limits::of_instance(instance).promised_at_top(self.cpus);
        let room = instance.usable_cpus(self.cpus) as u64 * u64::from(Share::FULL.hundredths());
        own == 0 || self.promised + own <= room
    }

    /// As [`crate::capacity::guaranteed`].
    pub fn guaranteed(&self) -> u64 {
        match self.guarantees {
            0 => 0,
            _ => self.promised,
        }
    }

    /// Returns the objects between which frames can pass.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Adds an instance.
    pub fn add_instance(&mut self, name: &str, instance: &Instance) {
        let limits = Limits::of_instance(instance);
        self.promised += limits.promised_at_top(self.cpus) * u64::from(instance.members());
        self.guarantees += usize::from(instance.guarantee.is_some());
        for (port, attachment, mac) in attached(name, instance) {
            self.uses.insert(port.clone(), Use::Switch);
            self.addresses
                .insert((attachment.switch.clone(), mac), port);
        }
        self.reach.add_instance(name, instance);
    }

    /// Removes an instance.
    pub fn remove_instance(&mut self, name: &str, instance: &Instance) {
        let limits = Limits::of_instance(instance);
        self.promised -= limits.promised_at_top(self.cpus) * u64::from(instance.members());
        self.guarantees -= usize::from(instance.guarantee.is_some());
        for (port, attachment, mac) in attached(name, instance) {
            self.uses.remove(&port);
            self.addresses.remove(&(attachment.switch.clone(), mac));
        }
        self.reach.remove_instance(name, instance);
    }

    /// Adds the link at place `at`.
    pub fn add_link(&mut self, link: &Link, at: usize) {
        for port in [&link.0, &link.1] {
            self.uses.insert(port.clone(), Use::Link(at));
        }
        self.reach.join(Node::of(&link.0), Node::of(&link.1));
    }

    /// Removes a link.
    pub fn remove_link(&mut self, link: &Link) {
        for port in [&link.0, &link.1] {
            self.uses.remove(port);
        }
    }
}

/// Returns the ports of an instance that are on switches.
fn attached<'a>(
    name: &'a str,
    instance: &'a Instance,
) -> impl Iterator<Item = (PortRef, &'a Attachment, Mac)> {
    let ports = instance.ports.iter().zip(port_specs(name, instance));
    ports.filter_map(move |((port, model), spec)| {
        let attachment = model.attachment.as_ref()?;
        Some((PortRef::instance(name, port), attachment, spec.mac))
    })
}
