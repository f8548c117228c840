//! Instances on the kernel's stack: addresses must be unique, and keys for rings are refused.

use crate::model::{Deployment, Instance};
use crate::report::Report;
use std::collections::HashMap;
use std::net::SocketAddr;

pub fn check(deployment: &Deployment, report: &mut Report<'_>) {
    let mut users: HashMap<(SocketAddr, Option<&str>), &str> = HashMap::new();
    for (name, instance) in deployment.instances.iter() {
        let Some(stack) = &instance.stack else {
            continue;
        };
        let path = format!("instances.{name}");
        check_rings(instance, &path, report);
        for address in &stack.listen {
            let place = (*address, stack.netns.as_deref());
            if let Some(other) = users.insert(place, name) {
                report.error(
                    &format!("{path}.listen"),
                    format!("'{other}' listens at {address} already"),
                    "give each its own address or port",
                );
            }
        }
    }
}

/// Reports keys for rings: these instances have no rings.
fn check_rings(instance: &Instance, path: &str, report: &mut Report<'_>) {
    let said = [
        ("ports", !instance.ports.is_empty()),
        ("trust", instance.trust.is_some()),
        ("io", instance.io.is_some()),
        ("wake", instance.wake.is_some()),
    ];
    for (key, _) in said.into_iter().filter(|(_, is_said)| *is_said) {
        report.error(
            &format!("{path}.{key}"),
            format!("an instance with 'listen' has no rings, and so no '{key}'"),
            format!("remove '{key}'"),
        );
    }
}
