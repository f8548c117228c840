//! A change of a few objects: its form on disk, and its effect on a deployment.

use super::index::{Index, Use};
use crate::decode::decode;
use crate::model::{Deployment, PortRef};
use crate::report::Report;
use crate::yaml::Node;
use nfluid_api::types::Diagnostic;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The names of removed objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// Instances.
    pub instances: Vec<String>,
    /// Their links.
    pub links: Vec<String>,
}

/// A change.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step<'a> {
    /// Instances and links, in the syntax of a document.
    Add(&'a Deployment),
    /// Removed instances and links.
    Remove(&'a Gone),
}

/// A step as it is read from disk.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept {
    Add(Value),
    Remove(Gone),
}

/// Applies saved steps, one per line, in their order.
///
/// # Errors
/// Names the line and its fault.
pub fn replay(whole: &mut Deployment, lines: &str) -> Result<(), String> {
    let mut index = Index::of(whole, 1);
    for (number, line) in lines.lines().enumerate() {
        let wrong = |why: String| format!("change {}: {why}", number + 1);
        match serde_json::from_str(line).map_err(|error| wrong(error.to_string()))? {
            Kept::Remove(gone) => take_out(whole, &mut index, &gone),
            Kept::Add(value) => {
                let root = Node::from_json(&value);
                let mut report = Report::new(None, None);
                let added = decode(&root, &Default::default(), &mut report);
                report.finish().map_err(|errors| {
                    let first = errors.first().map(Diagnostic::to_string);
                    wrong(first.unwrap_or_default())
                })?;
                insert(whole, &mut index, added);
            }
        }
    }
    Ok(())
}

/// Returns true if a document has instances and links, and nothing else.
pub fn refers_to_nothing_else(added: &Deployment) -> bool {
    let objects_only = Deployment {
        overcommit: added.overcommit,
        instances: added.instances.clone(),
        links: added.links.clone(),
        ..Deployment::default()
    };
    objects_only == *added
}

/// Adds objects.
pub fn insert(whole: &mut Deployment, index: &mut Index, added: Deployment) {
    for (name, instance) in added.instances.iter() {
        index.add_instance(name, instance);
        whole.instances.insert(name, instance.clone());
    }
    for link in added.links {
        index.add_link(&link, whole.links.len());
        whole.links.push(link);
    }
}

/// Removes objects. Others may take their places in the lists, whose order means nothing.
pub fn take_out(whole: &mut Deployment, index: &mut Index, gone: &Gone) {
    for name in &gone.instances {
        let ports = whole.instances.get(name).map(|instance| &instance.ports);
        let ports: Vec<PortRef> = ports
            .into_iter()
            .flat_map(|ports| ports.names())
            .map(|port| PortRef::instance(name, port))
            .collect();
        for port in ports {
            if let Some(Use::Link(at)) = index.use_of(&port) {
                remove_link(whole, index, at);
            }
        }
        if let Some(instance) = whole.instances.take(name) {
            index.remove_instance(name, &instance);
        }
    }
}

fn remove_link(whole: &mut Deployment, index: &mut Index, at: usize) {
    if at >= whole.links.len() {
        return;
    }
    let link = whole.links.swap_remove(at);
    index.remove_link(&link);
    if let Some(moved) = whole.links.get(at) {
        index.add_link(moved, at);
    }
}
