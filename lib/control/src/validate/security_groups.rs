//! Security groups: rules that make sense, groups that exist, ports that can have a guard.

use crate::guards::guard_of;
use crate::matching::Protocol;
use crate::model::{Deployment, Family, Instance, NAME_MAX, Port, Remote, SecurityRule};
use crate::report::{Report, did_you_mean};

const ICMP: Protocol = Protocol(1);
const ICMPV6: Protocol = Protocol(58);

pub fn check(deployment: &Deployment, report: &mut Report<'_>) {
    for (name, group) in deployment.security_groups.iter() {
        for (i, rule) in group.rules.iter().enumerate() {
            let path = format!("security_groups.{name}.rules[{i}]");
            check_rule(rule, &path, report);
            if let Remote::Group { remote_group } = &rule.remote {
                exists(
                    deployment,
                    remote_group,
                    &format!("{path}.remote_group"),
                    report,
                );
            }
        }
    }
    for (name, instance) in deployment.instances.iter() {
        for (port_name, port) in instance.ports.iter() {
            let path = format!("instances.{name}.ports.{port_name}");
            check_port(deployment, instance, port, &path, report);
            let guard = guard_of(name, port_name);
            if port.is_guarded() && guard.len() > NAME_MAX {
                report.error(
                    &format!("{path}.security_groups"),
                    format!(
                        "the name of the port's guard, '{guard}', has {} characters",
                        guard.len()
                    ),
                    format!("shorten the names of instance and port: at most {NAME_MAX} fit"),
                );
            }
        }
    }
}

fn check_rule(rule: &SecurityRule, path: &str, report: &mut Report<'_>) {
    let has_ports = rule.protocol.is_some_and(Protocol::has_ports);
    for (key, ports) in [("ports", rule.ports), ("source_ports", rule.source_ports)] {
        if ports.is_some() && !has_ports {
            report.error(
                &format!("{path}.{key}"),
                "only TCP, UDP and SCTP have ports",
                "add 'protocol: tcp', 'udp' or 'sctp'",
            );
        }
    }
    if rule.icmp.is_some() && !matches!(rule.protocol, Some(ICMP | ICMPV6)) {
        report.error(
            &format!("{path}.icmp"),
            "only ICMP has types of messages",
            "add 'protocol: icmp', or 'protocol: icmpv6'",
        );
    }
    let of_protocol = match rule.protocol {
        Some(ICMP) => Some(Family::Ipv4),
        Some(ICMPV6) => Some(Family::Ipv6),
        _ => None,
    };
    let of_remote = match &rule.remote {
        Remote::Prefix { remote } => Some(Family::of(remote)),
        _ => None,
    };
    let mut named = [rule.family, of_protocol, of_remote].into_iter().flatten();
    let first = named.next();
    if named.any(|family| Some(family) != first) {
        report.error(
            path,
            "the rule is about IPv4 and IPv6 at once, and permits nothing",
            "use one version of IP for 'family', 'protocol' and 'remote'",
        );
    }
}

fn exists(deployment: &Deployment, group: &str, path: &str, report: &mut Report<'_>) {
    if !deployment.security_groups.contains(group) {
        let names = deployment.security_groups.names();
        report.error(
            path,
            format!("there is no security group '{}'", group.escape_debug()),
            did_you_mean(group, names, "the security groups are"),
        );
    }
}

fn check_port(
    deployment: &Deployment,
    instance: &Instance,
    port: &Port,
    path: &str,
    report: &mut Report<'_>,
) {
    let Some(groups) = &port.security_groups else {
        if !port.allowed_addresses.is_empty() {
            report.error(
                &format!("{path}.allowed_addresses"),
                "without security groups, a port may use any address",
                "add 'security_groups', or remove 'allowed_addresses'",
            );
        }
        return;
    };
    for (i, group) in groups.iter().enumerate() {
        exists(
            deployment,
            group,
            &format!("{path}.security_groups[{i}]"),
            report,
        );
    }
    let at = format!("{path}.security_groups");
    if port.attachment.is_none() {
        report.error(
            &at,
            "security groups are for ports on a switch",
            "add 'switch: NAME'; for a link or a chain, put a firewall into it",
        );
    } else if instance.trust.is_some() {
        report.error(
            &at,
            "a port of a trust group hands its memory to its neighbours, also to a guard",
            "remove 'trust', or put a firewall into the group yourself",
        );
    }
}
