//! Loops without an end point: sets of instances whose ports are all connected to each other. A frame in such a loop
//! never leaves it.

use crate::model::{Deployment, PortRef};
use crate::report::Report;
use std::collections::{BTreeMap, HashMap};

pub fn check(deployment: &Deployment, report: &mut Report<'_>) {
    let mut groups = Groups::new(deployment);
    let mut closing: Vec<(String, &str)> = Vec::new();
    for (i, link) in deployment.links.iter().enumerate() {
        if let Some(instance) = groups.connect(&link.0, &link.1) {
            closing.push((format!("links[{i}]"), instance));
        }
    }
    for (name, chain) in deployment.chains.iter() {
        let mut before = chain.from.clone();
        for hop in &chain.via {
            if let Some(instance) = groups.connect(&before, &hop.input_port()) {
                closing.push((format!("chains.{name}"), instance));
            }
            before = hop.output_port();
        }
        if let Some(instance) = groups.connect(&before, &chain.to) {
            closing.push((format!("chains.{name}"), instance));
        }
    }
    let mut last_of_group: BTreeMap<usize, String> = BTreeMap::new();
    for (path, instance) in closing {
        if let Some(group) = groups.find_name(instance)
            && groups.is_closed(group)
        {
            last_of_group.insert(group, path);
        }
    }
    for path in last_of_group.into_values() {
        if !report.is_spoilt(&path) {
            report.error(
                &path,
                "cycle: this closes a loop of instances that has no end point",
                "leave one port open, or connect one to an uplink or a switch",
            );
        }
    }
}

/// Sets of connected instances (union-find).
struct Groups<'a> {
    index: HashMap<&'a str, usize>,
    names: Vec<&'a str>,
    parent: Vec<usize>,
    /// By instance: number of ports that are not connected to an instance.
    open_ports: Vec<usize>,
}

impl<'a> Groups<'a> {
    fn new(deployment: &'a Deployment) -> Self {
        let names: Vec<&str> = deployment.instances.names().collect();
        Groups {
            index: names
                .iter()
                .enumerate()
                .map(|(i, name)| (*name, i))
                .collect(),
            parent: (0..names.len()).collect(),
            open_ports: deployment
                .instances
                .iter()
                .map(|(_, instance)| instance.ports.len())
                .collect(),
            names,
        }
    }

    fn find(&mut self, mut i: usize) -> usize {
        while let Some(&up) = self.parent.get(i)
            && up != i
        {
            let above = self.parent.get(up).copied().unwrap_or(up);
            if let Some(slot) = self.parent.get_mut(i) {
                *slot = above;
            }
            i = above;
        }
        i
    }

    fn find_name(&mut self, name: &str) -> Option<usize> {
        let i = *self.index.get(name)?;
        Some(self.find(i))
    }

    /// Connects two ports. Returns an instance of the loop if the connection closes one.
    fn connect(&mut self, a: &PortRef, b: &PortRef) -> Option<&'a str> {
        let a = *self.index.get(a.owner()?)?;
        let b = *self.index.get(b.owner()?)?;
        for end in [a, b] {
            if let Some(open) = self.open_ports.get_mut(end) {
                *open = open.saturating_sub(1);
            }
        }
        let (group_a, group_b) = (self.find(a), self.find(b));
        if group_a == group_b {
            return self.names.get(a).copied();
        }
        if let Some(slot) = self.parent.get_mut(group_a) {
            *slot = group_b;
        }
        None
    }

    /// Returns true if no instance of the group has a port that leads out of the group.
    fn is_closed(&mut self, group: usize) -> bool {
        (0..self.names.len())
            .all(|i| self.find(i) != group || self.open_ports.get(i).is_none_or(|open| *open == 0))
    }
}
