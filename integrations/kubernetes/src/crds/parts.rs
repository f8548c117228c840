//! Switches and uplinks of nodes. They belong to hosts, and not to namespaces; the agents make them.

use super::any_keys;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, Resource, ResourceExt as _};
use nfluid_api::types::Kind;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The annotation of a node with what its agent says of switches and uplinks there ([`Said`], in JSON). It is the node's: a state of the object itself would be sent
/// to all agents each time that one of them says something.
pub const SAID: &str = "nfluid.io/parts";
/// The state that an agent writes for an object that is as it shall be.
pub const READY: &str = "Ready";
/// Most nodes whose reasons an object has.
pub const REASONS_MAX: usize = 10;

/// A switch on nodes of nfluid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "nfluid.io",
    version = "v1alpha1",
    kind = "Switch",
    plural = "switches",
    doc = "A switch on nodes of nfluid",
    category = "nfluid",
    status = "States",
    printcolumn = r#"{"name":"Wanted","type":"integer","jsonPath":".status.wanted"}"#,
    printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SwitchSpec {
    /// Labels of the nodes that have it; without any, all nodes of nfluid have it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// How long an address is known after its last frame, as `300s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ageing: Option<String>,
    /// How many addresses it learns at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16, max = 1_048_576))]
    pub addresses: Option<u32>,
}

/// An uplink on nodes of nfluid: a port that is an interface of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "nfluid.io",
    version = "v1alpha1",
    kind = "Uplink",
    plural = "uplinks",
    doc = "An uplink on nodes of nfluid",
    category = "nfluid",
    status = "States",
    printcolumn = r#"{"name":"Interface","type":"string","jsonPath":".spec.interface"}"#,
    printcolumn = r#"{"name":"Switch","type":"string","jsonPath":".spec.switch"}"#,
    printcolumn = r#"{"name":"Wanted","type":"integer","jsonPath":".status.wanted"}"#,
    printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct UplinkSpec {
    /// Labels of the nodes that have it; without any, all nodes of nfluid have it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// The interface of the host.
    #[schemars(length(min = 1, max = 15))]
    pub interface: String,
    /// The switch on which it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// Further keys of the uplink, as in a deployment of nfluid: `kind`, `tunnel`, `mac`, `super` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_keys")]
    pub uplink: Option<Map<String, Value>>,
}

/// The state of an object on its nodes, as the controller tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct States {
    /// How many nodes are to have it.
    #[serde(default)]
    pub wanted: u32,
    /// On how many it is ready, as the object is now.
    #[serde(default)]
    pub ready: u32,
    /// By node: why it is not. Ten nodes at most.
    #[serde(default)]
    pub reasons: BTreeMap<String, String>,
    /// `Ready`: it is ready on all its nodes.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// The state of an object on a node, as the node's agent says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saying {
    /// The object, of which another one may have the name.
    pub uid: String,
    /// The generation of the object that this is about.
    pub generation: i64,
    /// [`READY`], or the reason why it is not.
    pub state: String,
}

/// The states of all objects on a node, by [`Part::key`].
pub type Said = BTreeMap<String, Saying>;

/// A switch or an uplink.
pub trait Part:
    Resource<DynamicType = (), Scope = ClusterResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Its kind at the daemon.
    const KIND: Kind;
    /// The table of a deployment in which it is.
    const TABLE: &'static str;

    /// Returns the labels of the nodes that have it.
    fn selector(&self) -> &BTreeMap<String, String>;
    /// Returns its keys in a deployment.
    fn keys(&self) -> Map<String, Value>;
    /// Returns what is known of it.
    fn states(&self) -> Option<&States>;

    /// Returns its name among objects of both kinds.
    fn key(&self) -> String {
        format!("{}/{}", Self::TABLE, self.name_any())
    }

    /// Returns true if nodes with these labels are to have it.
    fn is_on(&self, labels: &BTreeMap<String, String>) -> bool {
        let mut selector = self.selector().iter();
        let stays = self.meta().deletion_timestamp.is_none();
        stays && selector.all(|(key, value)| labels.get(key) == Some(value))
    }

    /// Returns the document that makes it, as `owner`'s.
    fn document(&self, owner: &str) -> Value {
        let mut keys = self.keys();
        keys.insert("owner".to_owned(), owner.into());
        json!({ "version": 1, Self::TABLE: { self.name_any(): keys } })
    }
}

impl Part for Switch {
    const KIND: Kind = Kind::Switch;
    const TABLE: &'static str = "switches";

    fn selector(&self) -> &BTreeMap<String, String> {
        &self.spec.node_selector
    }

    fn keys(&self) -> Map<String, Value> {
        let mut keys = Map::new();
        set(&mut keys, "ageing", self.spec.ageing.as_ref());
        set(&mut keys, "addresses", self.spec.addresses);
        keys
    }

    fn states(&self) -> Option<&States> {
        self.status.as_ref()
    }
}

impl Part for Uplink {
    const KIND: Kind = Kind::Uplink;
    const TABLE: &'static str = "uplinks";

    fn selector(&self) -> &BTreeMap<String, String> {
        &self.spec.node_selector
    }

    fn keys(&self) -> Map<String, Value> {
        let mut keys = self.spec.uplink.clone().unwrap_or_default();
        set(&mut keys, "interface", Some(&self.spec.interface));
        set(&mut keys, "switch", self.spec.switch.as_ref());
        keys
    }

    fn states(&self) -> Option<&States> {
        self.status.as_ref()
    }
}

fn set(keys: &mut Map<String, Value>, key: &str, value: Option<impl Serialize>) {
    if let Some(value) = value {
        keys.insert(key.to_owned(), json!(value));
    }
}
