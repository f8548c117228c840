//! Scenarios on nodes without hosts.

use crate::cluster::{CHAINS, Cluster, PODS};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// How much later than everybody else the controller and the agents hear of pods.
const LAG: Duration = Duration::from_millis(300);

/// A chain of one bridge on three nodes.
fn chain(permille: u32) -> Value {
    let bridge = json!({ "name": "br", "nf": "bridge", "permille": permille, "memory": "16Mi" });
    json!({
        "apiVersion": "nfluid.io/v1alpha1", "kind": "ServiceChain", "metadata": { "name": "wide" },
        "spec": { "from": "switch/lan", "to": "switch/wan", "via": [bridge], "replicas": 3, "placement": "spread" }
    })
}

fn simulate(cluster: &Cluster, platform: &Platform) -> nfluid_testbed::process::Service {
    let host = platform.directory().join("host.yaml");
    fs::write(&host, "version: 1\nswitches: { lan: {}, wan: {} }\n").expect("written");
    let host = host.display().to_string();
    let simulation = cluster.simulate(&["--nodes", "3", "--nf", "bridge", "--deployment", &host]);
    eventually("the nodes are there", || {
        let nodes = cluster.get("/api/v1/nodes").unwrap_or_default();
        nodes["items"].as_array().is_some_and(|all| all.len() == 3)
    });
    simulation
}

/// Waits until all of the chain's pods are ready, as it is now.
fn await_ready(cluster: &Cluster, wanted: u32) {
    let path = format!("{CHAINS}/wide");
    eventually("the chain is ready", || {
        let found = cluster.get(&path).unwrap_or_default();
        let status = &found["status"];
        status["observedGeneration"] == found["metadata"]["generation"]
            && status["ready"] == wanted
            && status["conditions"][0]["status"] == "True"
    });
}

pub fn simulated_nodes_take_pods(cluster: &Cluster, platform: &mut Platform) {
    let mut simulation = simulate(cluster, platform);
    let _controller = cluster.controller();
    cluster.create(CHAINS, &chain(20));
    await_ready(cluster, 3);
    let nodes = || -> BTreeSet<String> {
        let all = cluster.get(PODS).unwrap_or_default();
        let all = all["items"].as_array().into_iter().flatten();
        all.filter_map(|pod| Some(pod["spec"]["nodeName"].as_str()?.to_owned()))
            .collect()
    };
    assert_eq!(
        nodes().into_iter().collect::<Vec<_>>(),
        ["simulated-0", "simulated-1", "simulated-2"]
    );
    // What a daemon refuses is told: no host has this switch.
    cluster.change(
        &format!("{CHAINS}/wide"),
        &json!({ "spec": { "from": "switch/none" } }),
    );
    eventually("the refusal is told", || {
        let found = cluster.get(&format!("{CHAINS}/wide")).unwrap_or_default();
        let why = found["status"]["conditions"][0]["message"].clone();
        why.as_str().is_some_and(|why| why.contains("none"))
    });
    cluster.change(
        &format!("{CHAINS}/wide"),
        &json!({ "spec": { "from": "switch/lan" } }),
    );
    await_ready(cluster, 3);
    // Kubernetes has heard nothing of a node for a while, as it believes.
    let node = "/api/v1/nodes/simulated-0";
    let unknown = json!([{ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" }]);
    cluster.change(
        &format!("{node}/status"),
        &json!({ "status": { "conditions": unknown } }),
    );
    eventually("it hears of the node again", || {
        let found = cluster.get(node).unwrap_or_default();
        let conditions = found["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
    });
    // The hosts are lost, and others of the same names come: the pods are made again there.
    simulation.kill();
    drop(simulation);
    let _simulation = simulate(cluster, platform);
    await_ready(cluster, 3);
}

/// What the controller knows of pods is old all the time. No slot ever has two pods, and no two pods are replaced at a time.
/// Checks that no change of a pod leaves all as it was but for times: each is something new. A pod that is about to go may be
/// removed once more, of which Kubernetes itself makes nothing.
fn told_once(history: &[(&str, Value)]) {
    let mut last = BTreeMap::new();
    let stays = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_null();
    for (what, pod) in history.iter().filter(|(_, pod)| stays(pod)) {
        let mut said = json!([what, pod["metadata"], pod["status"], pod["spec"]]);
        said[1]["resourceVersion"].take();
        for condition in said[2]["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"].take();
        }
        let uid = pod["metadata"]["uid"].to_string();
        let before = last.insert(uid, said.clone());
        assert_ne!(before, Some(said), "told twice");
    }
}

pub fn what_is_old_does_no_harm(cluster: &Cluster, platform: &mut Platform) {
    cluster.lag(LAG);
    let _simulation = simulate(cluster, platform);
    let _controller = cluster.controller();
    cluster.create(CHAINS, &chain(20));
    await_ready(cluster, 3);
    let first = cluster.history("pods").len();
    for permille in [30, 40] {
        let spec = chain(permille)["spec"].clone();
        cluster.change(&format!("{CHAINS}/wide"), &json!({ "spec": spec }));
        await_ready(cluster, 3);
    }
    let replaced = cluster.history("pods").len();
    for replicas in [1, 3, 0, 3] {
        cluster.change(
            &format!("{CHAINS}/wide"),
            &json!({ "spec": { "replicas": replicas } }),
        );
        std::thread::sleep(LAG / 3);
    }
    await_ready(cluster, 3);

    told_once(&cluster.history("pods"));
    let mut present = BTreeMap::new();
    for (at, (what, pod)) in cluster.history("pods").into_iter().enumerate() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let slot = text(&pod["metadata"]["labels"]["nfluid.io/slot"]);
        let uid = text(&pod["metadata"]["uid"]);
        let stays = what != "DELETED" && pod["metadata"]["deletionTimestamp"].is_null();
        let conditions = pod["status"]["conditions"].as_array();
        let is_ready = conditions
            .into_iter()
            .flatten()
            .any(|it| it["type"] == "Ready" && it["status"] == "True");
        present.remove(&uid);
        if stays {
            present.insert(uid, (slot, is_ready));
        }
        let slots: BTreeSet<_> = present.values().map(|(slot, _)| slot).collect();
        assert_eq!(
            slots.len(),
            present.len(),
            "a slot has two pods: {present:?}"
        );
        let ready = present.values().filter(|(_, is_ready)| *is_ready).count();
        if (first..replaced).contains(&at) {
            assert!(ready >= 2, "two are replaced at a time: {present:?}");
        }
    }
}
