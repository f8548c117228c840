//! From a text to a validated deployment, and back.

use crate::attachments::{Attachments, attached_files};
use crate::decode::decode;
use crate::model::{Deployment, Link};
use crate::report::Report;
use crate::validate::{Background, Environment, validate};
use crate::yaml::{Node, SyntaxError, parse};
use nfluid_api::types::{ApplyRequest, Diagnostic, Severity};
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

/// Reads and checks the document of a request. With `merge`, it is added to `present`; otherwise it takes its place, except for the instances of
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
    let root = parse(&request.text).map_err(|error| vec![syntax_error(error, file)])?;
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
    let root = parse(text).map_err(|error| vec![syntax_error(error, file)])?;
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
        severity: Severity::Error,
        file: file.map(str::to_owned),
        line: Some(error.mark.line),
        column: Some(error.mark.column),
        path: String::new(),
        message: error.message,
        remedy: error.remedy,
    }
}

/// Refuses changes of instances that belong to somebody else, unless it is whom they replace.
fn refuse_others(
    present: &Deployment,
    deployment: &Deployment,
    replaces: Option<&str>,
    report: &mut Report<'_>,
) {
    for (name, new) in deployment.instances.iter() {
        let old = present.instances.get(name);
        let Some(old) = old.filter(|old| old.owner != new.owner) else {
            continue;
        };
        if old.owner.is_some() && old.owner.as_deref() == replaces {
            continue;
        }
        let owner = old.owner.as_deref();
        let owner = owner.map_or_else(
            || "nobody's in particular".to_owned(),
            |owner| format!("'{owner}'s"),
        );
        report.error(
            &format!("instances.{name}"),
            format!("the instance exists and is {owner}"),
            "choose another name, or delete the instance first",
        );
    }
}

/// Adds the instances of engines, which no document of another replaces, with the links of their ports.
fn keep_owned(present: &Deployment, deployment: &mut Deployment) {
    let is_kept = |name: &str| {
        let kept = present.instances.get(name);
        kept.is_some_and(|kept| kept.owner.is_some())
    };
    for (name, instance) in present.instances.iter() {
        if is_kept(name) && !deployment.instances.contains(name) {
            deployment.instances.insert(name, instance.clone());
        }
    }
    let known: HashSet<String> = deployment.links.iter().map(|link| link.name()).collect();
    let is_at_kept = |link: &&Link| {
        [&link.0, &link.1]
            .into_iter()
            .any(|port| port.owner().is_some_and(is_kept))
    };
    let kept = present.links.iter().filter(is_at_kept);
    let missing = kept.filter(|link| !known.contains(&link.name()));
    deployment.links.extend(missing.cloned());
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

fn merge_table<T: Clone>(present: &mut crate::table::Table<T>, added: &crate::table::Table<T>) {
    for (name, value) in added.iter() {
        present.insert(name, value.clone());
    }
}
