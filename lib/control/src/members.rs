//! Instances with several members, among which the flows of their ports are divided.
//!
//! The first member has the instance's own name, and other objects send to its ports. Further members are instances of
//! the same specification, whose ports have the same destinations as those of the first member; their names end in
//! `@r1`, `@r2`... No name in a document can end like this. Neither can the name of an instance on demand, which has a
//! client's address or VLAN after its `@`.

use crate::inventory::Inventory;
use crate::model::{Deployment, Instance, PortRef};
use crate::spec::InstanceSpec;
use std::collections::BTreeMap;

/// Maximum number of members of an instance.
pub const REPLICAS_MAX: u16 = 16;

/// The number of members of each instance that has several members.
pub type Members = BTreeMap<String, u16>;

impl Instance {
    /// Returns the number of members.
    pub fn members(&self) -> u16 {
        self.replicas.unwrap_or(1)
    }
}

/// Returns the name of member `number`; the first member, 0, has the name of the instance.
pub fn member_name(instance: &str, number: u16) -> String {
    match number {
        0 => instance.to_owned(),
        number => format!("{instance}@r{number}"),
    }
}

/// Returns the names of the members 0 to `members` - 1.
pub fn member_names(instance: &str, members: u16) -> impl Iterator<Item = String> + '_ {
    (0..members).map(|number| member_name(instance, number))
}

/// Returns the instance that a further member belongs to.
pub fn front_of(member: &str) -> Option<&str> {
    member.split_once("@r").map(|(instance, _)| instance)
}

/// Returns the number of a member within its instance.
pub fn number_of(member: &str) -> u16 {
    let number = member.split_once("@r").map(|(_, number)| number.parse());
    number.map_or(0, |number| number.unwrap_or(u16::MAX))
}

/// Returns the instances that have several members.
pub fn members(deployment: &Deployment) -> Members {
    let instances = deployment.instances.iter();
    instances
        .map(|(name, instance)| (name.to_owned(), instance.members()))
        .filter(|(_, members)| *members > 1)
        .collect()
}

impl Inventory {
    /// Adds the further members: instances like the first member, with the same destinations of frames.
    pub(crate) fn add_members(&mut self) {
        for (name, count) in self.members.clone() {
            let Some(spec) = self.instances.get(&name).cloned() else {
                continue;
            };
            for member in member_names(&name, count).skip(1) {
                for port in &spec.ports {
                    let own = PortRef::instance(&name, &port.name);
                    if let Some(to) = self.wires.get(&own).cloned() {
                        let port = PortRef::instance(&member, &port.name);
                        self.wires.insert(port, to);
                    }
                }
                self.instances.insert(member, spec.clone());
            }
        }
    }

    /// Returns the number of members among which the flows of an instance are divided; 0 if the instance does not
    /// exist.
    pub fn member_count(&self, instance: &str) -> u16 {
        match self.members.get(instance) {
            Some(members) => *members,
            None => u16::from(self.instances.contains_key(instance)),
        }
    }

    /// Returns the specification of an instance that an earlier daemon has left: a desired instance, or one member more
    /// than desired. Such a further member can have flows and their state: it is removed like other members, after its
    /// flows have moved.
    pub fn spec_left(&self, name: &str) -> Option<&InstanceSpec> {
        let desired = self.instances.get(name);
        desired.or_else(|| self.instances.get(front_of(name)?))
    }

    /// Returns true if flows of an instance with several members are directed to this member. The ports of the member
    /// must stay in that case.
    pub(crate) fn shares_flows(&self, name: &str) -> bool {
        let members = self.members.get(front_of(name).unwrap_or(name));
        members.is_some_and(|members| number_of(name) < *members)
    }

    /// Records the number of members among which the flows of an instance are divided.
    pub(crate) fn set_member_count(&mut self, instance: &str, members: u16) {
        if members > 1 {
            self.members.insert(instance.to_owned(), members);
        } else {
            self.members.remove(instance);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_told_apart_from_all_that_a_document_can_name() {
        let names: Vec<String> = member_names("fw", 3).collect();
        assert_eq!(names, ["fw", "fw@r1", "fw@r2"]);
        assert_eq!(front_of("fw@r2"), Some("fw"));
        assert_eq!(front_of("fw"), None);
        assert_eq!(front_of("guest@10-2-0-7"), None);
        assert_eq!(["fw", "fw@r2", "guest@10-2-0-7"].map(number_of), [0, 2, 0]);
        assert!(crate::model::check_name("fw@r1").is_err());
    }
}
