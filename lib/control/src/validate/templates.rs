//! Templates: what each client gets, whether there is room for as many as there may be, and that no two want the same frames.

use super::instances::{check_memory, check_program};
use super::pools::PLATFORM_PORTS_MAX;
use super::{Background, Environment};
use crate::host::{PROGRAM_BYTES_MIN, rings_bytes};
use crate::model::{Deployment, NAME_MAX, PortRef, Program, Tier};
use crate::pool::{pools, ports_of};
use crate::report::{Report, did_you_mean};
use crate::spec::InstanceSpec;
use crate::template::{AT, ClientBy, Guest, Template, UnknownVariable, VARIABLES};
use crate::yaml::Mark;

/// Longest name of a client in the name of its instance: an IPv6 address.
const CLIENT_CHARS_MAX: usize = 39;

pub fn check(
    deployment: &Deployment,
    background: Background<'_>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    for (name, template) in deployment.templates.iter() {
        let path = format!("templates.{name}");
        check_ports(template, &path, report);
        check_place(template, &path, report);
        if name.len() + AT.len_utf8() + CLIENT_CHARS_MAX > NAME_MAX {
            report.error(
                &path,
                "the template's name is too long: that of a client comes behind it",
                format!(
                    "use at most {} characters",
                    NAME_MAX - AT.len_utf8() - CLIENT_CHARS_MAX
                ),
            );
        }
        check_instance(deployment, name, template, background, environment, report);
    }
    check_overlaps(deployment, report);
    check_room(deployment, environment, report);
}

fn check_ports(template: &Template, path: &str, report: &mut Report<'_>) {
    let ports = &template.instance.ports;
    for (key, port) in [("in", &template.input), ("out", &template.output)] {
        if !ports.contains(port) {
            report.error(
                &format!("{path}.{key}"),
                format!("its instance has no port '{}'", port.escape_debug()),
                did_you_mean(port, ports.names(), "the ports are"),
            );
        }
    }
    if template.input == template.output {
        report.error(
            &format!("{path}.out"),
            "clients' frames enter and leave the instance by the same port",
            "name two ports: 'in: PORT' and 'out: PORT'",
        );
    }
    for (name, port) in ports.iter() {
        let path = format!("{path}.instance.ports.{name}");
        if port.attachment.is_some() {
            report.error(
                &path,
                "an instance of a template is on no switch",
                "remove 'switch': its frames go to 'from' and 'to'",
            );
        }
        if port.mac.is_some() {
            report.error(
                &path,
                "instances of a template cannot all have the same address",
                "remove 'mac': each gets its own",
            );
        }
    }
}

/// What cannot be had by instances that come and go.
fn check_place(template: &Template, path: &str, report: &mut Report<'_>) {
    let instance = &template.instance;
    if instance.tier != Tier::Process {
        report.error(
            &format!("{path}.instance.tier"),
            "an instance of a template is a process",
            "remove 'tier'; fast paths are instances of their own",
        );
    }
    let asked = [
        ("share", instance.share.is_some()),
        ("guarantee", instance.guarantee.is_some()),
        ("group", instance.group.is_some()),
        ("trust", instance.trust.is_some()),
        ("replicas", instance.members() > 1),
    ];
    for (key, _) in asked.into_iter().filter(|(_, is_there)| *is_there) {
        report.error(
            &format!("{path}.instance.{key}"),
            format!("'{key}' is not for instances that come and go"),
            "remove it; 'cap' and 'memory' bound what each may use",
        );
    }
}

/// The name of somebody who might come.
fn example(name: &str, template: &Template) -> Guest {
    let client = match template.client {
        ClientBy::Vlan => "1".to_owned(),
        ClientBy::Mac => "02:00:00:00:00:01".to_owned(),
        ClientBy::Address => {
            let sources = template.rules.iter().filter_map(|rule| rule.src);
            let address = sources.map(|net| net.addr().to_string()).next();
            address.unwrap_or_else(|| "192.0.2.1".to_owned())
        }
    };
    Guest {
        template: name.to_owned(),
        client,
    }
}

fn check_instance(
    deployment: &Deployment,
    name: &str,
    template: &Template,
    background: Background<'_>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let path = format!("templates.{name}.instance");
    let guest = example(name, template);
    let instance = match template.instance_of(&guest) {
        Ok(instance) => instance,
        Err(unknown) => return report_variable(&unknown, &path, background, report),
    };
    if instance.stack.is_some() {
        report.error(
            &format!("{path}.listen"),
            "the instances of all clients would listen at the same address",
            "remove 'listen'",
        );
        return;
    }
    let root = background.root;
    check_program(&guest.name(), &instance, &path, root, environment, report);
    let host_bytes = environment.host.memory_bytes();
    check_memory(deployment, &instance, &path, host_bytes, report);
    let spec = InstanceSpec::resolve(deployment, &guest.name(), &instance);
    let pools = pools(deployment);
    if !pools.values().any(|pool| pool.suits(&spec)) {
        let purpose = match instance.program {
            Program::BuiltIn { .. } => "",
            Program::Path { .. } => "for: programs, ",
        };
        report.warning(
            &path,
            "there is no pool of such instances: each client's first frame waits for a new process",
            format!(
                "add 'pool: {{ NAME: {{ flavor: {}, ports: {}, {purpose}size: rate }} }}'",
                instance.flavor,
                instance.ports.len()
            ),
        );
    }
}

fn report_variable(
    unknown: &UnknownVariable,
    path: &str,
    background: Background<'_>,
    report: &mut Report<'_>,
) {
    let path = format!("{path}.config.{}", unknown.path);
    let message = format!(
        "there is no variable '{}', or no brace behind it",
        unknown.name.escape_debug()
    );
    let remedy = did_you_mean(&unknown.name, VARIABLES, "there are");
    let text = background.root.and_then(|root| root.at(&path)?.as_scalar());
    match text.filter(|text| text.first_line > 0) {
        Some(text) => {
            let line = text.first_line.saturating_add(unknown.line - 1);
            let mark = Mark { line, column: 1 };
            report.error_at(mark, &path, message, remedy);
        }
        None => report.error(&path, message, remedy),
    }
}

/// Of two templates at one uplink that match the same frame, the second would get some of its clients and not others.
fn check_overlaps(deployment: &Deployment, report: &mut Report<'_>) {
    let ends = |template: &Template| {
        [
            (template.from.clone(), template.forward_rules()),
            (template.to.clone(), template.return_rules()),
        ]
    };
    let all: Vec<(&str, &Template)> = deployment.templates.iter().collect();
    for (i, (name, template)) in all.iter().enumerate() {
        let path = format!("templates.{name}");
        if report.is_spoilt(&path) {
            continue;
        }
        let overlaps = |other: &Template| {
            let (own, others) = (ends(template), ends(other));
            own.iter().find_map(|(port, rules)| {
                let at_port = others.iter().filter(|(other, _)| other == port);
                let mut theirs = at_port.flat_map(|(_, rules)| rules.iter());
                let meets = theirs.any(|theirs| rules.iter().any(|own| own.meets(theirs)));
                // No rule at all is a rule for every frame.
                let takes_all =
                    rules.is_empty() || others.iter().any(|(at, r)| at == port && r.is_empty());
                let shares = others.iter().any(|(other, _)| other == port);
                (meets || (takes_all && shares)).then(|| port.clone())
            })
        };
        let found = all[..i]
            .iter()
            .find_map(|(before, other)| Some((before, overlaps(other)?)));
        if let Some((before, port)) = found {
            report_overlap(&path, before, &port, report);
        }
    }
}

fn report_overlap(path: &str, before: &str, port: &PortRef, report: &mut Report<'_>) {
    report.error(
        &format!("{path}.match"),
        format!("overlap: template '{before}' matches some of the same frames at '{port}'"),
        "give each template clients of its own ('match: [{ src: PREFIX }]', or 'vlan')",
    );
}

/// Whether the host can have as many instances as there may be clients.
fn check_room(deployment: &Deployment, environment: Environment<'_>, report: &mut Report<'_>) {
    let host_bytes = environment.host.memory_bytes();
    let instances = deployment.instances.iter();
    let mut ports: u64 = instances.map(|(_, instance)| ports_of(instance)).sum();
    ports += deployment.uplinks.len() as u64;
    for (name, template) in deployment.templates.iter() {
        let path = format!("templates.{name}");
        let Some(flavor) = deployment.flavor(&template.instance.flavor) else {
            continue;
        };
        let most = u64::from(template.most);
        let each = ports_of(&template.instance);
        let bytes = rings_bytes(flavor.ring, each as usize) + PROGRAM_BYTES_MIN;
        if bytes.saturating_mul(most) > host_bytes {
            report.error(
                &format!("{path}.most"),
                format!(
                    "{most} instances need {} MiB for their rings and programs, the host has {} MiB",
                    bytes.saturating_mul(most) >> 20,
                    host_bytes >> 20
                ),
                format!(
                    "write at most {}, or choose a flavor with smaller rings",
                    host_bytes / bytes
                ),
            );
        }
        ports = ports.saturating_add(most.saturating_mul(each));
        if ports > PLATFORM_PORTS_MAX {
            report.error(
                &format!("{path}.most"),
                format!(
                    "with {most} clients there would be {ports} ports, more than the {PLATFORM_PORTS_MAX} that a platform has"
                ),
                "write a smaller 'most'",
            );
        }
    }
}
