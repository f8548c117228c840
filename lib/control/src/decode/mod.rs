//! From a document to a [`Deployment`], reporting everything that cannot be read.
//!
//! What can be read is returned also when something else cannot, so that the checks that follow
//! find the rest of the errors.

mod congestion;
mod fast;
mod fields;
mod group;
mod health;
mod instance;
mod io;
mod network;
mod pool;
mod slow;
mod stack;
mod template;

use crate::model::{Deployment, FORMAT_VERSION, check_name};
use crate::report::Report;
use crate::table::Table;
use crate::yaml::Node;
use fields::{Fields, mapping, report_duplicates};
use std::collections::BTreeMap;

pub(crate) use fields::join;

/// Texts of files that a document names, by that name.
pub type Attachments = BTreeMap<String, String>;

/// Keys of an NF's configuration that name a file, and the keys under which the NF gets its text.
pub const FILE_KEYS: [(&str, &str); 2] = [("rules_file", "rules"), ("routes_file", "routes_text")];

/// The files that a document names in instances' configurations, with the key path of each.
/// Whoever sends the document sends their texts as attachments.
pub fn attached_files(root: &Node) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let entries = |table| match root.get(table).map(|table| &table.kind) {
        Some(crate::yaml::Kind::Mapping(entries)) => entries.as_slice(),
        _ => &[],
    };
    let instances = entries("instances").iter().map(|entry| {
        let path = format!("instances.{}", entry.key);
        (path, Some(&entry.value))
    });
    let of = |table: &'static str| {
        let entries = entries(table).iter();
        entries.map(move |entry| (format!("{table}.{}", entry.key), &entry.value))
    };
    let templates = of("templates").chain(of("chains").filter(|(_, chain)| is_on_demand(chain)));
    let stages = templates.flat_map(|(path, template)| {
        let several = match template.get("via").map(|via| &via.kind) {
            Some(crate::yaml::Kind::Sequence(items)) => items.as_slice(),
            _ => &[],
        };
        let several = several.iter().enumerate();
        let several = several.map(|(at, item)| (format!("{path}.via[{at}].instance"), item));
        let one = (format!("{path}.instance"), template);
        let all: Vec<_> = several.chain([one]).collect();
        all.into_iter()
            .map(|(path, stage)| (path, stage.get("instance")))
    });
    for (path, instance) in instances.chain(stages) {
        let Some(config) = instance.and_then(|instance| instance.get("config")) else {
            continue;
        };
        for (key, _) in FILE_KEYS {
            if let Some(scalar) = config.get(key).and_then(Node::as_scalar) {
                files.push((format!("{path}.config.{key}"), scalar.text.clone()));
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
    deployment.io = fields
        .get("io")
        .map(|(node, path)| io::io(node, &path, report));
    deployment.placement = group::placement(&mut fields, report);
    deployment.groups = table(fields.get("groups"), report, group::group);
    deployment.congestion = fields
        .get("congestion")
        .map(|(node, path)| congestion::congestion(node, &path, report));
    deployment.flavors = table(fields.get("flavors"), report, network::flavor);
    deployment.pool = table(fields.get("pool"), report, pool::pool);
    deployment.uplinks = table(fields.get("uplinks"), report, network::uplink);
    deployment.switches = table(fields.get("switches"), report, network::switch);
    let mut slow_paths = Vec::new();
    deployment.instances = table(fields.get("instances"), report, |node, path, report| {
        let name = path.strip_prefix("instances.").unwrap_or(path);
        let ports = slow::ports_of(node);
        slow_paths.extend(ports.map(|ports| (name.to_owned(), ports)));
        instance::instance(node, path, attachments, report)
    });
    if let Some((node, path)) = fields.get("links") {
        deployment.links = network::links(node, &path, report);
    }
    let chains = fields.get("chains");
    // That it is no mapping is said once.
    let again = chains
        .clone()
        .filter(|(chains, _)| matches!(chains.kind, crate::yaml::Kind::Mapping(_)));
    deployment.chains = table_of(chains, report, |it| !is_on_demand(it), network::chain);
    let mut template = |node: &Node, path: &str, report: &mut Report<'_>| {
        template::template(node, path, attachments, report)
    };
    deployment.templates = table(fields.get("templates"), report, &mut template);
    let on_demand = table_of(again, report, is_on_demand, &mut template);
    for (name, template) in on_demand.iter() {
        if deployment.templates.contains(name) {
            report.error(
                &format!("chains.{name}"),
                format!("there is a template '{name}', and a chain on demand is one"),
                "rename one of them",
            );
        }
        deployment.templates.insert(name, template.clone());
    }
    slow::write_out(&mut deployment, slow_paths, report);
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

/// Whether a chain is made when somebody comes: a template by another name.
pub(crate) fn is_on_demand(chain: &Node) -> bool {
    chain.get("activate").is_some()
}

/// Reads a mapping from names to things of one kind.
fn table<T>(
    field: Option<(&Node, String)>,
    report: &mut Report<'_>,
    read: impl FnMut(&Node, &str, &mut Report<'_>) -> T,
) -> Table<T> {
    table_of(field, report, |_| true, read)
}

/// The same, of those among them that are meant.
fn table_of<T>(
    field: Option<(&Node, String)>,
    report: &mut Report<'_>,
    is_meant: impl Fn(&Node) -> bool,
    mut read: impl FnMut(&Node, &str, &mut Report<'_>) -> T,
) -> Table<T> {
    let mut table = Table::new();
    let Some((node, path)) = field else {
        return table;
    };
    let entries = mapping(node, &path, report).unwrap_or(&[]);
    for entry in entries.iter().filter(|entry| is_meant(&entry.value)) {
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
