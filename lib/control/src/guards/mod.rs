//! Guards: firewalls in front of the ports that have security groups.
//!
//! A guard is an instance that no document names. It stands between a port and the port's switch, has the port's address there, and its rules
//! are those of the port's groups. Whoever plans, checks or counts sees the deployment with its guards; users read and write the one
//! without. The name of a guard is that of the port with `@guard-` instead of the dot, which no name in a document can have.

mod rules;

use crate::model::{Deployment, Instance, Link, Port, PortRef, Program, SecurityGroup};
use crate::quantity::Bytes;
use crate::spec::port_specs;
use crate::table::Table;
use ipnet::IpNet;
use nfluid_api::types::SecurityGroupStatus;
use rules::{Members, config, members};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The part of a guard's name between the names of instance and port.
const OF_PORT: &str = "@guard-";
/// The NF of a guard.
const NF: &str = "firewall";
/// Least memory of a guard: a full table of states, long frames, and the program.
const MEMORY_MIN: Bytes = Bytes::mib(32);
/// The guard's port towards the guarded one, and the one towards the switch. The firewall's order: the protected side first.
const PORTS: [&str; 2] = ["inside", "outside"];
/// The number of a guard's port towards the switch.
pub const OUTSIDE: u8 = 1;

/// Returns the port that an instance guards; `None`: it is no guard.
pub fn guarded_by(name: &str) -> Option<PortRef> {
    let (instance, port) = name.split_once(OF_PORT)?;
    Some(PortRef::instance(instance, port))
}

/// Returns the name of the guard of a port.
pub fn guard_of(instance: &str, port: &str) -> String {
    format!("{instance}{OF_PORT}{port}")
}

impl Port {
    /// Returns true if the port has a guard.
    pub fn is_guarded(&self) -> bool {
        self.security_groups.is_some() && self.attachment.is_some()
    }
}

impl Deployment {
    /// Returns the groups that a port is in.
    fn groups_of<'d>(&'d self, port: &'d Port) -> impl Iterator<Item = &'d SecurityGroup> {
        let names = port.security_groups.iter().flatten();
        names.filter_map(|name| self.security_groups.get(name))
    }

    /// Returns the addresses of the instance at a port with groups: what it sends past the guard must come from these, and rules mean these by
    /// the name of a group. Empty: they are not known, and any will do.
    fn addresses_at<'d>(&'d self, port: &'d Port) -> impl Iterator<Item = IpNet> + 'd {
        let of_groups = self.groups_of(port);
        let of_groups = of_groups.flat_map(|group| group.allowed_addresses.iter().copied());
        port.addresses().chain(of_groups)
    }
}

impl Instance {
    /// Returns true if a port has a guard.
    pub fn has_guards(&self) -> bool {
        self.ports.iter().any(|(_, port)| port.is_guarded())
    }

    /// Returns true if the ports of `other` have the same groups and addresses: what guards let through is the same.
    pub fn is_guarded_like(&self, other: &Instance) -> bool {
        self.filters().eq(other.filters())
    }

    /// Returns the groups and addresses of each port, by the port's name.
    fn filters(&self) -> impl Iterator<Item = (&str, Option<&[String]>, &[IpNet])> {
        let ports = self.ports.iter();
        ports.map(|(name, port)| {
            let groups = port.security_groups.as_deref();
            (name, groups, port.allowed_addresses.as_slice())
        })
    }

    /// Returns the names of the instance's guards, each with the number of the port that it guards. `name`: the instance's.
    pub fn guards(&self, name: &str) -> impl Iterator<Item = (u8, String)> {
        let numbered = (0..).zip(self.ports.iter());
        let guarded = numbered.filter(|(_, (_, port))| port.is_guarded());
        guarded.map(move |(number, (port, _))| (number, guard_of(name, port)))
    }
}

/// Returns the deployment with its guards as instances.
pub fn with_guards(deployment: &Deployment) -> Cow<'_, Deployment> {
    let mut instances = deployment.instances.iter();
    if !instances.any(|(_, instance)| instance.has_guards()) {
        return Cow::Borrowed(deployment);
    }
    let members = members(deployment);
    let mut whole = deployment.clone();
    for (name, instance) in deployment.instances.iter() {
        for (at, (port, _)) in instance.ports.iter().enumerate() {
            stand_before(&mut whole, deployment, &members, name, (at, port));
        }
    }
    Cow::Owned(whole)
}

/// Returns the status of each security group.
pub fn statuses(deployment: &Deployment) -> Vec<SecurityGroupStatus> {
    let status = |(name, group): (&str, &SecurityGroup)| SecurityGroupStatus {
        name: name.to_owned(),
        rules: group.rules.len() as u32,
        addresses: group.members.iter().map(ToString::to_string).collect(),
        owner: group.owner.clone(),
        ..SecurityGroupStatus::default()
    };
    let groups = deployment.security_groups.iter();
    let mut statuses: BTreeMap<_, _> = groups.map(|it| (it.0, status(it))).collect();
    for (name, instance) in deployment.instances.iter() {
        for (port_name, port) in instance.ports.iter() {
            for group in port.security_groups.iter().flatten() {
                if let Some(status) = statuses.get_mut(group.as_str()) {
                    status
                        .ports
                        .push(PortRef::instance(name, port_name).to_string());
                    let addresses = deployment.addresses_at(port).map(|net| net.to_string());
                    status.addresses.extend(addresses);
                }
            }
        }
    }
    statuses.into_values().collect()
}

/// Puts the guard between a port and its switch, if the port has one.
fn stand_before(
    whole: &mut Deployment,
    deployment: &Deployment,
    members: &Members<'_>,
    name: &str,
    (at, port): (usize, &str),
) {
    let Some(instance) = whole.instances.get_mut(name) else {
        return;
    };
    let mac = port_specs(name, instance).get(at).map(|spec| spec.mac);
    let Some(guarded) = instance.ports.get_mut(port).filter(|it| it.is_guarded()) else {
        return;
    };
    let inside = Port {
        mtu: guarded.mtu,
        ..Port::default()
    };
    let outside = Port {
        mac,
        mtu: guarded.mtu,
        attachment: guarded.attachment.take(),
        ..Port::default()
    };
    let [inward, outward] = PORTS.map(str::to_owned);
    let flavor = deployment.flavor(&instance.flavor);
    let memory = flavor.map(|flavor| flavor.memory.max(MEMORY_MIN));
    let guard = Instance {
        config: config(deployment, members, guarded, mac),
        program: Program::BuiltIn { nf: NF.to_owned() },
        ports: Table::from_iter([(inward, inside), (outward, outside)]),
        flavor: instance.flavor.clone(),
        memory,
        group: instance.group.clone(),
        cpus: instance.cpus.clone(),
        placement: instance.placement,
        ..Instance::default()
    };
    let guard_name = guard_of(name, port);
    let ends = (
        PortRef::instance(name, port),
        PortRef::instance(&guard_name, PORTS[0]),
    );
    whole.links.push(Link(ends.0, ends.1));
    whole.instances.insert(guard_name, guard);
}

#[cfg(test)]
mod tests;
