//! Templates: the instances of each client, the room for the maximum number of clients, and overlaps between templates.

use super::instances::{check_memory, check_program, long_ports};
use super::pools::PLATFORM_PORTS_MAX;
use super::{Background, Environment};
use crate::frames::SLOT_MTU_MAX;
use crate::model::{Deployment, NAME_MAX, PortRef, Program};
use crate::pool::pools;
use crate::report::{Report, did_you_mean};
use crate::spec::InstanceSpec;
use crate::template::{
    AT, ClientBy, Guest, Stage, Template, UnknownVariable, VARIABLES, bytes_of_client,
};
use crate::tier::Tier;
use crate::yaml::Mark;
use std::collections::BTreeSet;

/// Maximum length of a client's name in the name of its instance: an IPv6 address.
const CLIENT_CHARS_MAX: usize = 39;

pub fn check(
    deployment: &Deployment,
    background: Background<'_>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    for (name, template) in deployment.templates.iter() {
        let path = place(name, report);
        if template.stages.0.is_empty() {
            // The instance could not be read.
            continue;
        }
        let number = match template.stages.0.len() {
            1 => 0,
            // The suffix in the name of a further instance.
            _ => AT.len_utf8() + 1,
        };
        let most = NAME_MAX - AT.len_utf8() - CLIENT_CHARS_MAX - number;
        if name.len() > most {
            report.error(
                &path,
                "the template's name is too long: the name of a client is appended to it",
                format!("use at most {most} characters"),
            );
        }
        for (at, stage) in template.stages.0.iter().enumerate() {
            let path = stage_place(&path, at, report);
            check_ports(stage, &path, report);
            check_place(stage, &path, report);
        }
        check_instances(
            deployment,
            (name, template),
            &path,
            background,
            environment,
            report,
        );
    }
    check_overlaps(deployment, report);
    check_room(deployment, environment, report);
}

/// Returns the key path of a template in the document. A chain with `activate` is a template as well.
pub(super) fn place(name: &str, report: &Report<'_>) -> String {
    let chain = format!("chains.{name}");
    if report.has(&format!("{chain}.activate")) {
        chain
    } else {
        format!("templates.{name}")
    }
}

/// Returns the key path of one of the template's instances.
fn stage_place(template: &str, at: usize, report: &Report<'_>) -> String {
    if report.has(&format!("{template}.via")) {
        format!("{template}.via[{at}]")
    } else {
        template.to_owned()
    }
}

fn check_ports(stage: &Stage, path: &str, report: &mut Report<'_>) {
    let ports = &stage.instance.ports;
    for (key, port) in [("in", &stage.input), ("out", &stage.output)] {
        if !ports.contains(port) {
            report.error(
                &format!("{path}.{key}"),
                format!("its instance has no port '{}'", port.escape_debug()),
                did_you_mean(port, ports.names(), "the ports are"),
            );
        }
    }
    if stage.input == stage.output {
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
                "an instance of a template cannot be on a switch",
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
    for (name, _) in long_ports(&stage.instance) {
        report.error(
            &format!("{path}.instance.ports.{name}.mtu"),
            format!(
                "an instance of a template has no memory for packets above {SLOT_MTU_MAX} bytes"
            ),
            "write a smaller 'mtu'",
        );
    }
}

/// Reports keys that instances on demand do not support.
fn check_place(stage: &Stage, path: &str, report: &mut Report<'_>) {
    let instance = &stage.instance;
    if !instance.tier.capabilities().on_demand {
        let tiers = Tier::ALL.iter().filter(|it| it.capabilities().on_demand);
        let names: Vec<_> = tiers.map(|tier| format!("'{tier}'")).collect();
        report.error(
            &format!("{path}.instance.tier"),
            format!(
                "an instance of a template must be of tier {}",
                names.join(" or ")
            ),
            "remove 'tier'; fast paths are instances of their own",
        );
    }
    let mut ports = instance.ports.iter();
    let asked = [
        (
            "ports.security_groups",
            ports.any(|(_, port)| port.security_groups.is_some()),
        ),
        ("share", instance.share.is_some()),
        ("guarantee", instance.guarantee.is_some()),
        ("group", instance.group.is_some()),
        ("trust", instance.trust.is_some()),
        ("replicas", instance.members() > 1),
    ];
    for (key, _) in asked.into_iter().filter(|(_, is_there)| *is_there) {
        report.error(
            &format!("{path}.instance.{key}"),
            format!("'{key}' is not supported for instances on demand"),
            "remove it; 'cap' and 'memory' limit each instance",
        );
    }
}

/// Returns an example of a client.
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

fn check_instances(
    deployment: &Deployment,
    (name, template): (&str, &Template),
    path: &str,
    background: Background<'_>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let guest = example(name, template);
    let instances = match template.instances_of(&guest) {
        Ok(instances) => instances,
        Err((at, unknown)) => {
            let path = format!("{}.instance", stage_place(path, at, report));
            return report_variable(&unknown, &path, background, report);
        }
    };
    let root = background.root;
    let host_bytes = environment.host.memory_bytes();
    let pools = pools(deployment);
    let mut lacking = BTreeSet::new();
    for (at, instance) in instances.iter().enumerate() {
        let path = format!("{}.instance", stage_place(path, at, report));
        let name = guest.name_at(at);
        if instance.stack.is_some() {
            report.error(
                &format!("{path}.listen"),
                "the instances of all clients would listen at the same address",
                "remove 'listen'",
            );
            continue;
        }
        check_program(&name, instance, &path, root, environment, report);
        check_memory(deployment, instance, &path, host_bytes, report);
        let spec = InstanceSpec::resolve(deployment, &name, instance);
        if pools.values().any(|pool| pool.suits(&spec)) {
            continue;
        }
        let purpose = match instance.program {
            Program::BuiltIn { .. } => "",
            Program::Path { .. } | Program::Image { .. } => "for: programs, ",
        };
        let remedy = format!(
            "add 'pool: {{ NAME: {{ flavor: {}, ports: {}, {purpose}size: rate }} }}'",
            instance.flavor,
            instance.ports.len()
        );
        if lacking.insert(remedy.clone()) {
            report.warning(
                &path,
                "no pool has shells for these instances: each client's first frame waits for a new process",
                remedy,
            );
        }
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
        "there is no variable '{}', or its closing brace is missing",
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

/// Reports two templates at one uplink that match the same frame: the second one would get only some of its clients.
fn check_overlaps(deployment: &Deployment, report: &mut Report<'_>) {
    let ends = |template: &Template| {
        [
            (template.from.clone(), template.forward_rules()),
            (template.to.clone(), template.return_rules()),
        ]
    };
    let all: Vec<(&str, &Template)> = deployment.templates.iter().collect();
    for (i, (name, template)) in all.iter().enumerate() {
        let path = place(name, report);
        if report.is_spoilt(&path) {
            continue;
        }
        let overlaps = |other: &Template| {
            let (own, others) = (ends(template), ends(other));
            own.iter().find_map(|(port, rules)| {
                let at_port = others.iter().filter(|(other, _)| other == port);
                let mut theirs = at_port.flat_map(|(_, rules)| rules.iter());
                let meets = theirs.any(|theirs| rules.iter().any(|own| own.meets(theirs)));
                // An empty list of rules matches every frame.
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

/// Checks that the host has room for the instances of the maximum number of clients.
fn check_room(deployment: &Deployment, environment: Environment<'_>, report: &mut Report<'_>) {
    let host_bytes = environment.host.memory_bytes();
    let instances = deployment.instances.iter();
    let mut ports: u64 = instances
        .map(|(_, instance)| instance.queues() as u64)
        .sum();
    ports += deployment.uplinks.len() as u64;
    for (name, template) in deployment.templates.iter() {
        let path = place(name, report);
        let most = u64::from(template.most);
        let bytes = bytes_of_client(deployment, template);
        if bytes.saturating_mul(most) > host_bytes {
            let what = match template.stages.0.len() {
                1 => format!("{most} instances"),
                several => format!("{several} instances for each of {most} clients"),
            };
            report.error(
                &format!("{path}.most"),
                format!(
                    "{what} need {} MiB for their rings and programs, the host has {} MiB",
                    bytes.saturating_mul(most) >> 20,
                    host_bytes >> 20
                ),
                format!(
                    "write at most {}, or choose a flavor with smaller rings",
                    host_bytes / bytes
                ),
            );
        }
        let stages = template.stages.0.iter();
        let each: u64 = stages.map(|stage| stage.instance.queues() as u64).sum();
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
