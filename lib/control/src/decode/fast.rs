//! Instances of tier `xdp`.

use super::config::config;
use super::fields::{Fields, text};
use super::instance::owner;
use super::network::fast_mode;
use super::slow::{SlowValue, slow};
use crate::attachments::Attachments;
use crate::fast::{Attach, Beside, Direction, ORDER_MAX, PRIORITY_MAX};
use crate::model::{Instance, Program};
use crate::report::Report;
use crate::table::Table;
use crate::tier::{PortKind, Tier};
use crate::yaml::{Kind, Node};

const DIRECTIONS: [(&str, Direction); 2] = [
    ("ingress", Direction::Ingress),
    ("egress", Direction::Egress),
];

const NEIGHBOURS: [(&str, Beside); 1] = [("libxdp", Beside::Libxdp)];

/// Returns true if `node` is an instance of a tier whose ports are interfaces.
pub fn has_interface_ports(node: &Node) -> bool {
    let tier = node.get("tier").and_then(Node::as_scalar);
    let of_interfaces = |tier: &Tier| tier.takes(PortKind::Interfaces);
    let named = |text: &str| Tier::ALL.into_iter().find(|tier| tier.0.name == text);
    tier.and_then(|tier| named(&tier.text))
        .is_some_and(|tier| of_interfaces(&tier))
}

pub fn fast_path(
    node: &Node,
    path: &str,
    attachments: &Attachments,
    report: &mut Report<'_>,
) -> Instance {
    let mut found = Instance {
        ports: Table::new(),
        flavor: String::new(),
        tier: Tier::XDP,
        attach: Some(Attach::default()),
        ..Instance::default()
    };
    let Some(mut fields) = Fields::new(node, path, report) else {
        return found;
    };
    let _known = fields.get("tier");
    match fields.get("nf") {
        None => report.error(
            path,
            "the instance has no program",
            "add 'nf: NAME', a network function that has a fast path",
        ),
        Some((node, path)) => {
            let nf = text(node, &path, report).unwrap_or_default().to_owned();
            found.program = Program::BuiltIn { nf };
        }
    }
    found.owner = owner(&mut fields, report);
    if let Some((node, path)) = fields.get("config") {
        found.config = config(node, &path, attachments, report);
    }
    let interfaces = match fields.get("interface") {
        None => {
            let remedy = "add 'interface: NAME', or 'interface: [A, B]'";
            report.error(path, "the instance has no interface", remedy);
            Vec::new()
        }
        Some((node, path)) => names(node, &path, report),
    };
    found.attach = Some(Attach {
        interfaces,
        netns: fields.text("netns", report),
        mode: fast_mode(&mut fields, report),
        direction: fields
            .choice("direction", &DIRECTIONS, report)
            .unwrap_or_default(),
        order: fields
            .integer("order", (1, i64::from(ORDER_MAX)), report)
            .and_then(|order| u16::try_from(order).ok()),
        beside: fields.choice("beside", &NEIGHBOURS, report),
        priority: fields
            .integer("priority", (1, i64::from(PRIORITY_MAX)), report)
            .and_then(|priority| u32::try_from(priority).ok()),
        slow: match slow(&mut fields, report) {
            Some(SlowValue::Taps(taps)) => Some(taps),
            // Replaced by taps after the whole document has been read.
            Some(SlowValue::Ports(_)) | None => None,
        },
    });
    fields.finish(report);
    found
}

/// Reads a name, or a list of names.
fn names(node: &Node, path: &str, report: &mut Report<'_>) -> Vec<String> {
    let Kind::Sequence(items) = &node.kind else {
        return text(node, path, report)
            .map(str::to_owned)
            .into_iter()
            .collect();
    };
    if items.is_empty() {
        let remedy = "name at least one interface";
        report.error_at(node.mark, path, "the list is empty", remedy);
    }
    let texts = items.iter().enumerate();
    let texts = texts
        .filter_map(|(i, item)| text(item, &format!("{path}[{i}]"), report).map(str::to_owned));
    texts.collect()
}
