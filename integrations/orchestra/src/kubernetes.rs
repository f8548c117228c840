//! Kubernetes' audit log: one event for each request, with the times at which it came and was answered.

use crate::instances::Starts;
use crate::trace::{Run, time_ms, values};
use serde_json::Value;
use std::collections::HashMap;

/// What the log says of a pod.
#[derive(Debug, Default)]
struct Pod {
    uid: Option<String>,
    /// When the object was asked for of which the pod is.
    owner_asked: Option<f64>,
    asked: Option<f64>,
    accepted: Option<f64>,
    bound: Option<f64>,
    /// When the node had told that the pod is ready, and when that was answered.
    told: Option<f64>,
    ready: Option<f64>,
}

/// Returns the pods that have become ready, with the phases until then.
///
/// # Errors
/// It is no audit log.
pub fn runs(text: &str, starts: &Starts) -> anyhow::Result<Vec<Run>> {
    let mut pods: HashMap<String, Pod> = HashMap::new();
    // By kind in lower case, namespace and name: when it was asked for.
    let mut owners: HashMap<String, f64> = HashMap::new();
    let mut order = Vec::new();
    for event in values(text)? {
        let code = event["responseStatus"]["code"].as_u64();
        if event["stage"] != "ResponseComplete"
            || !code.is_some_and(|code| (200..300).contains(&code))
        {
            continue;
        }
        let object = &event["objectRef"];
        let part = |key: &str| object[key].as_str().unwrap_or_default();
        let (asked, answered) = (
            time_ms(&event["requestReceivedTimestamp"]),
            time_ms(&event["stageTimestamp"]),
        );
        let name = [&object["name"], &event["requestObject"]["metadata"]["name"]];
        let Some(name) = name.into_iter().find_map(Value::as_str) else {
            continue;
        };
        let key = format!("{}/{name}", part("namespace"));
        let verb = event["verb"].as_str().unwrap_or_default();
        if part("resource") != "pods" {
            if let ("create" | "patch" | "update", "", Some(asked)) =
                (verb, part("subresource"), asked)
            {
                owners
                    .entry(format!("{}/{key}", part("resource")))
                    .or_insert(asked);
            }
            continue;
        }
        let pod = pods.entry(key.clone()).or_default();
        if let Some(uid) = object["uid"]
            .as_str()
            .or(event["requestObject"]["metadata"]["uid"].as_str())
        {
            pod.uid.get_or_insert(uid.to_owned());
        }
        match (verb, part("subresource")) {
            ("create", "") => {
                // Another pod of that name, if there was one.
                let uid = pod.uid.take();
                *pod = Pod {
                    uid,
                    asked,
                    accepted: answered,
                    ..Pod::default()
                };
                pod.owner_asked = owner_of(&event["requestObject"]).and_then(|(kind, name)| {
                    owners
                        .get(&format!("{kind}/{}/{name}", part("namespace")))
                        .copied()
                });
                order.push(key);
            }
            ("create", "binding") => {
                pod.bound.get_or_insert(answered.unwrap_or_default());
            }
            ("patch" | "update", "status")
                if pod.ready.is_none() && is_ready(&event["requestObject"]) =>
            {
                (pod.told, pod.ready) = (asked, answered);
            }
            _ => {}
        }
    }
    let run = |key: &String| {
        let pod = pods.get(key)?;
        let asked = pod.asked?;
        let mut run = Run::new(
            key.rsplit_once('/').map_or(key.as_str(), |(_, name)| name),
            pod.owner_asked.unwrap_or(asked),
        );
        run.end_of("controller", pod.owner_asked.and(pod.asked));
        run.end_of("API", pod.accepted);
        run.end_of("scheduling", pod.bound);
        let started = pod.uid.as_deref().and_then(|uid| starts.of(uid));
        run.end_of("agent, nfluid", started);
        run.end_of(
            if started.is_some() {
                "agent tells"
            } else {
                "node"
            },
            pod.told,
        );
        run.end_of("API is told", pod.ready);
        pod.ready.map(|_| run)
    };
    Ok(order.iter().filter_map(run).collect())
}

/// The collection and the name of the object of nfluid's of which a pod is.
fn owner_of(pod: &Value) -> Option<(String, &str)> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let kind = owner["kind"].as_str()?.to_lowercase();
    Some((format!("{kind}s"), owner["name"].as_str()?))
}

fn is_ready(patch: &Value) -> bool {
    let conditions = patch["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(
        verb: &str,
        resource: &str,
        sub: &str,
        name: &str,
        times: [u32; 2],
        request: Value,
    ) -> String {
        let at = |ms: u32| format!("2026-11-28T09:00:00.{ms:03}000Z");
        json!({
            "stage": "ResponseComplete", "verb": verb, "responseStatus": { "code": 201 }, "requestObject": request,
            "objectRef": { "resource": resource, "namespace": "default", "name": name, "subresource": sub, "uid": "0b1c2d3e-4f50-6172" },
            "requestReceivedTimestamp": at(times[0]), "stageTimestamp": at(times[1])
        })
        .to_string()
    }

    // promise: 28.1
    #[test]
    fn the_phases_of_a_pod_are_those_of_the_log() {
        let ready = |status: &str| json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
        let owned = json!({ "metadata": { "ownerReferences": [{ "kind": "ServiceChain", "name": "edge", "controller": true }] } });
        let log = [
            event("create", "servicechains", "", "edge", [10, 12], json!({})),
            event("create", "pods", "", "edge-0", [20, 25], owned),
            event("create", "pods", "binding", "edge-0", [27, 30], json!({})),
            event(
                "patch",
                "pods",
                "status",
                "edge-0",
                [31, 32],
                ready("False"),
            ),
            event("patch", "pods", "status", "edge-0", [50, 53], ready("True")),
            event("patch", "pods", "status", "edge-0", [90, 91], ready("True")),
            event("create", "pods", "", "never", [60, 61], json!({})),
        ];
        let mut starts = Starts::default();
        starts.read("").expect("nothing");
        let found = runs(&log.join("\n"), &starts).expect("a log");
        let begun = found[0].marks[0].1;
        let phases: Vec<_> = found[0].marks[1..]
            .iter()
            .map(|(name, at)| (*name, (at - begun).round()))
            .collect();
        let wanted = [
            ("controller", 10.0),
            ("API", 15.0),
            ("scheduling", 20.0),
            ("node", 40.0),
            ("API is told", 43.0),
        ];
        assert_eq!(phases, wanted);
        assert_eq!(found.len(), 1, "the other one is not ready");
    }

    #[test]
    fn what_was_refused_is_no_run() {
        let mut log: Value =
            serde_json::from_str(&event("create", "pods", "", "x", [1, 2], json!({})))
                .expect("JSON");
        log["responseStatus"]["code"] = 403.into();
        assert_eq!(
            runs(&log.to_string(), &Starts::default()).expect("a log"),
            []
        );
    }
}
