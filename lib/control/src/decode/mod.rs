//! From a document to a [`Deployment`], reporting everything that cannot be read.
//!
//! What can be read is returned also when something else cannot, so that the checks that follow
//! find the rest of the errors.

mod fields;
mod instance;
mod network;

use crate::model::{Deployment, FORMAT_VERSION, check_name};
use crate::report::Report;
use crate::table::Table;
use crate::yaml::Node;
use fields::{Fields, join, mapping, report_duplicates};
use std::collections::BTreeMap;

/// Texts of files that a document names, by that name.
pub type Attachments = BTreeMap<String, String>;

/// Keys of an NF's configuration that name a file, and the keys under which the NF gets its text.
pub const FILE_KEYS: [(&str, &str); 2] = [("rules_file", "rules"), ("routes_file", "routes_text")];

/// The files that a document names in instances' configurations, with the key path of each.
/// Whoever sends the document sends their texts as attachments.
pub fn attached_files(root: &Node) -> Vec<(String, String)> {
    let Some(instances) = root.get("instances") else {
        return Vec::new();
    };
    let crate::yaml::Kind::Mapping(entries) = &instances.kind else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for entry in entries {
        let Some(config) = entry.value.get("config") else {
            continue;
        };
        for (key, _) in FILE_KEYS {
            if let Some(scalar) = config.get(key).and_then(Node::as_scalar) {
                let path = format!("instances.{}.config.{key}", entry.key);
                files.push((path, scalar.text.clone()));
            }
        }
    }
    files
}

/// Reads a document.
pub fn decode(root: &Node, attachments: &Attachments, report: &mut Report<'_>) -> Deployment {
    let mut deployment = Deployment::default();
    report_duplicates(root, "", report);
    let Some(mut fields) = Fields::new(root, "", report) else {
        return deployment;
    };
    version(&mut fields, report);
    deployment.overcommit = fields.flag("overcommit", report).unwrap_or(false);
    deployment.flavors = table(fields.get("flavors"), report, network::flavor);
    deployment.uplinks = table(fields.get("uplinks"), report, network::uplink);
    deployment.switches = table(fields.get("switches"), report, network::switch);
    deployment.instances = table(fields.get("instances"), report, |node, path, report| {
        instance::instance(node, path, attachments, report)
    });
    if let Some((node, path)) = fields.get("links") {
        deployment.links = network::links(node, &path, report);
    }
    deployment.chains = table(fields.get("chains"), report, network::chain);
    fields.finish(report);
    deployment
}

fn version(fields: &mut Fields<'_>, report: &mut Report<'_>) {
    let write = format!("write 'version: {FORMAT_VERSION}'");
    match fields.get("version") {
        None => report.error("", "the document does not say its version", write),
        Some((node, path)) => {
            let found = node.as_scalar().and_then(|scalar| scalar.as_integer());
            if found != Some(i64::from(FORMAT_VERSION)) {
                let message = "this version of the format is not known here";
                report.error_at(node.mark, &path, message, write);
            }
        }
    }
}

/// Reads a mapping from names to things of one kind.
fn table<T>(
    field: Option<(&Node, String)>,
    report: &mut Report<'_>,
    mut read: impl FnMut(&Node, &str, &mut Report<'_>) -> T,
) -> Table<T> {
    let mut table = Table::new();
    let Some((node, path)) = field else {
        return table;
    };
    for entry in mapping(node, &path, report).unwrap_or(&[]) {
        let path = join(&path, &entry.key);
        if let Err(error) = check_name(&entry.key) {
            report.bad_value(entry.key_mark, &path, error);
        }
        let value = read(&entry.value, &path, report);
        if !table.contains(&entry.key) {
            table.insert(entry.key.clone(), value);
        }
    }
    table
}
