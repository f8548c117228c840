//! Decodes a document into a [`Deployment`], and reports everything that cannot be read.
//!
//! The readable parts are returned even if other parts cannot be read, so that the checks that follow find the
//! remaining errors.

mod access;
mod config;
mod congestion;
mod cpus;
mod fast;
mod fields;
mod group;
mod health;
mod instance;
mod interface;
mod io;
mod network;
mod pool;
mod security_group;
mod slow;
mod stack;
mod table;
mod template;

use crate::attachments::{Attachments, is_on_demand};
use crate::model::{Deployment, FORMAT_VERSION};
use crate::report::Report;
use crate::yaml::Node;
use fields::{Fields, report_duplicates};
use table::{table, table_of};

pub(crate) use fields::join;

/// Decodes a document.
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
    deployment.security_groups = table(
        fields.get("security_groups"),
        report,
        security_group::security_group,
    );
    let mut slow_paths = Vec::new();
    deployment.instances = table(fields.get("instances"), report, |node, path, report| {
        let name = path.strip_prefix("instances.").unwrap_or(path);
        let ports = slow::ports_of(node);
        slow_paths.extend(ports.map(|ports| (name.to_owned(), ports)));
        instance::instance(node, path, attachments, report)
    });
    if let Some((node, path)) = fields.get("slices") {
        // A mapping was written out already.
        fields::wrong_type(node, &path, "a mapping (name: slice)", report);
    }
    if let Some((node, path)) = fields.get("links") {
        deployment.links = network::links(node, &path, report);
    }
    let chains = fields.get("chains");
    // `chains` is read twice, but a wrong type is reported only once.
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
                format!(
                    "a template has the name '{name}' already, and a chain on demand is a template"
                ),
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
        None => report.error("", "the document has no version", write),
        Some((node, path)) => {
            let found = node.as_scalar().and_then(|scalar| scalar.as_integer());
            if found != Some(i64::from(FORMAT_VERSION)) {
                let message = "this version of the format is not supported";
                report.error_at(node.mark, &path, message, write);
            }
        }
    }
}
