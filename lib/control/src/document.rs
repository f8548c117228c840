//! From a text to a validated deployment, and back.

use crate::attachments::{Attachments, attached_files};
use crate::decode::decode;
use crate::model::{Deployment, Link, Owned, PortRef};
use crate::report::Report;
use crate::slices;
use crate::table::Table;
use crate::validate::{Background, Environment, validate};
use crate::yaml::{Node, SyntaxError};
use nfluid_api::types::{ApplyRequest, Cause, Diagnostic};
use std::collections::HashSet;

/// Maximum total size in bytes of the attachments of a request.
pub const ATTACHMENT_BYTES_MAX: usize = 48 << 20;

/// A deployment and the warnings about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The deployment.
    pub deployment: Deployment,
    /// Accepted parts that are probably mistakes.
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks the document of a request. With `merge`, it is added to `present`; otherwise it takes its place, except for the objects of
/// engines, which stay.
///
/// # Errors
/// All faults of the document, in the order of the document.
pub fn read(
    request: &ApplyRequest,
    present: &Deployment,
    environment: Environment<'_>,
) -> Result<Checked, Vec<Diagnostic>> {
    let file = request.file.as_deref();
    let attached: usize = request.attachments.values().map(String::len).sum();
    if attached > ATTACHMENT_BYTES_MAX {
        return Err(vec![Diagnostic {
            file: request.file.clone(),
            message: format!(
                "the files that the document names have {} MiB together",
                attached >> 20
            ),
            remedy: format!("at most {} MiB are accepted", ATTACHMENT_BYTES_MAX >> 20),
            ..Diagnostic::default()
        }]);
    }
    let root = slices::document(&request.text).map_err(|error| vec![syntax_error(error, file)])?;
    let mut report = Report::new(file, Some(&root));
    let mut deployment = decode(&root, &request.attachments, &mut report);
    refuse_others(
        present,
        &deployment,
        request.replaces.as_deref(),
        &mut report,
    );
    if request.merge {
        let chains = deployment.templates.names();
        let chains = chains.filter(|name| report.has(&format!("chains.{name}.activate")));
        let chains: Vec<String> = chains.map(str::to_owned).collect();
        deployment = merged(present, deployment);
        for name in chains {
            // The chain existed without 'activate'.
            deployment.chains.remove(&name);
        }
    } else {
        keep_owned(present, &mut deployment);
    }
    let background = Background {
        root: Some(&root),
        present: Some(present),
    };
    validate(&deployment, background, environment, &mut report);
    let mut warnings = report.finish()?;
    if request.merge {
        // The user who wrote the existing parts has seen their warnings already.
        warnings.retain(|warning| warning.line.is_some());
    }
    Ok(Checked {
        deployment,
        warnings,
    })
}

/// Reads a document without checking that its parts are consistent with each other.
///
/// # Errors
/// All parts that cannot be read.
pub fn read_unchecked(text: &str, file: Option<&str>) -> Result<Deployment, Vec<Diagnostic>> {
    let root = slices::document(text).map_err(|error| vec![syntax_error(error, file)])?;
    let attachments = placeholders(&root);
    let mut report = Report::new(file, Some(&root));
    let deployment = decode(&root, &attachments, &mut report);
    report.finish().map(|_| deployment)
}

/// Returns an empty text for each file that the document names. A request that needs only the names of a document's
/// objects can then omit the files.
fn placeholders(root: &Node) -> Attachments {
    let files = attached_files(root);
    files
        .into_iter()
        .map(|(_, file)| (file, String::new()))
        .collect()
}

fn syntax_error(error: SyntaxError, file: Option<&str>) -> Diagnostic {
    Diagnostic {
        file: file.map(str::to_owned),
        line: Some(error.mark.line),
        column: Some(error.mark.column),
        path: String::new(),
        message: error.message,
        remedy: error.remedy,
        ..Diagnostic::default()
    }
}

/// Refuses changes of objects that belong to somebody else, unless it is whom they replace.
fn refuse_others(
    present: &Deployment,
    deployment: &Deployment,
    replaces: Option<&str>,
    report: &mut Report<'_>,
) {
    let (old, new) = (&present.instances, &deployment.instances);
    refuse_taken(("instances", "instance"), old, new, replaces, report);
    let (old, new) = (&present.uplinks, &deployment.uplinks);
    refuse_taken(("uplinks", "uplink"), old, new, None, report);
    let (old, new) = (&present.switches, &deployment.switches);
    refuse_taken(("switches", "switch"), old, new, None, report);
    let (old, new) = (&present.security_groups, &deployment.security_groups);
    let words = ("security_groups", "security group");
    refuse_taken(words, old, new, None, report);
}

fn refuse_taken<T: Owned>(
    (all, one): (&str, &str),
    present: &Table<T>,
    wanted: &Table<T>,
    replaces: Option<&str>,
    report: &mut Report<'_>,
) {
    for (name, new) in wanted.iter() {
        let old = present.get(name);
        let Some(old) = old.filter(|old| old.owner() != new.owner()) else {
            continue;
        };
        let owner = old.owner();
        if owner.is_some() && owner == replaces {
            continue;
        }
        let owner = owner.map_or_else(
            || "nobody's in particular".to_owned(),
            |owner| format!("'{owner}'s"),
        );
        report.error_because(
            Cause::NotYours,
            &format!("{all}.{name}"),
            format!("the {one} exists and is {owner}"),
            format!("choose another name, or delete the {one} first"),
        );
    }
}

/// Adds the objects of engines, which no document of another replaces, with the links of their ports.
fn keep_owned(present: &Deployment, deployment: &mut Deployment) {
    keep(&present.instances, &mut deployment.instances);
    keep(&present.uplinks, &mut deployment.uplinks);
    keep(&present.switches, &mut deployment.switches);
    keep(&present.security_groups, &mut deployment.security_groups);
    let known: HashSet<String> = deployment.links.iter().map(|link| link.name()).collect();
    let is_kept = |port: &PortRef| match port {
        PortRef::Uplink(name) => is_owned(&present.uplinks, name),
        PortRef::Instance { instance, .. } => is_owned(&present.instances, instance),
    };
    let is_at_kept = |link: &&Link| is_kept(&link.0) || is_kept(&link.1);
    let kept = present.links.iter().filter(is_at_kept);
    let missing = kept.filter(|link| !known.contains(&link.name()));
    deployment.links.extend(missing.cloned());
}

fn keep<T: Owned + Clone>(present: &Table<T>, wanted: &mut Table<T>) {
    for (name, object) in present.iter() {
        if object.owner().is_some() && !wanted.contains(name) {
            wanted.insert(name, object.clone());
        }
    }
}

fn is_owned<T: Owned>(present: &Table<T>, name: &str) -> bool {
    present.get(name).is_some_and(|it| it.owner().is_some())
}

/// Returns `present` with the objects of `added`, which replace objects of the same name.
fn merged(present: &Deployment, added: Deployment) -> Deployment {
    let mut merged = present.clone();
    merged.overcommit |= added.overcommit;
    merged.io = added.io.clone().or(merged.io);
    merged.placement = added.placement.or(merged.placement);
    merge_table(&mut merged.groups, &added.groups);
    merged.congestion = added.congestion.clone().or(merged.congestion);
    merge_table(&mut merged.flavors, &added.flavors);
    merge_table(&mut merged.pool, &added.pool);
    merge_table(&mut merged.uplinks, &added.uplinks);
    merge_table(&mut merged.switches, &added.switches);
    merge_table(&mut merged.security_groups, &added.security_groups);
    merge_table(&mut merged.instances, &added.instances);
    merge_table(&mut merged.chains, &added.chains);
    merge_table(&mut merged.templates, &added.templates);
    // The document's links come first, so that their positions are those in the document.
    let added_names: Vec<String> = added.links.iter().map(|link| link.name()).collect();
    let mut links = added.links;
    links.extend(
        merged
            .links
            .into_iter()
            .filter(|link| !added_names.contains(&link.name())),
    );
    merged.links = links;
    merged
}

fn merge_table<T: Clone>(present: &mut Table<T>, added: &Table<T>) {
    for (name, value) in added.iter() {
        present.insert(name, value.clone());
    }
}
