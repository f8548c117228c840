//! The host as a node: what it has, and that it lives.

use crate::wanted::SHARE;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus,
    NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use nfluid_api::client::ClientError;
use nfluid_api::types::{Capacity, Version};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The label and the taint of nodes that are hosts of nfluid.
pub const NODE: &str = "nfluid.io/node";
/// Who writes fields of the node, for Kubernetes.
const MANAGER: &str = "nfluid-kubernetes";
/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";
/// Time for which a lease holds, and interval at which it is renewed (a kubelet's).
const LEASE_S: i32 = 40;
pub const RENEW: Duration = Duration::from_secs(10);
/// What a node says that Kubernetes can proxy WebSockets to it (KEP 4006).
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";
/// Maximum length of a label's value, and of the part of its key behind the slash.
pub const LABEL_CHARS_MAX: usize = 63;

/// What the node has besides the daemon's capacity.
#[derive(Clone, Debug)]
pub struct Host {
    /// The node's name.
    pub name: String,
    /// The address at which Kubernetes reaches the agent.
    pub address: String,
    /// The agent's port.
    pub port: u16,
    /// True if pods need no toleration.
    pub is_open: bool,
}

/// What is known of the daemon: what it has, or the reason why it does not answer.
pub type Known = Result<(Version, Capacity), String>;

/// The node in Kubernetes.
pub struct Registration {
    client: Client,
    host: Host,
    /// What Kubernetes was told last, without times.
    told: Option<Value>,
}

impl Registration {
    /// Creates the registration of a node that Kubernetes was told nothing of.
    pub fn new(client: Client, host: Host) -> Self {
        Registration {
            client,
            host,
            told: None,
        }
    }

    fn api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Tells Kubernetes what the node is; makes the node if there is none. With `again`, also if nothing has changed.
    ///
    /// # Errors
    /// Kubernetes refuses, or does not answer.
    pub async fn tell(&mut self, known: &Known, again: bool) -> kube::Result<()> {
        // From the API server's memory, as a kubelet asks.
        let cached = GetParams::any();
        let present = match self.api().get_with(&self.host.name, &cached).await {
            Err(kube::Error::Api(error)) if error.code == 404 => self.create().await?,
            present => present?,
        };
        let labels = known
            .as_ref()
            .ok()
            .map(|(_, capacity)| labels(&self.host, capacity));
        let status = status(&self.host, known, &present, Timestamp::now());
        let new =
            json!({ "labels": labels, "status": without_times(&status), "uid": present.uid() });
        let is_known = self.told.as_ref() == Some(&new) && has_conditions(&present, &status);
        if is_known && !again {
            return Ok(());
        }
        if let Some(labels) = labels {
            let apply =
                json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "labels": labels } });
            let force = PatchParams::apply(MANAGER).force();
            self.api()
                .patch(&self.host.name, &force, &Patch::Apply(apply))
                .await?;
        }
        let patch = Patch::Strategic(json!({ "status": status }));
        self.api()
            .patch_status(&self.host.name, &PatchParams::default(), &patch)
            .await?;
        self.told = Some(new);
        Ok(())
    }

    async fn create(&self) -> kube::Result<Node> {
        let taint = Taint {
            key: NODE.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        let node = Node {
            metadata: ObjectMeta {
                name: Some(self.host.name.clone()),
                labels: Some(own_labels(&self.host)),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: (!self.host.is_open).then(|| vec![taint]),
                ..NodeSpec::default()
            }),
            ..Node::default()
        };
        tracing::info!(node = self.host.name, "registering");
        self.api().create(&PostParams::default(), &node).await
    }
}

/// The lease of a node, by which Kubernetes knows that it lives.
pub struct NodeLease {
    client: Client,
    node: String,
    /// As Kubernetes has it: renewed without a look at it, as a kubelet does.
    known: Option<Lease>,
}

impl NodeLease {
    /// Creates the lease of the node `node`.
    pub fn new(client: Client, node: String) -> Self {
        NodeLease {
            client,
            node,
            known: None,
        }
    }

    /// Renews the lease; makes it if there is none.
    ///
    /// # Errors
    /// Kubernetes refuses, or does not answer.
    pub async fn renew(&mut self) -> kube::Result<()> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), LEASES);
        let known = match self.known.take() {
            Some(known) => Some(known),
            None => leases.get_opt(&self.node).await?,
        };
        let post = PostParams::default();
        let lease = match known {
            Some(mut lease) => {
                lease.spec = Some(self.spec());
                // If somebody has changed or removed it, the next turn looks first.
                leases.replace(&self.node, &post, &lease).await?
            }
            None => leases.create(&post, &self.made().await?).await?,
        };
        self.known = Some(lease);
        Ok(())
    }

    fn spec(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.node.clone()),
            lease_duration_seconds: Some(LEASE_S),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }
    }

    async fn made(&self) -> kube::Result<Lease> {
        let node = Api::<Node>::all(self.client.clone())
            .get(&self.node)
            .await?;
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node.clone(),
            uid: node.uid().unwrap_or_default(),
            ..OwnerReference::default()
        };
        Ok(Lease {
            metadata: ObjectMeta {
                name: Some(self.node.clone()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec()),
        })
    }
}

/// Asks the daemon what it is, and what it has.
///
/// # Errors
/// The daemon does not answer.
pub async fn capacity(
    daemon: &nfluid_api::client::Client,
) -> Result<(Version, Capacity), ClientError> {
    Ok((
        daemon.get("/v1/version").await?,
        daemon.get("/v1/capacity").await?,
    ))
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn own_labels(host: &Host) -> BTreeMap<String, String> {
    [
        ("kubernetes.io/hostname", host.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        (NODE, "true"),
        (
            "node.kubernetes.io/exclude-from-external-load-balancers",
            "true",
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// Returns the labels of a node: network functions, tiers, and the operator's labels of the host, as far as Kubernetes can have them.
fn labels(host: &Host, capacity: &Capacity) -> BTreeMap<String, String> {
    let mut labels = own_labels(host);
    let yes = || "true".to_owned();
    let nfs = capacity
        .nfs
        .iter()
        .map(|nf| (format!("nf.nfluid.io/{nf}"), yes()));
    let tiers = capacity
        .tiers
        .iter()
        .map(|tier| (format!("tier.nfluid.io/{tier}"), yes()));
    let own = capacity.labels.iter();
    let own = own.map(|(key, value)| (format!("label.nfluid.io/{key}"), value.clone()));
    let all = nfs.chain(tiers).chain(own);
    labels.extend(all.filter(|(key, value)| {
        let name = key.split('/').next_back().unwrap_or_default();
        let fits = !name.is_empty() && is_label(name) && is_label(value);
        if !fits {
            tracing::warn!(key, value, "Kubernetes cannot have this label");
        }
        fits
    }));
    labels
}

fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_outer = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= LABEL_CHARS_MAX
        && text.chars().all(is_inner)
        && is_outer(text.chars().next())
        && is_outer(text.chars().next_back())
}

fn status(host: &Host, known: &Known, before: &Node, now: Timestamp) -> NodeStatus {
    let before = before.status.clone().unwrap_or_default();
    let (ready, reason, message) = match known {
        Ok(_) => ("True", "DaemonAnswers", "nfluidd answers".to_owned()),
        Err(why) => ("False", "DaemonSilent", why.clone()),
    };
    let known_conditions = before.conditions.unwrap_or_default();
    let condition = |kind: &str, status: &str, reason: &str, message: String| {
        let since = known_conditions
            .iter()
            .find(|it| it.type_ == kind && it.status == status)
            .and_then(|it| it.last_transition_time.clone());
        NodeCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: since.or(Some(Time(now))),
        }
    };
    let fine = |kind| {
        condition(
            kind,
            "False",
            "NotUsed",
            "instances have limits of their own".to_owned(),
        )
    };
    let conditions = vec![
        condition("Ready", ready, reason, message),
        fine("MemoryPressure"),
        fine("DiskPressure"),
        fine("PIDPressure"),
    ];
    let address = NodeAddress {
        type_: "InternalIP".to_owned(),
        address: host.address.clone(),
    };
    let capacity = known.as_ref().ok().map(|(_, capacity)| {
        let all = [
            (SHARE, capacity.share_per_mille.total),
            ("memory", capacity.memory_bytes.total),
            ("pods", capacity.instances.total),
        ];
        let all = all.map(|(name, total)| (name.to_owned(), Quantity(total.to_string())));
        BTreeMap::from(all)
    });
    let version = known
        .as_ref()
        .ok()
        .map(|(version, _)| version.clone())
        .unwrap_or_default();
    let text = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().to_owned()
    };
    NodeStatus {
        // No host name: an API server would try it first, and need not know it.
        addresses: Some(vec![address]),
        allocatable: capacity.clone().or(before.allocatable),
        capacity: capacity.or(before.capacity),
        conditions: Some(conditions),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: i32::from(host.port),
            }),
        }),
        declared_features: Some(vec![WEBSOCKETS.to_owned()]),
        node_info: Some(NodeSystemInfo {
            architecture: architecture().to_owned(),
            operating_system: "linux".to_owned(),
            kernel_version: version.kernel,
            os_image: "nfluid".to_owned(),
            container_runtime_version: format!("nfluid://{}", version.version),
            // Readers of nodes compare it with the API server's version.
            kubelet_version: format!("v1.36.0-nfluid.{}", env!("CARGO_PKG_VERSION")),
            machine_id: text("/etc/machine-id"),
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// Returns true if Kubernetes has the conditions of a status. It changes them itself where it hears nothing of a node for a while.
fn has_conditions(node: &Node, status: &NodeStatus) -> bool {
    let present = node.status.as_ref().and_then(|it| it.conditions.as_ref());
    let has = |wanted: &NodeCondition| {
        let mut present = present.into_iter().flatten();
        present.any(|it| it.type_ == wanted.type_ && it.status == wanted.status)
    };
    status.conditions.iter().flatten().all(has)
}

/// Returns a status as JSON, without the times that differ each time.
fn without_times(status: &NodeStatus) -> Value {
    let mut status = status.clone();
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_heartbeat_time = None;
        condition.last_transition_time = None;
    }
    json!(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            name: "edge1".to_owned(),
            address: "192.0.2.1".to_owned(),
            port: 10250,
            is_open: false,
        }
    }

    #[test]
    fn labels_are_such_that_kubernetes_can_have() {
        let capacity = Capacity {
            nfs: vec!["firewall".to_owned()],
            tiers: vec!["xdp".to_owned()],
            labels: [
                ("site", "lab"),
                ("free text", "x"),
                ("note", "a b"),
                ("end", "x-"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
            ..Capacity::default()
        };
        let labels = labels(&host(), &capacity);
        assert_eq!(labels["nf.nfluid.io/firewall"], "true");
        assert_eq!(labels["label.nfluid.io/site"], "lab");
        let own = labels.keys().filter(|key| key.starts_with("label."));
        assert_eq!(own.count(), 1);
    }

    // promise: 26.3
    #[test]
    fn a_node_is_ready_while_its_daemon_answers_and_keeps_its_capacity() {
        let capacity = Capacity {
            share_per_mille: nfluid_api::types::Amount::new(2000, 300),
            ..Capacity::default()
        };
        let at = |second| Timestamp::from_second(second).expect("a time");
        let well = Ok((Version::default(), capacity));
        let first = status(&host(), &well, &Node::default(), at(1));
        let node = Node {
            status: Some(first.clone()),
            ..Node::default()
        };
        let again = status(&host(), &well, &node, at(2));
        assert_eq!(without_times(&first), without_times(&again));
        let ill = status(&host(), &Err("nothing listens".to_owned()), &node, at(3));
        let ready = |status: &NodeStatus| {
            let conditions = status.conditions.as_ref().expect("some");
            let ready = conditions
                .iter()
                .find(|it| it.type_ == "Ready")
                .expect("one");
            (ready.status.clone(), ready.last_transition_time.clone())
        };
        assert_eq!(ready(&again), ("True".to_owned(), Some(Time(at(1)))));
        assert_eq!(ready(&ill), ("False".to_owned(), Some(Time(at(3)))));
        assert_eq!(ill.capacity, first.capacity);
        let share = &ill.capacity.expect("known")[SHARE];
        assert_eq!(share.0, "2000");
    }
}
