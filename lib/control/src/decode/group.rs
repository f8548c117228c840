//! Groups of tenants, and the keys that instances and groups have in common.

use super::fields::{Fields, name};
use crate::group::Group;
use crate::placement::Placement;
use crate::report::Report;
use crate::yaml::Node;

pub fn group(node: &Node, path: &str, report: &mut Report<'_>) -> Group {
    let Some(mut fields) = Fields::new(node, path, report) else {
        return Group::default();
    };
    let group = Group {
        group: parent(&mut fields, report),
        share: fields.parsed("share", report),
        cap: fields.parsed("cap", report),
        guarantee: fields.parsed("guarantee", report),
    };
    fields.finish(report);
    group
}

/// Reads the group that an instance or a group is a member of.
pub fn parent(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<String> {
    let (node, path) = fields.get("group")?;
    name(node, &path, report)
}

/// Reads the placement policy.
pub fn placement(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<Placement> {
    fields.choice("placement", &Placement::WORDS, report)
}
