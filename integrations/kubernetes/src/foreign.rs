//! The fields of a pod that mean nothing here. They are refused, not ignored: whoever writes them counts on them.

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;

/// The fields of a pod that mean something here, or whose meaning is the scheduler's or a controller's.
const OF_POD: [&str; 20] = [
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "dnsPolicy",
    "enableServiceLinks",
    "imagePullSecrets",
    "nodeName",
    "nodeSelector",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "restartPolicy",
    "schedulerName",
    "schedulingGates",
    "serviceAccount",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
];

/// The fields of a container that mean something here, or are information for readers.
const OF_CONTAINER: [&str; 14] = [
    "args",
    "command",
    "env",
    "image",
    "imagePullPolicy",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resizePolicy",
    "resources",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeMounts",
];

/// Returns the faults of a pod: each field that means nothing here.
pub fn faults(spec: &PodSpec) -> Vec<String> {
    let Ok(Value::Object(keys)) = serde_json::to_value(spec) else {
        return vec!["spec: it cannot be read".to_owned()];
    };
    let mut faults = unknown("spec", &keys, &OF_POD);
    let containers = keys.get("containers").and_then(Value::as_array);
    for (at, container) in containers.into_iter().flatten().enumerate() {
        if let Value::Object(keys) = container {
            faults.extend(unknown(
                &format!("spec.containers[{at}]"),
                keys,
                &OF_CONTAINER,
            ));
        }
    }
    faults
}

fn unknown(place: &str, keys: &serde_json::Map<String, Value>, known: &[&str]) -> Vec<String> {
    let foreign = keys
        .iter()
        .filter(|(key, value)| !known.contains(&key.as_str()) && !is_empty(value));
    let faults = foreign.map(|(key, _)| {
        format!("{place}.{key}: it means nothing for instances of nfluid: remove it")
    });
    faults.collect()
}

/// Returns true if a value asks for nothing, such as the security context `{}` that the API server adds.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(keys) => keys.values().all(is_empty),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults_of(spec: Value) -> Vec<String> {
        faults(&serde_json::from_value(spec).expect("a pod"))
    }

    // promise: 26.4
    #[test]
    fn what_means_nothing_is_named_and_what_is_empty_is_not() {
        let plain = json!({
            "containers": [{ "name": "fw", "image": "nfluid.io/nf/firewall", "resources": {}, "securityContext": {} }],
            "securityContext": {}, "dnsPolicy": "ClusterFirst", "hostNetwork": false, "schedulerName": "default-scheduler"
        });
        assert_eq!(faults_of(plain), [""; 0]);
        let foreign = json!({
            "containers": [{ "name": "fw", "lifecycle": { "preStop": { "sleep": { "seconds": 1 } } } }],
            "hostNetwork": true, "initContainers": [{ "name": "first" }]
        });
        let places: Vec<_> = faults_of(foreign)
            .into_iter()
            .filter_map(|fault| Some(fault.split_once(':')?.0.to_owned()))
            .collect();
        assert_eq!(
            places,
            [
                "spec.hostNetwork",
                "spec.initContainers",
                "spec.containers[0].lifecycle"
            ]
        );
    }
}
