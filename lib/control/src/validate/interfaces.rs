//! Instances on a network stack of their own: all their ports are interfaces, and what they ask for is there to be had.

use super::access;
use crate::interface::Interface;
use crate::model::{Deployment, Instance, PortApi, Program};
use crate::report::Report;
use std::collections::HashMap;
use std::net::IpAddr;

/// Longest name of an interface (IFNAMSIZ without the end).
const NAME_MAX: usize = 15;

pub fn check(deployment: &Deployment, report: &mut Report<'_>) {
    let mut users: HashMap<(&str, IpAddr), String> = HashMap::new();
    for (name, instance) in deployment.instances.iter() {
        let path = format!("instances.{name}");
        if report.is_spoilt(&path) {
            continue;
        }
        if !instance.tier.capabilities().own_stack {
            check_others(instance, &path, report);
            continue;
        }
        check_program(instance, &path, report);
        for (port, settings) in instance.ports.iter() {
            let path = format!("{path}.ports.{port}");
            let Some(interface) = &settings.interface else {
                report.error(
                    &path,
                    format!("a port of tier '{}' is an interface", instance.tier),
                    "write 'kind: interface', and its 'addresses'",
                );
                continue;
            };
            check_name(port, &path, report);
            check_routes(interface, &path, report);
            let segment = settings.attachment.as_ref().map(|at| at.switch.as_str());
            for address in &interface.addresses {
                // Without a switch, nobody but this instance is known to be on the segment.
                let segment = segment.unwrap_or(name);
                let user = format!("{name}.{port}");
                if let Some(other) = users.insert((segment, address.addr()), user) {
                    report.error(
                        &format!("{path}.addresses"),
                        format!("'{other}' has the address {} already", address.addr()),
                        "give each interface its own",
                    );
                }
            }
        }
        if let Some(access) = &instance.access {
            let is_image = matches!(instance.program, Program::Image { .. });
            access::check(access, is_image, &path, report);
        }
    }
}

/// Refuses what only a program on a stack of its own can have.
fn check_others(instance: &Instance, path: &str, report: &mut Report<'_>) {
    let is_on_dpdk = instance.program.api() == PortApi::Dpdk;
    if let (Some(access), true) = (&instance.access, is_on_dpdk) {
        if *access != access.of_program_with_files() {
            report.error(
                path,
                "a program on DPDK has no 'capabilities', 'user', 'writable', 'forwarding' or 'stop'",
                "remove them; it has 'volumes', 'environment' and 'directory'",
            );
        }
        access::check(access, false, path, report);
    } else if instance.access.is_some() {
        report.error(
            path,
            format!(
                "an instance of tier '{}' has no 'volumes', 'capabilities', 'environment', 'directory', 'forwarding' or 'stop'",
                instance.tier
            ),
            "remove them; programs whose ports are of 'kind: interface' have them",
        );
    }
    if matches!(instance.program, Program::Image { .. }) {
        report.error(
            &format!("{path}.ports"),
            "the ports of an instance with an image are interfaces",
            "write 'ports: { eth0: { kind: interface, addresses: [192.0.2.2/24] } }', and no 'tier'",
        );
    }
    let mut interfaces = instance
        .ports
        .iter()
        .filter(|(_, port)| port.interface.is_some());
    if let Some((port, _)) = interfaces.next() {
        report.error(
            &format!("{path}.ports.{port}.kind"),
            format!("a port of tier '{}' is no interface", instance.tier),
            "remove 'tier': 'kind: interface' decides it",
        );
    }
}

fn check_program(instance: &Instance, path: &str, report: &mut Report<'_>) {
    let refused = [
        (
            "nf",
            matches!(instance.program, Program::BuiltIn { .. }),
            "a built-in NF takes frames from rings, not from interfaces",
            "write 'program: /usr/sbin/...', or remove 'kind: interface'",
        ),
        (
            "config",
            !instance.config.is_null(),
            "a program on the kernel's stack gets no 'config'",
            "write 'args', and a file in one of its 'volumes'",
        ),
        (
            "trust",
            instance.trust.is_some(),
            "programs on the kernel's stack share no memory of frames",
            "remove 'trust'",
        ),
    ];
    for (key, _, message, remedy) in refused.into_iter().filter(|(_, is_so, ..)| *is_so) {
        report.error(&format!("{path}.{key}"), message, remedy);
    }
}

fn check_name(name: &str, path: &str, report: &mut Report<'_>) {
    if name.len() > NAME_MAX || name == "lo" {
        report.error(
            path,
            format!("an interface cannot be called '{}'", name.escape_debug()),
            format!("use at most {NAME_MAX} characters, and not 'lo'"),
        );
    }
}

/// A router is a neighbour: on a network of the interface, or known by its link-local address (RFC 4861).
fn check_routes(interface: &Interface, path: &str, report: &mut Report<'_>) {
    for (i, route) in interface.routes.iter().enumerate() {
        let Some(via) = route.via else { continue };
        let is_link_local = matches!(via, IpAddr::V6(via) if via.is_unicast_link_local());
        let is_near = interface.addresses.iter().any(|net| net.contains(&via));
        if !is_near && !is_link_local {
            report.error(
                &format!("{path}.routes[{i}].via"),
                format!("{via} is on no network of the interface"),
                "name a router on a network of its 'addresses'",
            );
        }
    }
}
