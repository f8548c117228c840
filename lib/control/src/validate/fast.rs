//! Instances of tier `xdp`: what runs, and the interfaces that it is on.

use super::instances::report_config;
use super::uplinks::{check_place, is_interface_name, not_an_interface};
use super::{Background, Environment};
use crate::fast::Attach;
use crate::model::{Deployment, Instance};
use crate::report::{Report, did_you_mean};
use std::collections::HashMap;

pub fn check(
    deployment: &Deployment,
    background: Background<'_>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let uplinks = deployment.uplinks.iter();
    let mut users: HashMap<(&str, Option<&str>), String> = uplinks
        .map(|(name, uplink)| {
            let place = (uplink.interface.as_str(), uplink.netns.as_deref());
            (place, format!("uplink '{name}'"))
        })
        .collect();
    for (name, instance) in deployment.instances.iter() {
        let Some(attach) = &instance.attach else {
            continue;
        };
        let path = format!("instances.{name}");
        let present = background.present;
        let before = present.and_then(|present| present.instances.get(name));
        if before != Some(instance) {
            check_function(instance, &path, background, environment, report);
        }
        check_interfaces(attach, &path, &mut users, name, report);
        // One in use may vanish and return at any time: that the daemon sees to.
        if before.and_then(|before| before.attach.as_ref()) != Some(attach) {
            look(attach, &path, environment, report);
        }
    }
}

fn check_function(
    instance: &Instance,
    path: &str,
    background: Background<'_>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let nf = instance.program.name();
    if nf.is_empty() || report.is_spoilt(&format!("{path}.config")) {
        return;
    }
    let catalogue = environment.catalogue;
    let names = catalogue.fast_names();
    if !names.iter().any(|name| name == nf) {
        report.error(
            &format!("{path}.nf"),
            format!("the NF '{}' has no fast path", nf.escape_debug()),
            did_you_mean(nf, names.iter().map(String::as_str), "there are"),
        );
        return;
    }
    if let Err(error) = catalogue.validate_fast(nf, &instance.config) {
        report_config(&error, &format!("{path}.config"), background.root, report);
    }
}

/// Each interface has room for one program.
fn check_interfaces<'a>(
    attach: &'a Attach,
    path: &str,
    users: &mut HashMap<(&'a str, Option<&'a str>), String>,
    name: &str,
    report: &mut Report<'_>,
) {
    for interface in &attach.interfaces {
        let path = format!("{path}.interface");
        if !is_interface_name(interface) {
            not_an_interface(interface, &path, report);
            continue;
        }
        let place = (interface.as_str(), attach.netns.as_deref());
        if let Some(other) = users.insert(place, format!("instance '{name}'")) {
            report.error(
                &path,
                format!("{other} has the interface '{interface}' already"),
                "an interface has one XDP program: use another interface, or remove one of them",
            );
        }
    }
}

fn look(attach: &Attach, path: &str, environment: Environment<'_>, report: &mut Report<'_>) {
    for interface in &attach.interfaces {
        if is_interface_name(interface) {
            let netns = attach.netns.as_deref();
            check_place(interface, netns, path, environment.host, report);
        }
    }
}
