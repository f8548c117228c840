//! The controller keeps a tenth of each pod, which this module reads.

use crate::cluster::{containers, uid};
use crate::latest::version;
use crate::render::SLOT;
use crate::status::{CURRENT, condition, is_over};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use std::collections::BTreeMap;

/// A pod of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Child {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Which of its states this is; a later one is more.
    pub version: Option<u128>,
    /// Its number among those of the object.
    pub slot: Option<u32>,
    /// The node that it is bound to.
    pub node: Option<String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its containers and their images.
    pub images: Vec<(String, Option<String>)>,
    /// True if it is about to go.
    pub is_going: bool,
    /// True if it has ended.
    pub is_over: bool,
    /// The reason why it is not ready, or not what it was last asked to be, in the words of whoever knows it best.
    pub why: Option<String>,
}

impl Child {
    /// Reads a pod.
    pub fn of(pod: &Pod) -> Self {
        let containers = containers(pod).iter();
        Child {
            name: pod.name_any(),
            uid: uid(pod).to_owned(),
            version: version(pod),
            slot: pod.labels().get(SLOT).and_then(|slot| slot.parse().ok()),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            annotations: pod.annotations().clone(),
            images: containers
                .map(|it| (it.name.clone(), it.image.clone()))
                .collect(),
            is_going: pod.metadata.deletion_timestamp.is_some(),
            is_over: is_over(pod),
            why: (!is_ready(pod)).then(|| reason(pod)),
        }
    }

    /// Returns true if it is ready, and is what it was last asked to be.
    pub fn is_ready(&self) -> bool {
        self.why.is_none()
    }
}

fn is_ready(pod: &Pod) -> bool {
    let is = |kind| condition(pod, kind).map(|it| it.status.as_str());
    is("Ready") == Some("True") && is(CURRENT) != Some("False")
}

fn reason(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let statuses = status.and_then(|it| it.container_statuses.as_ref());
    let mut waiting = statuses.into_iter().flatten().filter_map(|it| {
        let waiting = it.state.as_ref()?.waiting.as_ref()?;
        Some(format!("{}: {}", it.name, waiting.message.as_ref()?))
    });
    let false_ones = [CURRENT, "PodScheduled", "Ready"];
    let mut told = false_ones.iter().filter_map(|kind| {
        let it = condition(pod, kind).filter(|it| it.status == "False")?;
        it.message.clone()
    });
    waiting
        .next()
        .or_else(|| told.next())
        .unwrap_or_else(|| "it starts".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_that_is_not_ready_says_why() {
        let why = |status: serde_json::Value| {
            let pod = json!({ "metadata": { "name": "p" }, "status": status });
            Child::of(&serde_json::from_value(pod).expect("a pod")).why
        };
        let says = |kind: &str, status: &str, message: &str| json!({ "type": kind, "status": status, "message": message });
        let ready = says("Ready", "True", "");
        assert_eq!(why(json!({ "conditions": [ready] })), None);
        let old = says(CURRENT, "False", "no such rule");
        assert_eq!(
            why(json!({ "conditions": [ready, old] })).as_deref(),
            Some("no such rule")
        );
        let alone = says("PodScheduled", "False", "no node has room");
        assert_eq!(
            why(json!({ "conditions": [alone] })).as_deref(),
            Some("no node has room")
        );
        let waits = json!([{ "name": "fw", "state": { "waiting": { "message": "no 'eth1'" } }, "image": "", "imageID": "", "ready": false, "restartCount": 0 }]);
        assert_eq!(
            why(json!({ "containerStatuses": waits, "conditions": [alone] })).as_deref(),
            Some("fw: no 'eth1'")
        );
        assert_eq!(why(json!({})).as_deref(), Some("it starts"));
    }
}
