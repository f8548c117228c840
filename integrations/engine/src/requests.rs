//! Requests about objects, and the daemon's errors in words.

use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::{ApplyRequest, Cause, DeleteRequest, Kind, ObjectName, StopRequest};
use serde::Deserialize;
use serde_json::Value;

/// Returns an error in one line, with all faults. `place` turns the place of a fault in a deployment into the place in the engine's object.
pub fn words(error: &ClientError, place: impl Fn(&str) -> String) -> String {
    let ClientError::Problem(problem) = error else {
        return error.to_string();
    };
    if problem.errors.is_empty() {
        return format!("{}{}", problem.detail, in_brackets(&problem.remedy));
    }
    let faults = problem.errors.iter().map(|fault| {
        let place = place(&fault.path);
        format!("{place}: {}{}", fault.message, in_brackets(&fault.remedy))
    });
    faults.collect::<Vec<_>>().join("; ")
}

fn in_brackets(remedy: &str) -> String {
    if remedy.is_empty() {
        String::new()
    } else {
        format!(" ({remedy})")
    }
}

/// Returns the place `path` of a deployment as a place in the object of the instance `name`, which has the instance's keys below `root`.
pub fn place_in(root: &str, path: &str, name: &str) -> String {
    let key = path
        .strip_prefix("instances.")
        .and_then(|path| path.strip_prefix(name));
    match key {
        Some(key) => format!("{root}{key}"),
        None if path.is_empty() => root.to_owned(),
        None => format!("{root}.{path}"),
    }
}

/// Returns true if the same request may succeed later.
pub fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Problem(problem) => matches!(problem.status, 409 | 429 | 500..),
        ClientError::Misunderstood(_) => false,
        _ => true,
    }
}

/// Returns true if an answer says that an object exists and is somebody else's.
pub fn is_taken(error: &ClientError) -> bool {
    let ClientError::Problem(problem) = error else {
        return false;
    };
    let mut errors = problem.errors.iter();
    errors.any(|fault| fault.cause == Some(Cause::NotYours))
}

/// Makes nothing of the answer that there is no such object.
///
/// # Errors
/// Another error.
pub fn found<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ClientError::Problem(problem)) if problem.status == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the instance `name` with its links, if it exists and belongs to `owner`. `stop` says how its program is asked to end.
///
/// # Errors
/// The daemon refuses, or does not answer.
pub async fn remove_own(
    client: &Client,
    name: &str,
    owner: &str,
    stop: Option<&StopRequest>,
) -> Result<(), ClientError> {
    let instance = found(client.instance(name).await)?;
    let present = instance.and_then(|instance| instance.owner);
    if present.as_deref() != Some(owner) {
        return Ok(());
    }
    found(client.remove_instance(name, stop).await).map(drop)
}

/// Adds the objects of a document to the deployment, or changes them to what the document says.
///
/// # Errors
/// The daemon refuses, or does not answer.
pub async fn merge(client: &Client, document: &Value) -> Result<(), ClientError> {
    let request = ApplyRequest {
        text: document.to_string(),
        merge: true,
        ..ApplyRequest::default()
    };
    client.apply(&request).await.map(drop)
}

/// Returns the owner of an uplink or a switch; `None`: it does not exist, or has none.
async fn owner_of(client: &Client, kind: Kind, name: &str) -> Result<Option<String>, ClientError> {
    #[derive(Deserialize)]
    struct Owned {
        owner: Option<String>,
    }
    let path = format!("/v1/{}/{name}", kind.plural());
    let object: Option<Owned> = found(client.get(&path).await)?;
    Ok(object.and_then(|it| it.owner))
}

/// Removes an uplink or a switch, if it exists and belongs to `owner`; with `with_links`, with the links of the uplink.
///
/// # Errors
/// The daemon refuses, or does not answer.
pub async fn remove_owned(
    client: &Client,
    (kind, name): (Kind, &str),
    owner: &str,
    with_links: bool,
) -> Result<(), ClientError> {
    if owner_of(client, kind, name).await?.as_deref() != Some(owner) {
        return Ok(());
    }
    let request = DeleteRequest {
        objects: vec![ObjectName {
            kind,
            name: name.to_owned(),
        }],
        with_links,
        ..DeleteRequest::default()
    };
    found(client.delete(&request).await).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_at_the_objects_keys() {
        let place = |path| place_in("config", path, "fw");
        assert_eq!(place("instances.fw.share"), "config.share");
        assert_eq!(place("links[0]"), "config.links[0]");
        assert_eq!(place(""), "config");
    }
}
