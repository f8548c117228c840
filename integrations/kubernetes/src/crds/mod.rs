//! The objects that Kubernetes gets from nfluid: network functions and chains of them, of which the controller makes pods; switches and
//! uplinks ([`parts`]), which agents make.

pub mod parts;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt as _};
use parts::{Switch, Uplink};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum number of pods of an object.
pub const REPLICAS_MAX: u32 = 1000;

/// A network function: what a container of a pod is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Function {
    /// A built-in network function. Without it, `instance` says what runs: a `program` or an `image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nf: Option<String>,
    /// The network function's configuration. A change is handed to the running function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_keys")]
    pub config: Option<Map<String, Value>>,
    /// A ConfigMap whose files are at /etc/nfluid, for `rules_file` and `routes_file` of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<String>,
    /// Further keys of the instance, as in a deployment of nfluid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_keys")]
    pub instance: Option<Map<String, Value>>,
    /// The CPU time that it is promised, in thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub permille: Option<u32>,
    /// The memory limit, as `64Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+(\.[0-9]+)?([kMGT]|[KMGT]i)?$"))]
    pub memory: Option<String>,
}

/// A network function of a chain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// The stage's name within the chain.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"))]
    pub name: String,
    /// The port towards the beginning of the chain.
    #[serde(default = "port_in")]
    pub ingress: String,
    /// The port towards its end.
    #[serde(default = "port_out")]
    pub egress: String,
    /// The network function of the stage.
    #[serde(flatten)]
    pub function: Function,
}

fn port_in() -> String {
    "in".to_owned()
}

fn port_out() -> String {
    "out".to_owned()
}

fn once() -> u32 {
    1
}

fn any_keys(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Where several of an object run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// No two on a node.
    #[default]
    Spread,
    /// On as few nodes as have room.
    Pack,
}

/// On which nodes an object runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Where {
    /// How many run.
    #[serde(default = "once")]
    #[schemars(range(max = REPLICAS_MAX))]
    pub replicas: u32,
    /// Where several run: `spread` puts no two on a node, `pack` fills few nodes.
    #[serde(default)]
    pub placement: Placement,
    /// Labels that the nodes have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that do not matter, besides that of nfluid's nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Seconds without a sign of life after which a node is given up.
    #[serde(default = "node_loss")]
    pub node_loss_seconds: u32,
}

fn node_loss() -> u32 {
    30
}

/// A network function on nodes of nfluid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "nfluid.io",
    version = "v1alpha1",
    kind = "NetworkFunction",
    plural = "networkfunctions",
    shortname = "nf",
    doc = "A network function on nodes of nfluid",
    category = "nfluid",
    namespaced,
    status = "Status",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.ready",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name":"NF","type":"string","jsonPath":".spec.nf"}"#,
    printcolumn = r#"{"name":"Wanted","type":"integer","jsonPath":".spec.replicas"}"#,
    printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Nodes","type":"string","jsonPath":".status.nodes"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkFunctionSpec {
    /// The network function.
    #[serde(flatten)]
    pub function: Function,
    /// Links of its ports: `.in` is its own port, everything else a port or an uplink of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<[String; 2]>,
    /// Where it runs.
    #[serde(flatten)]
    pub place: Where,
}

/// A chain of network functions on nodes of nfluid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "nfluid.io",
    version = "v1alpha1",
    kind = "ServiceChain",
    plural = "servicechains",
    shortname = "chain",
    doc = "A chain of network functions on nodes of nfluid",
    category = "nfluid",
    namespaced,
    status = "Status",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.ready",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name":"From","type":"string","jsonPath":".spec.from"}"#,
    printcolumn = r#"{"name":"Via","type":"string","jsonPath":".status.functions"}"#,
    printcolumn = r#"{"name":"To","type":"string","jsonPath":".spec.to"}"#,
    printcolumn = r#"{"name":"Wanted","type":"integer","jsonPath":".spec.replicas"}"#,
    printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Nodes","type":"string","jsonPath":".status.nodes"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceChainSpec {
    /// The uplink, or the port of an instance of the node, at which the chain begins.
    pub from: String,
    /// The uplink, or the port, at which it ends.
    pub to: String,
    /// The network functions, in order.
    #[schemars(length(min = 1, max = 64))]
    pub via: Vec<Stage>,
    /// Where it runs.
    #[serde(flatten)]
    pub place: Where,
}

/// The state of an object, as the controller tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The generation of the object that this status is of.
    #[serde(default)]
    pub observed_generation: i64,
    /// How many run and are ready.
    #[serde(default)]
    pub ready: u32,
    /// The containers of each of its pods, separated by commas.
    #[serde(default)]
    pub functions: String,
    /// The labels of its pods, as autoscalers read them.
    #[serde(default)]
    pub selector: String,
    /// The nodes on which they are, separated by commas.
    #[serde(default)]
    pub nodes: String,
    /// `Ready`: as many as wanted are ready, as the object is now.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// Returns the definitions of the objects, as YAML.
///
/// # Errors
/// They cannot be written as JSON, which would be a fault of this crate.
pub fn text() -> serde_json::Result<String> {
    let mut text = String::new();
    for definition in [
        NetworkFunction::crd(),
        ServiceChain::crd(),
        Switch::crd(),
        Uplink::crd(),
    ] {
        let definition = serde_json::to_value(definition)?;
        text.push_str("---\n");
        text.push_str(&nfluid_control::yaml::to_text(&definition));
    }
    Ok(text)
}
