//! The latest state of objects that this process has written, kept until its watch tells of it.
//!
//! A watch may be late, by minutes where the API server is busy. Whoever compares what is to be told with what the watch
//! has told would tell it again and again meanwhile, and the server would be the busier for it: a loop that feeds itself
//! (seen with 60,000 functions on 1000 nodes, where it was 38 % of the server's time).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Resource;

/// After this time an answer is forgotten: its object is gone, or nobody asks.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// The latest answers of Kubernetes to writes of this process, by uid of the object.
#[derive(Debug)]
pub struct Latest<K>(Mutex<HashMap<String, (Instant, Arc<K>)>>);

impl<K> Default for Latest<K> {
    fn default() -> Self {
        Latest(Mutex::default())
    }
}

/// The version of an object. Kubernetes' versions of one kind of object are numbers that grow (KEP 5504).
pub fn version<K: Resource>(object: &K) -> Option<u128> {
    object.meta().resource_version.as_ref()?.parse().ok()
}

impl<K: Resource> Latest<K> {
    /// Notes what Kubernetes has answered to a write.
    pub fn note(&self, answer: K) {
        let Some(uid) = answer.meta().uid.clone() else {
            return;
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (since, _)| since.elapsed() < KEPT_FOR);
        kept.insert(uid, (Instant::now(), Arc::new(answer)));
    }

    /// Returns the newer of what a watch has told of an object and what was noted of it.
    pub fn newer(&self, seen: Arc<K>) -> Arc<K> {
        let Some(uid) = &seen.meta().uid else {
            return seen;
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.get(uid) {
            Some((_, noted)) if version(&**noted) > version(&*seen) => Arc::clone(noted),
            Some(_) => {
                kept.remove(uid);
                seen
            }
            None => seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn pod(uid: &str, version: &str, node: &str) -> Pod {
        let metadata = json!({ "uid": uid, "resourceVersion": version });
        let pod = json!({ "metadata": metadata, "spec": { "containers": [], "nodeName": node } });
        serde_json::from_value(pod).expect("a pod")
    }

    fn node(latest: &Latest<Pod>, seen: Pod) -> String {
        let pod = latest.newer(Arc::new(seen));
        let spec = pod.spec.as_ref().expect("a spec");
        spec.node_name.clone().expect("a node")
    }

    // promise: 26.10
    #[test]
    fn what_was_written_is_known_until_the_watch_has_as_much() {
        let latest = Latest::default();
        assert_eq!(node(&latest, pod("a", "9", "seen")), "seen");
        latest.note(pod("a", "10", "noted"));
        // Numbers, not words: 10 is after 9.
        assert_eq!(node(&latest, pod("a", "9", "seen")), "noted");
        assert_eq!(node(&latest, pod("b", "9", "other")), "other");
        assert_eq!(node(&latest, pod("a", "11", "later")), "later");
        assert_eq!(node(&latest, pod("a", "9", "seen")), "seen");
        latest.note(pod("a", "no number", "noted"));
        assert_eq!(node(&latest, pod("a", "12", "seen")), "seen");
    }
}
