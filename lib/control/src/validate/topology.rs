//! Connections: references must exist, and each port can have one use.

use crate::matching::MatchRule;
use crate::model::{Attachment, Chain, Deployment, PortRef};
use crate::quantity::Mac;
use crate::report::{Report, did_you_mean};
use crate::spec::port_specs;
use crate::template::Template;
use std::collections::HashMap;

pub fn check(deployment: &Deployment, report: &mut Report<'_>) {
    let mut uses = Uses::default();
    check_attachments(deployment, &mut uses, report);
    for (i, link) in deployment.links.iter().enumerate() {
        let path = format!("links[{i}]");
        if report.is_spoilt(&path) {
            continue;
        }
        for (end, port) in [&link.0, &link.1].into_iter().enumerate() {
            let path = format!("{path}[{end}]");
            if port_exists(deployment, port, &path, report) {
                uses.take(port, &path, Use::Whole("a link".into()), report);
            }
        }
    }
    for (name, chain) in deployment.chains.iter() {
        check_chain(deployment, name, chain, &mut uses, report);
    }
    for (name, template) in deployment.templates.iter() {
        check_template(deployment, name, template, &mut uses, report);
    }
    check_shadows(deployment, report);
    warn_of_unused_ports(deployment, &uses, report);
}

/// The use of a port.
enum Use {
    /// The port is on a switch, or an end of a link, or in the middle of a chain. No other use is possible.
    Whole(String),
    /// The port is the end of a chain; other chains can start or end here as well.
    ChainEnd(String),
}

impl Use {
    fn words(&self) -> &str {
        match self {
            Use::Whole(words) | Use::ChainEnd(words) => words,
        }
    }
}

#[derive(Default)]
struct Uses(HashMap<PortRef, (Use, String)>);

impl Uses {
    fn take(&mut self, port: &PortRef, path: &str, new: Use, report: &mut Report<'_>) {
        let Some((old, old_path)) = self.0.get(port) else {
            self.0.insert(port.clone(), (new, path.to_owned()));
            return;
        };
        if matches!((old, &new), (Use::ChainEnd(_), Use::ChainEnd(_))) {
            return;
        }
        report.error(
            path,
            format!(
                "port '{port}' is used twice: by {} ({old_path}) and by {}",
                old.words(),
                new.words()
            ),
            "a port is on one switch, or one end of one link, or in one chain; \
             add a port or a switch",
        );
    }
}

fn check_attachments(deployment: &Deployment, uses: &mut Uses, report: &mut Report<'_>) {
    let mut macs: HashMap<(&str, Mac), PortRef> = HashMap::new();
    for (name, uplink) in deployment.uplinks.iter() {
        if let Some(attachment) = &uplink.attachment {
            let port = PortRef::Uplink(name.into());
            attach(
                deployment,
                &port,
                attachment,
                &format!("uplinks.{name}"),
                uses,
                report,
            );
        }
    }
    for (name, instance) in deployment.instances.iter() {
        let specs = port_specs(name, instance);
        for ((port_name, port), spec) in instance.ports.iter().zip(specs) {
            let Some(attachment) = &port.attachment else {
                continue;
            };
            let port = PortRef::instance(name, port_name);
            let path = format!("instances.{name}.ports.{port_name}");
            attach(deployment, &port, attachment, &path, uses, report);
            let place = (attachment.switch.as_str(), spec.mac);
            if let Some(other) = macs.insert(place, port) {
                report.error(
                    &format!("{path}.mac"),
                    format!(
                        "'{other}' on the same switch has the address {} too",
                        spec.mac
                    ),
                    "give each port of a switch its own address",
                );
            }
        }
    }
}

fn attach(
    deployment: &Deployment,
    port: &PortRef,
    attachment: &Attachment,
    path: &str,
    uses: &mut Uses,
    report: &mut Report<'_>,
) {
    let switch = &attachment.switch;
    let path = format!("{path}.switch");
    if !deployment.switches.contains(switch) {
        report.error(
            &path,
            format!("there is no switch '{}'", switch.escape_debug()),
            did_you_mean(switch, deployment.switches.names(), "the switches are"),
        );
    }
    uses.take(
        port,
        &path,
        Use::Whole(format!("switch '{switch}'")),
        report,
    );
}

/// Returns true if a port exists; reports it if not.
fn port_exists(
    deployment: &Deployment,
    port: &PortRef,
    path: &str,
    report: &mut Report<'_>,
) -> bool {
    match port {
        PortRef::Uplink(name) => {
            if deployment.uplinks.contains(name) {
                return true;
            }
            let remedy = if deployment.instances.contains(name) {
                format!("'{name}' is an instance: name one of its ports, '{name}.PORT'")
            } else if deployment.switches.contains(name) {
                format!("'{name}' is a switch: put the port on it with 'switch: {name}'")
            } else {
                let names = deployment.uplinks.names();
                did_you_mean(name, names, "the uplinks are")
            };
            report.error(
                path,
                format!("there is no uplink '{}'", name.escape_debug()),
                remedy,
            );
            false
        }
        PortRef::Instance { instance, port } => {
            instance_exists(deployment, instance, path, report)
                && port_of_instance_exists(deployment, instance, port, path, report)
        }
    }
}

fn instance_exists(
    deployment: &Deployment,
    instance: &str,
    path: &str,
    report: &mut Report<'_>,
) -> bool {
    let exists = deployment.instances.contains(instance);
    if !exists {
        let names = deployment.instances.names();
        report.error(
            path,
            format!("there is no instance '{}'", instance.escape_debug()),
            did_you_mean(instance, names, "the instances are"),
        );
    }
    exists
}

fn port_of_instance_exists(
    deployment: &Deployment,
    instance: &str,
    port: &str,
    path: &str,
    report: &mut Report<'_>,
) -> bool {
    let Some(owner) = deployment.instances.get(instance) else {
        return false;
    };
    let exists = owner.ports.contains(port);
    if !exists && !report.is_spoilt(&format!("instances.{instance}.ports")) {
        report.error(
            path,
            format!(
                "the instance '{instance}' has no port '{}'",
                port.escape_debug()
            ),
            did_you_mean(port, owner.ports.names(), "its ports are"),
        );
    }
    exists
}

fn check_chain(
    deployment: &Deployment,
    name: &str,
    chain: &Chain,
    uses: &mut Uses,
    report: &mut Report<'_>,
) {
    let path = format!("chains.{name}");
    for (key, port) in [("from", &chain.from), ("to", &chain.to)] {
        let path = format!("{path}.{key}");
        let is_unread = *port == PortRef::Uplink(String::new());
        if !is_unread && port_exists(deployment, port, &path, report) {
            uses.take(
                port,
                &path,
                Use::ChainEnd(format!("chain '{name}'")),
                report,
            );
        }
    }
    if chain.from == chain.to && !report.is_spoilt(&path) {
        report.error(
            &format!("{path}.to"),
            format!("the chain ends where it starts, at '{}'", chain.from),
            "end it at another uplink or port",
        );
    }
    let mut crossed: HashMap<PortRef, usize> = HashMap::new();
    for (i, hop) in chain.via.iter().enumerate() {
        let path = format!("{path}.via[{i}]");
        if !instance_exists(deployment, &hop.instance, &path, report) {
            continue;
        }
        if hop.input == hop.output {
            report.error(
                &path,
                format!(
                    "the chain enters and leaves '{}' by the same port",
                    hop.instance
                ),
                "name two ports: {instance: NAME, in: PORT, out: PORT}",
            );
            continue;
        }
        for port in [hop.input_port(), hop.output_port()] {
            let PortRef::Instance { port: name_in, .. } = &port else {
                continue;
            };
            if !port_of_instance_exists(deployment, &hop.instance, name_in, &path, report) {
                continue;
            }
            if let Some(before) = crossed.insert(port.clone(), i) {
                report.error(
                    &path,
                    format!("cycle: the chain crosses port '{port}' twice (via[{before}] as well)"),
                    "remove one step, or name other ports of the instance",
                );
            } else {
                uses.take(&port, &path, Use::Whole(format!("chain '{name}'")), report);
            }
        }
    }
}

/// Checks the ends of a template, which have the rules of chains between uplinks.
fn check_template(
    deployment: &Deployment,
    name: &str,
    template: &Template,
    uses: &mut Uses,
    report: &mut Report<'_>,
) {
    let place = super::templates::place(name, report);
    for (key, port) in [("from", &template.from), ("to", &template.to)] {
        let path = format!("{place}.{key}");
        if *port == PortRef::Uplink(String::new()) {
            continue;
        }
        if let PortRef::Instance { .. } = port {
            report.error(
                &path,
                format!("'{port}' is no uplink: clients are only at uplinks"),
                "name an uplink",
            );
        } else if port_exists(deployment, port, &path, report) {
            let words = format!("template '{name}'");
            uses.take(port, &path, Use::ChainEnd(words), report);
        }
    }
    let path = format!("{place}.to");
    if template.from == template.to && !report.is_spoilt(&place) {
        report.error(
            &path,
            format!(
                "a loop: the template leads back to '{}', the uplink of its clients",
                template.from
            ),
            "end it at another uplink",
        );
    }
}

/// Warns of chains that never get a frame, since an earlier chain matches all frames.
fn check_shadows(deployment: &Deployment, report: &mut Report<'_>) {
    let mut takes_all: HashMap<&PortRef, &str> = HashMap::new();
    for (name, chain) in deployment.chains.iter() {
        let back = chain.effective_return_rules();
        let ends: [(&str, &PortRef, &[MatchRule]); 2] = [
            ("match", &chain.from, &chain.rules),
            ("return", &chain.to, &back),
        ];
        for (key, port, rules) in ends {
            if let Some(before) = takes_all.get(port) {
                report.warning(
                    &format!("chains.{name}"),
                    format!(
                        "the chain gets nothing at '{port}': chain '{before}' before it takes \
                         everything"
                    ),
                    format!("give '{before}' rules ('{key}'), or write it last"),
                );
            } else if rules.is_empty() {
                takes_all.insert(port, name);
            }
        }
    }
    for (name, template) in deployment.templates.iter() {
        for port in [&template.from, &template.to] {
            if let Some(before) = takes_all.get(port) {
                let place = super::templates::place(name, report);
                report.warning(
                    &place,
                    format!(
                        "the template gets nothing at '{port}': chain '{before}' takes everything, \
                         and chains come first"
                    ),
                    format!("give '{before}' rules"),
                );
            }
        }
    }
}

fn warn_of_unused_ports(deployment: &Deployment, uses: &Uses, report: &mut Report<'_>) {
    for (name, instance) in deployment.instances.iter() {
        for port in instance.ports.names() {
            if !uses.0.contains_key(&PortRef::instance(name, port)) {
                report.warning(
                    &format!("instances.{name}.ports.{port}"),
                    format!("port '{name}.{port}' is not connected"),
                    "put it on a switch, or use it in a link or a chain",
                );
            }
        }
    }
}
