//! From a network function or a chain to its pods.

use crate::crds::{Function, NetworkFunctionSpec, Placement, ServiceChainSpec, Where};
use crate::node::{LABEL_CHARS_MAX, NODE};
use crate::wanted::{ANY_IMAGE, NF_IMAGE, SHARE, annotation};
use k8s_openapi::api::core::v1::{
    Affinity, ConfigMapVolumeSource, Container, Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity,
    PodSpec, ResourceRequirements, Toleration, Volume, VolumeMount, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use nfluid_engine::names::fingerprint;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The label of pods with the name of the object that they are of, and that with its kind.
pub const OF: &str = "nfluid.io/of";
pub const KIND: &str = "nfluid.io/kind";
/// The label with a pod's number among those of the object.
pub const SLOT: &str = "nfluid.io/slot";
/// The annotation with what of a pod cannot be changed in place: another value is another pod.
pub const FIXED: &str = "nfluid.io/fixed";
/// Hexadecimal digits that stand for a text.
const HASH_DIGITS: usize = 16;
/// Where the files of a function's ConfigMap are.
const FILES: &str = "/etc/nfluid";
/// The container of a network function that is no stage of a chain.
const ONLY: &str = "nf";

/// Something that runs as pods.
pub trait Runs {
    /// Returns the containers: name, function and links of each.
    fn parts(&self) -> Vec<(String, &Function, Vec<[String; 2]>)>;
    /// Returns where it runs.
    fn place(&self) -> &Where;
}

impl Runs for NetworkFunctionSpec {
    fn parts(&self) -> Vec<(String, &Function, Vec<[String; 2]>)> {
        vec![(ONLY.to_owned(), &self.function, self.links.clone())]
    }

    fn place(&self) -> &Where {
        &self.place
    }
}

impl Runs for ServiceChainSpec {
    fn parts(&self) -> Vec<(String, &Function, Vec<[String; 2]>)> {
        let mut parts = Vec::new();
        for (at, stage) in self.via.iter().enumerate() {
            let mut links = Vec::new();
            if at == 0 {
                links.push([self.from.clone(), format!(".{}", stage.ingress)]);
            }
            let next = match self.via.get(at + 1) {
                Some(next) => format!("@{}.{}", next.name, next.ingress),
                None => self.to.clone(),
            };
            links.push([format!(".{}", stage.egress), next]);
            parts.push((stage.name.clone(), &stage.function, links));
        }
        parts
    }

    fn place(&self) -> &Where {
        &self.place
    }
}

/// The object that pods are of.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The reference by which Kubernetes removes them with the object.
    pub reference: OwnerReference,
    /// Namespace of the object.
    pub namespace: String,
}

impl Owner {
    /// Returns the labels of its pods.
    pub fn labels(&self) -> BTreeMap<String, String> {
        [
            (OF, label(&self.reference.name)),
            (KIND, self.reference.kind.clone()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }

    /// Returns the same as a selector of requests.
    pub fn selector(&self) -> String {
        let all = self.labels().into_iter();
        let all = all.map(|(key, value)| format!("{key}={value}"));
        all.collect::<Vec<_>>().join(",")
    }
}

/// Returns a name as the value of a label, which is shorter than a name can be.
fn label(name: &str) -> String {
    if name.len() <= LABEL_CHARS_MAX {
        return name.to_owned();
    }
    let hash = hash(name);
    format!("{}-{hash}", &name[..LABEL_CHARS_MAX - hash.len() - 1])
}

/// Returns the pod of an object for a slot. Its name is the slot's; `beside` are the uids of pods of the slot that are about to go.
pub fn pod(owner: &Owner, object: &impl Runs, slot: u32, beside: &[&str]) -> Pod {
    let (mut annotations, mut containers, mut volumes) =
        (BTreeMap::new(), Vec::new(), Vec::<Volume>::new());
    for (name, function, links) in object.parts() {
        let keys = keys(function, &links);
        annotations.insert(annotation(&name), Value::Object(keys).to_string());
        let mounts = function.config_map.as_ref().map(|map| {
            let volume = format!("of-{name}");
            volumes.push(Volume {
                name: volume.clone(),
                config_map: Some(ConfigMapVolumeSource {
                    name: map.clone(),
                    ..ConfigMapVolumeSource::default()
                }),
                ..Volume::default()
            });
            vec![VolumeMount {
                name: volume,
                mount_path: FILES.to_owned(),
                ..VolumeMount::default()
            }]
        });
        let image = function.nf.as_ref().map(|nf| format!("{NF_IMAGE}{nf}"));
        containers.push(Container {
            name,
            image: Some(image.unwrap_or_else(|| ANY_IMAGE.to_owned())),
            resources: Some(resources(function)),
            volume_mounts: mounts,
            ..Container::default()
        });
    }
    let labels = owner.labels();
    let place = object.place();
    let spec = PodSpec {
        affinity: Some(affinity(place.placement, &labels)),
        containers,
        node_selector: Some(place.node_selector.clone()),
        tolerations: Some(tolerations(place)),
        volumes: Some(volumes),
        enable_service_links: Some(false),
        automount_service_account_token: Some(false),
        ..PodSpec::default()
    };
    annotations.insert(FIXED.to_owned(), fixed(&spec));
    let mut labels = labels;
    labels.insert(SLOT.to_owned(), slot.to_string());
    let base = format!("{}-{slot}", owner.reference.name);
    let name = if beside.is_empty() {
        base
    } else {
        format!("{base}-{}", &hash(&beside.join(","))[..6])
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(owner.namespace.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owner.reference.clone()]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        ..Pod::default()
    }
}

/// The keys of a function's instance.
fn keys(function: &Function, links: &[[String; 2]]) -> Map<String, Value> {
    let mut keys = function.instance.clone().unwrap_or_default();
    if let Some(config) = &function.config {
        keys.insert("config".to_owned(), config.clone().into());
    }
    if !links.is_empty() {
        keys.insert("links".to_owned(), json!(links));
    }
    keys
}

fn resources(function: &Function) -> ResourceRequirements {
    let share = function.permille.map(|it| (SHARE, it.to_string()));
    let memory = function.memory.as_ref().map(|it| ("memory", it.clone()));
    let limits: BTreeMap<_, _> = share
        .into_iter()
        .chain(memory)
        .map(|(name, amount)| (name.to_owned(), Quantity(amount)))
        .collect();
    ResourceRequirements {
        requests: Some(limits.clone()),
        limits: Some(limits),
        ..ResourceRequirements::default()
    }
}

fn affinity(placement: Placement, labels: &BTreeMap<String, String>) -> Affinity {
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some(labels.clone()),
            ..LabelSelector::default()
        }),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    match placement {
        Placement::Spread => Affinity {
            pod_anti_affinity: Some(PodAntiAffinity {
                required_during_scheduling_ignored_during_execution: Some(vec![term]),
                ..PodAntiAffinity::default()
            }),
            ..Affinity::default()
        },
        Placement::Pack => Affinity {
            pod_affinity: Some(PodAffinity {
                preferred_during_scheduling_ignored_during_execution: Some(vec![
                    WeightedPodAffinityTerm {
                        weight: 100,
                        pod_affinity_term: term,
                    },
                ]),
                ..PodAffinity::default()
            }),
            ..Affinity::default()
        },
    }
}

fn tolerations(place: &Where) -> Vec<Toleration> {
    let exists = |key: &str| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    };
    let lost = |key: &str| Toleration {
        effect: Some("NoExecute".to_owned()),
        toleration_seconds: Some(place.node_loss_seconds.into()),
        ..exists(key)
    };
    let own = [
        exists(NODE),
        lost("node.kubernetes.io/not-ready"),
        lost("node.kubernetes.io/unreachable"),
    ];
    own.into_iter().chain(place.tolerations.clone()).collect()
}

/// Returns what of a pod cannot be changed while it runs: all but its annotations and the images of its containers.
fn fixed(spec: &PodSpec) -> String {
    let mut spec = spec.clone();
    for container in &mut spec.containers {
        container.image = None;
    }
    hash(&json!(spec).to_string())
}

fn hash(text: &str) -> String {
    fingerprint(text, HASH_DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Place;
    use crate::wanted;

    fn owner() -> Owner {
        Owner {
            reference: OwnerReference {
                kind: "ServiceChain".to_owned(),
                name: "edge".to_owned(),
                uid: "u".to_owned(),
                ..OwnerReference::default()
            },
            namespace: "lab".to_owned(),
        }
    }

    fn chain(change: &Value) -> ServiceChainSpec {
        let mut chain = json!({
            "from": "lan", "to": "wan",
            "via": [
                { "name": "fw", "nf": "firewall", "permille": 100, "memory": "32Mi", "config": { "rules": "allow ip from any to any" } },
                { "name": "nat", "nf": "nat", "config": { "pool": ["192.0.2.1"] } }
            ]
        });
        for (key, value) in change.as_object().expect("keys") {
            chain[key] = value.clone();
        }
        serde_json::from_value(chain).expect("a chain")
    }

    // promise: 26.7
    #[test]
    fn the_node_reads_what_the_controller_writes() {
        let pod = pod(&owner(), &chain(&json!({})), 0, &[]);
        let place = Place::new("c", "n");
        let all = wanted::read(&pod, &place, |_| None, &[], 2).expect("it fits");
        let [fw, nat] = &all[..] else { panic!("two") };
        assert_eq!(fw.request.instance["nf"], "firewall");
        assert_eq!(fw.request.instance["share"], "10.0%");
        let links: Vec<_> = all.iter().flat_map(|it| it.request.links.clone()).collect();
        let port = |it: &wanted::Wanted, port: &str| format!("{}.{port}", it.name);
        for link in [
            ["lan".to_owned(), port(fw, "in")],
            [port(fw, "out"), port(nat, "in")],
            [port(nat, "out"), "wan".to_owned()],
        ] {
            assert!(links.contains(&link), "{link:?} in {links:?}");
        }
    }

    // promise: 26.7
    #[test]
    fn configuration_and_function_change_in_place_and_nothing_else() {
        let fixed = |change: Value| {
            let pod = pod(&owner(), &chain(&change), 0, &[]);
            pod.metadata.annotations.expect("some")[FIXED].clone()
        };
        let before = fixed(json!({}));
        let stage = |nf: &str, rules: &str, permille: u32| {
            json!({ "via": [
                { "name": "fw", "nf": nf, "permille": permille, "memory": "32Mi", "config": { "rules": rules } },
                { "name": "nat", "nf": "nat" }
            ] })
        };
        assert_eq!(
            fixed(stage("firewall", "deny ip from any to any", 100)),
            before
        );
        assert_eq!(fixed(stage("bridge", "x", 100)), before);
        assert_eq!(fixed(json!({ "to": "dmz", "replicas": 3 })), before);
        assert_ne!(fixed(stage("firewall", "x", 200)), before);
        assert_ne!(fixed(json!({ "nodeSelector": { "a": "b" } })), before);
    }

    #[test]
    fn a_long_name_is_a_label_of_its_own() {
        let [a, b] = ["a", "b"].map(|end| label(&format!("{}{end}", "x".repeat(100))));
        assert_ne!(a, b);
        assert!(a.len() <= LABEL_CHARS_MAX && b.len() <= LABEL_CHARS_MAX);
        assert_eq!(label("edge"), "edge");
    }

    #[test]
    fn a_pod_beside_one_that_goes_has_another_name() {
        let name = |beside: &[&str]| {
            let pod = pod(&owner(), &chain(&json!({})), 3, beside);
            pod.metadata.name.expect("a name")
        };
        assert_eq!(name(&[]), "edge-3");
        assert!(name(&["a"]).starts_with("edge-3-"));
        assert_ne!(name(&["a"]), name(&["a", "b"]));
        assert_eq!(name(&["a"]), name(&["a"]));
    }
}
