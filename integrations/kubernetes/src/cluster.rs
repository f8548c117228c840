//! The names by which a node of a cluster knows its instances again.

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use nfluid_control::model::NAME_MAX;
use nfluid_engine::names::fingerprint;

/// The beginning of the owners of instances of all clusters: the name of a client of the API with the role `engine`.
const ENGINE: &str = "kubernetes";
/// Hexadecimal digits of a cluster's and node's part of an owner.
const NODE_DIGITS: usize = 12;
/// Digits of a pod's part of an instance's name. With 48 bits, two of a host's pods do not share it by chance.
const POD_DIGITS: usize = 12;

/// A node of a cluster, in the owners of its instances: agents of two nodes, or of two clusters, never take each other's.
#[derive(Clone, Debug)]
pub struct Place {
    prefix: String,
}

impl Place {
    /// Creates the place of the node `node` in the cluster whose namespace `kube-system` has the uid `cluster`.
    pub fn new(cluster: &str, node: &str) -> Self {
        let digits = fingerprint(&format!("{cluster}/{node}"), NODE_DIGITS);
        Place {
            prefix: format!("{ENGINE}:{digits}/"),
        }
    }

    /// Returns the owner of the instance of a container.
    pub fn owner(&self, uid: &str, container: &str) -> String {
        format!("{}{uid}/{container}", self.prefix)
    }

    /// Returns uid and container of the pod whose instance has this owner; `None`: the instance is somebody else's.
    pub fn pod_of<'a>(&self, owner: &'a str) -> Option<(&'a str, &'a str)> {
        owner.strip_prefix(&self.prefix)?.split_once('/')
    }
}

/// Returns the field selector of the pods that are bound to a node.
pub fn bound_to(node: &str) -> String {
    format!("spec.nodeName={node}")
}

/// Makes `None` of the answer that an object is gone, or that another object has its name now.
///
/// # Errors
/// Another error.
pub fn unless_gone<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Asks for the removal of the pod with this name and uid, unless the pod is gone; without `grace_s`, after its own time of grace in seconds.
///
/// # Errors
/// Kubernetes refuses, or does not answer.
pub async fn delete(
    api: &Api<Pod>,
    (name, uid): (&str, &str),
    grace_s: Option<u32>,
) -> kube::Result<()> {
    let this_one = DeleteParams {
        grace_period_seconds: grace_s,
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    unless_gone(api.delete(name, &this_one).await).map(drop)
}

/// Returns the uid of a pod.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Returns the containers of a pod.
pub fn containers(pod: &Pod) -> &[Container] {
    pod.spec
        .as_ref()
        .map_or(&[], |spec| spec.containers.as_slice())
}

/// Returns the name of a container's instance, unless the pod names it.
pub fn derived_name(uid: &str, container: &str) -> String {
    let digits = uid.chars().filter(char::is_ascii_alphanumeric);
    let pod: String = digits.take(POD_DIGITS).collect();
    // The name of a container is a DNS label.
    let room = NAME_MAX - POD_DIGITS - 1;
    let container: String = container.chars().take(room).collect();
    format!("{container}-{pod}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0";

    #[test]
    fn an_owner_leads_back_to_its_pod_on_its_node_alone() {
        let [here, beside, elsewhere] = [("c1", "a"), ("c1", "b"), ("c2", "a")]
            .map(|(cluster, node)| Place::new(cluster, node));
        let owner = here.owner(UID, "fw");
        assert_eq!(here.pod_of(&owner), Some((UID, "fw")));
        assert_eq!(beside.pod_of(&owner), None);
        assert_eq!(elsewhere.pod_of(&owner), None);
        assert_eq!(here.pod_of("nomad:a/fw/1"), None);
    }

    #[test]
    fn the_longest_names_fit() {
        let container = "x".repeat(63);
        let owner = Place::new("c", &"n".repeat(253)).owner(UID, &container);
        assert!(owner.len() <= 128, "{owner}");
        let name = derived_name(UID, &container);
        nfluid_control::model::check_name(&name).expect(&name);
        assert_eq!(derived_name(UID, "fw"), "fw-0b1c2d3e4f50");
    }
}
