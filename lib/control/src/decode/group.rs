//! Groups of tenants, and what instances have in common with them.

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

/// The group that something is in.
pub fn parent(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<String> {
    let (node, path) = fields.get("group")?;
    name(node, &path, report)
}

/// Who decides where instances run.
pub fn placement(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<Placement> {
    fields.choice("placement", &Placement::WORDS, report)
}
