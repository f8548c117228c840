//! Security groups, and what ports say about them.

use super::fields::{Fields, list, name, read};
use super::instance::owner;
use crate::matching::parse_prefix;
use crate::model::{Direction, Family, Remote, SecurityGroup, SecurityRule};
use crate::report::Report;
use crate::yaml::Node;
use ipnet::IpNet;

/// Words of directions, also those of OpenStack.
const DIRECTIONS: [(&str, Direction); 4] = [
    ("in", Direction::In),
    ("out", Direction::Out),
    ("ingress", Direction::In),
    ("egress", Direction::Out),
];
const FAMILIES: [(&str, Family); 2] = [("ipv4", Family::Ipv4), ("ipv6", Family::Ipv6)];

pub fn security_group(node: &Node, path: &str, report: &mut Report<'_>) -> SecurityGroup {
    let mut group = SecurityGroup::default();
    let Some(mut fields) = Fields::new(node, path, report) else {
        return group;
    };
    group.owner = owner(&mut fields, report);
    group.allowed_addresses = prefixes("allowed_addresses", &mut fields, report);
    group.members = prefixes("members", &mut fields, report);
    if let Some((node, path)) = fields.get("rules") {
        let rules = list(node, &path, report).iter().enumerate();
        let rules = rules.filter_map(|(i, node)| rule(node, &format!("{path}[{i}]"), report));
        group.rules = rules.collect();
    }
    fields.finish(report);
    group
}

fn rule(node: &Node, path: &str, report: &mut Report<'_>) -> Option<SecurityRule> {
    let mut fields = Fields::new(node, path, report)?;
    let has_direction = fields.get("direction").is_some();
    let direction = fields.choice("direction", &DIRECTIONS, report);
    if !has_direction {
        let remedy = "write 'direction: in' for what others open, 'direction: out' for what the instance opens";
        report.error_at(node.mark, path, "the rule has no direction", remedy);
    }
    let family = fields.choice("family", &FAMILIES, report);
    let protocol = fields.parsed("protocol", report);
    let ports = fields.parsed("ports", report);
    let source_ports = fields.parsed("source_ports", report);
    let icmp = fields.parsed("icmp", report);
    let remote = remote(&mut fields, report);
    fields.finish(report);
    Some(SecurityRule {
        direction: direction?,
        family,
        protocol,
        ports,
        source_ports,
        icmp,
        remote,
    })
}

fn remote(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Remote {
    let prefix = fields.get("remote");
    let group = fields.get("remote_group");
    match (prefix, group) {
        (None, None) => Remote::Anybody {},
        (Some((node, path)), None) => {
            let prefix = read(node, &path, report, parse_prefix);
            prefix.map_or(Remote::Anybody {}, |remote| Remote::Prefix { remote })
        }
        (None, Some((node, path))) => {
            let group = name(node, &path, report);
            group.map_or(Remote::Anybody {}, |remote_group| Remote::Group {
                remote_group,
            })
        }
        (Some(_), Some((node, path))) => {
            let message = "there is a 'remote' as well";
            report.error_at(node.mark, &path, message, "write two rules");
            Remote::Anybody {}
        }
    }
}

/// Reads the names of a port's groups; absent: the port is not guarded.
pub fn groups_of_port(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<Vec<String>> {
    let (node, path) = fields.get("security_groups")?;
    let names = list(node, &path, report).iter().enumerate();
    Some(
        names
            .filter_map(|(i, node)| name(node, &format!("{path}[{i}]"), report))
            .collect(),
    )
}

/// Reads addresses and prefixes.
pub fn prefixes(key: &'static str, fields: &mut Fields<'_>, report: &mut Report<'_>) -> Vec<IpNet> {
    let Some((node, path)) = fields.get(key) else {
        return Vec::new();
    };
    let texts = list(node, &path, report).iter().enumerate();
    texts
        .filter_map(|(i, node)| read(node, &format!("{path}[{i}]"), report, parse_prefix))
        .collect()
}
