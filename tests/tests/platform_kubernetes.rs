//! Hosts of nfluid are nodes of Kubernetes, and pods are instances. The API server is a double; in the tests whose name
//! begins with `own` it is Kubernetes' own, which is not in Debian and not nfluid's to ship: `KUBERNETES_PROGRAMS` names its folder.

#[path = "platform_kubernetes/cluster.rs"]
mod cluster;
#[path = "platform_kubernetes/double.rs"]
mod double;
#[path = "platform_kubernetes/scenarios.rs"]
mod scenarios;
#[path = "platform_kubernetes/simulated.rs"]
mod simulated;

use cluster::{CHAINS, Cluster};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::soak::choose;
use serde_json::json;
use std::path::Path;
use std::process::Command;

fn with_double(test: &str, scenario: impl FnOnce(&Cluster, &mut Platform)) {
    if let Some(mut platform) = scenarios::platform(test) {
        scenario(&Cluster::double(&platform), &mut platform);
    }
}

// promise: 26.1
#[test]
fn a_pod_is_a_chain_of_instances() {
    with_double("a_pod_is_a_chain_of_instances", scenarios::a_pod_is_a_chain);
}

// promise: 26.4
#[test]
fn what_is_impossible_is_refused_with_its_reason() {
    with_double(
        "what_is_impossible_is_refused_with_its_reason",
        scenarios::what_is_impossible_is_refused,
    );
}

// promise: 26.3
#[test]
fn agent_daemon_and_instances_die() {
    with_double(
        "agent_daemon_and_instances_die",
        scenarios::whoever_dies_nothing_is_lost,
    );
}

// promise: 26.3
#[test]
fn all_die_at_random() {
    let turns = choose(30, 1000);
    with_double("all_die_at_random", |cluster, platform| {
        scenarios::all_die_at_random(cluster, platform, turns);
    });
}

// promise: 26.3
#[test]
fn own_all_die_at_random() {
    let turns = choose(30, 1000);
    with_own("own_all_die_at_random", |cluster, platform| {
        scenarios::all_die_at_random(cluster, platform, turns);
    });
}

// promise: 26.7
#[test]
fn a_chain_is_pods_on_nodes() {
    with_double(
        "a_chain_is_pods_on_nodes",
        scenarios::a_chain_is_pods_on_nodes,
    );
}

// promise: 26.7
#[test]
fn own_a_chain_is_pods_on_nodes() {
    with_own(
        "own_a_chain_is_pods_on_nodes",
        scenarios::a_chain_is_pods_on_nodes,
    );
}

// promise: 26.8
#[test]
fn switches_and_uplinks_are_objects() {
    with_double(
        "switches_and_uplinks_are_objects",
        scenarios::switches_and_uplinks_are_objects,
    );
}

// promise: 26.8
#[test]
fn own_switches_and_uplinks_are_objects() {
    with_own(
        "own_switches_and_uplinks_are_objects",
        scenarios::switches_and_uplinks_are_objects,
    );
}

// promise: 26.9
#[test]
fn simulated_nodes_take_pods() {
    with_double(
        "simulated_nodes_take_pods",
        simulated::simulated_nodes_take_pods,
    );
}

// promise: 26.9
#[test]
fn own_simulated_nodes_take_pods() {
    with_own(
        "own_simulated_nodes_take_pods",
        simulated::simulated_nodes_take_pods,
    );
}

// promise: 26.10
#[test]
fn what_is_old_does_no_harm() {
    with_double(
        "what_is_old_does_no_harm",
        simulated::what_is_old_does_no_harm,
    );
}

// promise: 28.2
#[test]
fn pods_are_asked_for_at_a_rate() {
    with_double(
        "pods_are_asked_for_at_a_rate",
        scenarios::pods_are_asked_for_at_a_rate,
    );
}

// promise: 28.1
#[test]
fn own_pods_are_asked_for_at_a_rate() {
    with_own(
        "own_pods_are_asked_for_at_a_rate",
        scenarios::pods_are_asked_for_at_a_rate,
    );
}

// promise: 26.2
#[test]
fn a_pod_ends_as_its_policy_says() {
    with_double(
        "a_pod_ends_as_its_policy_says",
        scenarios::a_pod_ends_as_its_policy_says,
    );
}

// promise: 26.5
#[test]
fn callers_may_what_kubernetes_says() {
    with_double("callers_may_what_kubernetes_says", |cluster, platform| {
        let node = cluster.node(platform, "edge1");
        scenarios::callers_may_what_kubernetes_says(cluster, &node);
    });
}

fn with_own(test: &str, scenario: impl FnOnce(&Cluster, &mut Platform)) {
    let Some(mut platform) = scenarios::platform(test) else {
        return;
    };
    if let Some(cluster) = Cluster::own(test, &platform) {
        scenario(&cluster, &mut platform);
    }
}

// promise: 26.1
#[test]
fn own_a_pod_is_a_chain_of_instances() {
    with_own(
        "own_a_pod_is_a_chain_of_instances",
        scenarios::a_pod_is_a_chain,
    );
}

// promise: 26.4
#[test]
fn own_what_is_impossible_is_refused_with_its_reason() {
    with_own(
        "own_what_is_impossible_is_refused_with_its_reason",
        scenarios::what_is_impossible_is_refused,
    );
}

// promise: 26.3
#[test]
fn own_agent_daemon_and_instances_die() {
    with_own(
        "own_agent_daemon_and_instances_die",
        scenarios::whoever_dies_nothing_is_lost,
    );
}

// promise: 26.2
#[test]
fn own_a_pod_ends_as_its_policy_says() {
    with_own(
        "own_a_pod_ends_as_its_policy_says",
        scenarios::a_pod_ends_as_its_policy_says,
    );
}

// promise: 26.6
#[test]
fn kubernetes_own_tools_work() {
    with_own("kubernetes_own_tools_work", |cluster, platform| {
        let _node = cluster.node(platform, "edge1");
        let kubectl = |arguments: &[&str]| cluster.kubectl(arguments).expect("it is there");
        let must = |arguments: &[&str]| {
            let (is_done, said) = kubectl(arguments);
            assert!(is_done, "{arguments:?}: {said}");
            said
        };
        let _controller = cluster.controller();
        // A long name, a namespace that is full, and a chain of nothing.
        let mut chain = json!({
            "apiVersion": "nfluid.io/v1alpha1", "kind": "ServiceChain", "metadata": { "name": "x".repeat(70) },
            "spec": { "from": "lan", "to": "wan", "via": [{ "name": "a", "nf": "bridge" }], "replicas": 0 }
        });
        cluster.create(CHAINS, &chain);
        let ready =
            |path: &str| cluster.get(path).unwrap_or_default()["status"]["conditions"][0].clone();
        let path = format!("{CHAINS}/{}", "x".repeat(70));
        eventually("a long name does", || ready(&path)["status"] == "True");
        cluster.delete(&path, false);
        must(&["create", "namespace", "tight"]);
        must(&[
            "create",
            "quota",
            "none",
            "--hard=pods=0",
            "--namespace",
            "tight",
        ]);
        chain["metadata"]["name"] = "edge".into();
        chain["spec"]["replicas"] = 1.into();
        let tight = CHAINS.replace("default", "tight");
        cluster.create(&tight, &chain);
        eventually("the chain says why it has no pod", || {
            let why = ready(&format!("{tight}/edge"))["message"].clone();
            why.as_str()
                .is_some_and(|why| why.contains("exceeded quota"))
        });
        cluster.delete(&format!("{tight}/edge"), false);
        chain["spec"]["via"] = json!([]);
        assert!(!cluster.allows(CHAINS, &chain), "a chain has a function");
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kubernetes");
        must(&["apply", "-f", &examples.display().to_string()]);
        must(&[
            "wait",
            "--for=condition=Ready",
            "chain/edge",
            "--timeout=120s",
        ]);
        let told = must(&["get", "switches,uplinks"]);
        assert!(told.contains("no node has it"), "{told}");
        let told = must(&["get", "nf,chain"]);
        assert!(told.contains("fw,nat") && told.contains("edge1"), "{told}");
        must(&["delete", "chain", "edge"]);
        eventually("its pod is gone", || {
            must(&["get", "pods", "-o", "name"])
                .lines()
                .all(|pod| !pod.contains("edge"))
        });
        must(&["rollout", "status", "deployment/bridges"]);
        must(&["scale", "deployment/bridges", "--replicas", "5"]);
        eventually("five run", || platform.pids().len() == 5);
        let first = platform.pids();
        // Another share is another pod.
        let limits = r#"{"spec":{"template":{"spec":{"containers":[{"name":"bridge","resources":{"limits":{"nfluid.io/permille":20}}}]}}}}"#;
        must(&["patch", "deployment/bridges", "-p", limits]);
        must(&["rollout", "status", "deployment/bridges"]);
        eventually("five others run", || {
            let pids = platform.pids();
            pids.len() == 5 && pids.keys().all(|name| !first.contains_key(name))
        });
        let log = must(&["logs", "deployment/bridges"]);
        assert!(log.contains("running on 2 ports"), "{log}");
        let (is_done, said) = kubectl(&["exec", "deployment/bridges", "--", "no-such"]);
        assert!(!is_done && said.contains("no commands"), "{said}");
        // More than the node has: the scheduler says so, and nothing is tried.
        must(&["scale", "deployment/bridges", "--replicas", "150"]);
        eventually("the node is full", || {
            let pending = must(&[
                "get",
                "pods",
                "--field-selector",
                "status.phase=Pending",
                "-o",
                "yaml",
            ]);
            pending.contains("Insufficient nfluid.io/permille")
        });
        must(&["delete", "deployment/bridges"]);
        eventually("none run", || platform.pids().is_empty());
        // A node that is drained is empty, and takes none.
        must(&["drain", "edge1", "--ignore-daemonsets", "--force"]);
        let node = must(&["describe", "node", "edge1"]);
        assert!(
            node.contains("nfluid.io/permille") && node.contains("Unschedulable:      true"),
            "{node}"
        );
    });
}

// promise: 26.6
#[test]
fn own_chart_is_what_kubernetes_takes() {
    let test = "own_chart_is_what_kubernetes_takes";
    let Some(helm) = std::env::var_os("HELM") else {
        return skip(test, "set HELM to Helm's program: docs/guide/kubernetes.md");
    };
    with_own(test, |cluster, platform| {
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integrations/kubernetes/chart");
        let printed = Command::new(helm)
            .arg("template")
            .arg("nfluid")
            .arg(&chart)
            .args([
                "--include-crds",
                "--kube-version",
                "1.36.3",
                "--set",
                "controller.image=registry.example/nfluid:1",
            ])
            .output()
            .expect("it runs");
        assert!(printed.status.success(), "{printed:?}");
        let file = platform.directory().join("chart.yaml");
        std::fs::write(&file, printed.stdout).expect("written");
        let file = file.display().to_string();
        let (is_done, said) = cluster
            .kubectl(&["apply", "-f", &file])
            .expect("it is there");
        assert!(is_done, "{said}");
        for what in [
            "deployment.apps/nfluid-controller",
            "clusterrole.rbac.authorization.k8s.io/nfluid-agent",
            "uplinks.nfluid.io",
        ] {
            assert!(said.contains(what), "{said}");
        }
    });
}
