//! Kubernetes' pods: from the request until the first frame, and where the time goes; beside a node that runs nothing and says at once that its pods
//! are ready, as fast as the control plane lets anybody (V1, V2).
//!
//! Phases are what a watch of pods sees, by one clock: when the pod was bound to the node, and when it was ready. The first frame is one of those that a
//! client sends twice a millisecond. The control plane is Kubernetes' own, on the same two cores.

use super::orchestrated::{Hosts, PATIENCE, SHELLS, now_ms, open_cluster, row};
use crate::report::{Report, table};
use anyhow::{Context, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Api, Client, ResourceExt as _};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::interrupt;
use nfluid_testbed::kubernetes::{self, Kubernetes, Manner, find};
use nfluid_testbed::process::Service;
use nfluid_testbed::program::built;
use nfluid_tls::testing::Authority;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The node of nfluid, and one that runs nothing.
const OURS: &str = "ours";
const EMPTY: &str = "empty";
/// Interval of questions about pods that are to be gone.
const LOOK: Duration = Duration::from_millis(20);
/// Pods that the empty node answers at a time: as many as the agent.
const AT_A_TIME: usize = 16;

struct Setup {
    hosts: Hosts,
    client: Client,
    runtime: Runtime,
    _agent: Service,
    _control_plane: Kubernetes,
    _folder: ScratchDirectory,
}

/// The times of a pod, in milliseconds since 1970.
#[derive(Clone, Copy)]
struct Times {
    asked: f64,
    accepted: f64,
    bound: f64,
    ready: f64,
}

impl Setup {
    fn new() -> anyhow::Result<Self> {
        let programs = find()?;
        let agent = built("nfluid-kubernetes", "nfluid-kubernetes")?;
        let hosts = Hosts::new()?;
        let folder = ScratchDirectory::new()?;
        let at = folder.path("kubernetes");
        std::fs::create_dir_all(&at)?;
        let caller = Authority::new()?.write_user(&at, "kube-apiserver", "system:masters")?;
        let control_plane = Kubernetes::start(
            programs,
            at.clone(),
            (&caller.certificate, &caller.key),
            Manner::default(),
        )?;
        let kubeconfig = control_plane.kubeconfig();
        let socket = hosts.platform.socket();
        let mut command = kubernetes::agent(&agent, OURS, &socket, &kubeconfig);
        let agent = Service::start("nfluid-kubernetes", &mut command, at.join("agent.log"))?;
        let (runtime, client) = open_cluster(&kubeconfig)?;
        let setup = Setup {
            hosts,
            client,
            runtime,
            _agent: agent,
            _control_plane: control_plane,
            _folder: folder,
        };
        setup.runtime.block_on(empty_node(&setup.client))?;
        setup
            .runtime
            .spawn(answer_for_empty_node(setup.client.clone()));
        setup.await_nodes()?;
        Ok(setup)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn await_nodes(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let nodes = Api::<Node>::all(self.client.clone());
        loop {
            let all = self.runtime.block_on(nodes.list(&ListParams::default()))?;
            let takes_pods = |node: &Node| {
                let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
                let mut taints = taints.into_iter().flatten();
                taints.all(|taint| !taint.key.contains("not-ready"))
            };
            if all.items.len() == 2 && all.items.iter().all(takes_pods) {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "the nodes are not ready");
            std::thread::sleep(LOOK);
        }
    }

    /// Creates pods, and returns their times once all are ready.
    fn run(&self, pods: &[Pod]) -> anyhow::Result<Vec<Times>> {
        self.runtime.block_on(async {
            let api = self.pods();
            let version = api
                .list(&ListParams::default().limit(1))
                .await?
                .metadata
                .resource_version;
            let version = version.context("a list without a version")?;
            let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
            let posts = tokio::spawn(post(api.clone(), pods.to_vec()));
            let (mut bound, mut ready) = (BTreeMap::new(), BTreeMap::new());
            while ready.len() < pods.len() {
                let next = tokio::time::timeout(PATIENCE, events.try_next()).await;
                let event = next
                    .context("a pod is not ready")??
                    .context("the watch has ended")?;
                let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else {
                    continue;
                };
                let now = now_ms();
                let is_bound = pod
                    .spec
                    .as_ref()
                    .is_some_and(|spec| spec.node_name.is_some());
                if is_bound {
                    bound.entry(pod.name_any()).or_insert(now);
                }
                if is_ready(&pod) {
                    ready.entry(pod.name_any()).or_insert(now);
                }
            }
            let posted = posts.await.context("the requests")??;
            let times = posted.into_iter().map(|(name, asked, accepted)| {
                let at = |all: &BTreeMap<String, f64>| {
                    all.get(&name).copied().context("a pod was not seen")
                };
                Ok(Times {
                    asked,
                    accepted,
                    bound: at(&bound)?,
                    ready: at(&ready)?,
                })
            });
            times.collect()
        })
    }

    /// Removes all pods, and waits until they are gone.
    fn clear(&self) -> anyhow::Result<()> {
        let api = self.pods();
        let now = DeleteParams::default();
        self.runtime
            .block_on(api.delete_collection(&now, &ListParams::default()))?;
        let begun = Instant::now();
        loop {
            interrupt::check()?;
            let left = self.runtime.block_on(api.list(&ListParams::default()))?;
            if left.items.is_empty() {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "pods stay");
            std::thread::sleep(LOOK);
        }
    }
}

/// Sends requests one after the other; returns names and times.
async fn post(api: Api<Pod>, pods: Vec<Pod>) -> anyhow::Result<Vec<(String, f64, f64)>> {
    let mut times = Vec::new();
    for pod in pods {
        let asked = now_ms();
        api.create(&PostParams::default(), &pod).await?;
        times.push((pod.name_any(), asked, now_ms()));
    }
    Ok(times)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// A pod of one bridge for a node that the scheduler has to find.
fn pod(name: &str, node: &str, links: &str) -> anyhow::Result<Pod> {
    let limits = json!({ "nfluid.io/permille": "10", "memory": "16Mi" });
    let pod = json!({
        "metadata": { "name": name, "annotations": { "instance.nfluid.io/x": format!("flavor: small\n{links}") } },
        "spec": {
            "nodeSelector": { "kubernetes.io/hostname": node },
            "tolerations": [{ "key": "nfluid.io/node", "operator": "Exists" }],
            "containers": [{ "name": "x", "image": "nfluid.io/nf/bridge", "resources": { "limits": limits, "requests": limits } }]
        }
    });
    serde_json::from_value(pod).context("a pod")
}

/// Makes the node that runs nothing.
async fn empty_node(client: &Client) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let node =
        json!({ "metadata": { "name": EMPTY, "labels": { "kubernetes.io/hostname": EMPTY } } });
    nodes
        .create(&PostParams::default(), &serde_json::from_value(node)?)
        .await?;
    let room = json!({ "nfluid.io/permille": "100000", "memory": "100Gi", "pods": "10000" });
    let status = json!({ "status": {
        "capacity": room, "allocatable": room,
        "conditions": [{ "type": "Ready", "status": "True", "reason": "Empty" }]
    } });
    nodes
        .patch_status(EMPTY, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease");
    // The experiment ends long before.
    let lease = json!({ "metadata": { "name": EMPTY }, "spec": { "holderIdentity": EMPTY, "leaseDurationSeconds": 100_000 } });
    leases
        .create(&PostParams::default(), &serde_json::from_value(lease)?)
        .await?;
    Ok(())
}

/// This task reports each pod of the empty node as ready, and removes each pod that is to go.
async fn answer_for_empty_node(client: Client) -> kube::Result<()> {
    let api = Api::<Pod>::namespaced(client, "default");
    let fields = format!("spec.nodeName={EMPTY}");
    let events = kube::runtime::watcher(
        api.clone(),
        kube::runtime::watcher::Config::default().fields(&fields),
    );
    let pods = kube::runtime::WatchStreamExt::applied_objects(events);
    pods.for_each_concurrent(AT_A_TIME, |pod| {
        let api = api.clone();
        async move {
            // A request that fails is seen by whoever waits for the pod.
            let Ok(pod) = pod else { return };
            if pod.metadata.deletion_timestamp.is_some() {
                let _gone = api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
            } else if !is_ready(&pod) {
                let status = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
                let _told = api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(status)).await;
            }
        }
    })
    .await;
    Ok(())
}

/// The phases of a start: name of the figure, and what it is.
const PHASES: [(&str, &str); 3] = [
    ("api", "request accepted"),
    (
        "scheduling",
        "accepted until a watch sees that the pod is bound",
    ),
    (
        "agent",
        "agent and nfluid: bound until a watch sees that the pod is ready",
    ),
];

/// Runs the experiment.
pub fn run_kubernetes(report: &mut Report) -> anyhow::Result<()> {
    let (rounds, many, turns) = report.choose((100, 50, 5), (3, 5, 1));
    let setup = Setup::new()?;
    report.settle();
    let [
        mut first_frame,
        mut running,
        mut direct,
        mut ready,
        mut empty,
    ] = [const { Vec::new() }; 5];
    let mut parts = vec![Vec::new(); PHASES.len()];
    for round in 0..rounds {
        interrupt::check()?;
        direct.push(setup.hosts.directly()?);
        setup.hosts.await_shells()?;
        let ours = pod(
            &format!("ours-{round}"),
            OURS,
            "links: [[lan, .in], [.out, wan]]",
        )?;
        let (frame, times) = setup.hosts.until_first_frame(|| setup.run(&[ours]))?;
        let times = times[0];
        first_frame.push(frame);
        ready.push(times.ready - times.asked);
        running.push(frame.max(times.ready - times.asked));
        let phases = [
            times.accepted - times.asked,
            times.bound - times.accepted,
            times.ready - times.bound,
        ];
        for (part, ms) in parts.iter_mut().zip(phases) {
            part.push(ms);
        }
        setup.clear()?;
        let times = setup.run(&[pod(&format!("empty-{round}"), EMPTY, "")?])?[0];
        empty.push(times.ready - times.asked);
        setup.clear()?;
    }
    let [first_frame, running, direct, ready, empty] =
        [first_frame, running, direct, ready, empty].map(Samples::from_iter);
    let conditions = format!(
        "a pod of one bridge between two uplinks, from a pool of {SHELLS}; {rounds} pods in turn, one after the other"
    );
    let whole = |what: &str| format!("{conditions}; request until {what}");
    let told = [
        (
            "v1.k8s.running_ms",
            &running,
            whole("it is Ready and the first frame has come"),
        ),
        (
            "v1.k8s.first_frame_ms",
            &first_frame,
            whole("the first frame"),
        ),
        (
            "v1.k8s.ready_ms",
            &ready,
            whole("a watch sees that it is Ready"),
        ),
        (
            "v1.k8s.nfluid_ms",
            &direct,
            "the same instance and links by nfluid's API, until the first frame".to_owned(),
        ),
        (
            "v1.k8s.empty_ms",
            &empty,
            "a pod of a node that runs nothing, until a watch sees that it is Ready".to_owned(),
        ),
    ];
    let mut rows = Vec::new();
    for (id, samples, what) in &told {
        report.figure(*id, samples, "ms", what);
        rows.push(row(id, samples));
    }
    report.figure(
        "v1.k8s.empty_ratio",
        &ready.ratios(&empty),
        "x",
        "Ready, over the node that runs nothing",
    );
    for ((name, what), part) in PHASES.iter().zip(parts) {
        let part = Samples::from_iter(part);
        report.figure(format!("v1.k8s.{name}_ms"), &part, "ms", what);
        rows.push(row(what, &part));
    }
    table(
        "Kubernetes, one pod",
        &["until", "median ms", "mean ms"],
        &rows,
    );

    let [mut ours, mut others] = [const { Vec::new() }; 2];
    for turn in 0..turns {
        for (node, rates) in [(OURS, &mut ours), (EMPTY, &mut others)] {
            interrupt::check()?;
            let pods: anyhow::Result<Vec<_>> = (0..many)
                .map(|at| pod(&format!("{node}-{turn}-{at}"), node, ""))
                .collect();
            let times = setup.run(&pods?)?;
            let first = times.iter().map(|it| it.asked).fold(f64::MAX, f64::min);
            let last = times.iter().map(|it| it.ready).fold(0.0, f64::max);
            rates.push(many as f64 / (last - first) * 1e3);
            setup.clear()?;
        }
    }
    let [ours, others] = [ours, others].map(Samples::from_iter);
    let conditions = format!(
        "{many} pods, one request after the other, until the last is Ready, {turns} in turn"
    );
    report.figure(
        "v1.k8s.rate_per_s",
        &ours,
        "1/s",
        &format!("{conditions}; instances"),
    );
    report.figure(
        "v1.k8s.rate_empty_per_s",
        &others,
        "1/s",
        &format!("{conditions}; a node that runs nothing"),
    );
    report.figure(
        "v1.k8s.rate_empty_ratio",
        &ours.ratios(&others),
        "x",
        "instances over the node that runs nothing",
    );
    let rates = [("nfluid", &ours), ("a node that runs nothing", &others)];
    table(
        "Kubernetes, pods per second",
        &["node", "1/s"],
        &rates.map(|(name, rate)| vec![name.to_owned(), format!("{:.0}", rate.median())]),
    );
    Ok(())
}
