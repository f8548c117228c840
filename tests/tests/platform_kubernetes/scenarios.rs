//! What nodes of nfluid promise to a cluster, whoever its API server is.

use super::cluster::{
    self, CHAINS, CONFIG_MAPS, Cluster, Node, PODS, SWITCHES, condition, container,
};
use nfluid_testbed::process::signal;
use nfluid_testbed::program::built;
use nfluid_testbed::random::Random;
use nfluid_tests::harness::command::run_command;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::two_hosts::{SERVER, UPLINKS, two_hosts};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// The network function that passes on what comes.
const BRIDGE: &str = "nfluid.io/nf/bridge";

/// Makes the platform of a scenario, with two uplinks.
pub fn platform(test: &str) -> Option<Platform> {
    let platform = two_hosts(test)?;
    platform.apply(UPLINKS);
    Some(platform)
}

/// A pod for the node `node`, with these annotations of its containers.
fn pod(name: &str, node: &str, containers: &[(&str, &str)]) -> Value {
    let annotations = containers
        .iter()
        .map(|(name, keys)| (format!("instance.nfluid.io/{name}"), json!(keys)));
    let limits = json!({ "nfluid.io/permille": "50", "memory": "16Mi" });
    let containers: Vec<_> = containers
        .iter()
        .map(|(name, _)| json!({ "name": name, "image": BRIDGE, "resources": { "limits": limits, "requests": limits } }))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "annotations": annotations.collect::<serde_json::Map<_, _>>() },
        "spec": { "nodeName": node, "containers": containers }
    })
}

fn instances(platform: &Platform) -> BTreeSet<String> {
    platform.pids().into_keys().collect()
}

fn await_instances(platform: &Platform, count: usize) {
    eventually(&format!("{count} instances run"), || {
        instances(platform).len() == count
    });
}

/// A pod is a chain: made, told of, reconfigured in place, asked, removed.
pub fn a_pod_is_a_chain(cluster: &Cluster, platform: &mut Platform) {
    let node = cluster.node(platform, "edge1");
    let found = cluster.get("/api/v1/nodes/edge1").expect("it is there");
    assert_eq!(found["metadata"]["labels"]["nf.nfluid.io/firewall"], "true");
    cluster.create(CONFIG_MAPS, &rules("allow ip from any to any\n"));
    cluster.create(PODS, &firewall_and_bridge());
    cluster.await_ready("edge");
    eventually("frames pass", || platform.pings("client", SERVER));
    let edge = cluster.pod("edge");
    assert_eq!(edge["status"]["phase"], "Running");
    let id = container(&edge, "fw")["containerID"]
        .as_str()
        .expect("an id")
        .to_owned();
    let name = id
        .trim_start_matches("nfluid://")
        .split('/')
        .next()
        .expect("a name");
    let instance = platform.instance(name);
    assert_eq!(instance["share_percent"], 12.5);
    assert_eq!(instance["memory_limit_bytes"], 32 << 20);

    let command = |words: &[&str]| cluster.exec(&node, ("edge", "fw"), words);
    let (is_done, said) = command(&["rules"]);
    assert!(is_done && said.contains("allow"), "{said}");
    let (is_done, said) = command(&["no-such"]);
    assert!(!is_done && said.contains("unknown command"), "{said}");
    let (code, log) = cluster.ask_agent(&node, "/containerLogs/default/edge/fw?tailLines=5", None);
    assert!(code == 200 && log.contains("running on 2 ports"), "{log}");
    let figures = cluster.figures(&node);
    let line = "pod_memory_working_set_bytes{namespace=\"default\",pod=\"edge\"}";
    assert!(figures.contains(line), "{figures}");

    // The same process has other rules.
    let before = platform.pids();
    let map = format!("{CONFIG_MAPS}/fw");
    cluster.change(
        &map,
        &json!({ "data": { "rules": "deny icmp from any to any\nallow ip from any to any\n" } }),
    );
    eventually("pings are denied", || !platform.pings("client", SERVER));
    cluster.change(&map, &json!({ "data": { "rules": "nonsense\n" } }));
    eventually("the refusal is told", || {
        let events = cluster.events("edge");
        events
            .iter()
            .any(|event| event.starts_with("Refused fw: instance.nfluid.io/fw.config.rules"))
    });
    assert_eq!(
        condition(&cluster.pod("edge"), "Ready"),
        Some("True"),
        "the rules before go on"
    );
    cluster.change(
        &map,
        &json!({ "data": { "rules": "allow ip from any to any\n" } }),
    );
    eventually("pings are allowed", || platform.pings("client", SERVER));
    assert_eq!(platform.pids(), before);

    cluster.delete(&format!("{PODS}/edge"), false);
    eventually("the pod is gone", || {
        cluster.get(&format!("{PODS}/edge")).is_none()
    });
    await_instances(platform, 0);
}

fn rules(text: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "fw" }, "data": { "rules": text } })
}

fn firewall_and_bridge() -> Value {
    let keys = "config: { rules_file: /etc/nf/rules }\nlinks: [[lan, .in], [.out, '@br.in']]\n";
    let mut edge = pod(
        "edge",
        "edge1",
        &[("fw", keys), ("br", "links: [[.out, wan]]")],
    );
    let limits = json!({ "nfluid.io/permille": "125", "memory": "32Mi" });
    let firewall = &mut edge["spec"]["containers"][0];
    firewall["image"] = "nfluid.io/nf/firewall".into();
    firewall["resources"] = json!({ "limits": limits, "requests": limits });
    firewall["volumeMounts"] = json!([{ "name": "rules", "mountPath": "/etc/nf" }]);
    edge["spec"]["volumes"] = json!([{ "name": "rules", "configMap": { "name": "fw" } }]);
    edge
}

/// What cannot be made is refused with its reason, and made once it can.
pub fn what_is_impossible_is_refused(cluster: &Cluster, platform: &mut Platform) {
    let node = cluster.node(platform, "edge1");
    let waits = |name: &str, reason: &str, words: &str| {
        eventually(&format!("{name} waits"), || {
            let pod = cluster.pod(name);
            let waiting = &container(&pod, "x")["state"]["waiting"];
            let message = waiting["message"].as_str().unwrap_or_default();
            waiting["reason"] == reason && message.contains(words)
        });
        assert_eq!(cluster.pod(name)["status"]["phase"], "Pending");
    };
    // Each of them asks for something else that this host does not have.
    let refused = [
        ("uplink", "links: [[nowhere, .in]]", "nowhere"),
        ("flavor", "flavor: gigantic", "gigantic"),
        ("key", "colour: red", "instance.nfluid.io/x.colour"),
        ("port", "links: [['@nobody.in', .in]]", "@nobody"),
    ];
    for (name, keys, words) in refused {
        cluster.create(PODS, &pod(name, "edge1", &[("x", keys)]));
        waits(name, "CreateContainerError", words);
    }
    let mut foreign = pod("foreign", "edge1", &[("x", "")]);
    foreign["spec"]["hostNetwork"] = true.into();
    foreign["spec"]["containers"][0]["livenessProbe"] = json!({ "tcpSocket": { "port": 1 } });
    cluster.create(PODS, &foreign);
    waits("foreign", "CreateContainerConfigError", "spec.hostNetwork");
    waits("foreign", "CreateContainerConfigError", "livenessProbe");
    let mut no_map = pod("map", "edge1", &[("x", "")]);
    no_map["spec"]["volumes"] = json!([{ "name": "v", "configMap": { "name": "later" } }]);
    no_map["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
    cluster.create(PODS, &no_map);
    waits(
        "map",
        "CreateContainerConfigError",
        "configmap \"later\" not found",
    );
    cluster.create(PODS, &pod("first", "edge1", &[("x", "name: taken")]));
    cluster.await_ready("first");
    cluster.create(PODS, &pod("second", "edge1", &[("x", "name: taken")]));
    waits("second", "CreateContainerError", "the instance exists");
    assert_eq!(instances(platform).len(), 1, "nothing is half made");

    // What was missing comes.
    let later = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "later" } });
    cluster.create(CONFIG_MAPS, &later);
    cluster.await_ready("map");
    let keys =
        json!({ "metadata": { "annotations": { "instance.nfluid.io/x": "links: [[lan, .in]]" } } });
    cluster.change(&format!("{PODS}/uplink"), &keys);
    cluster.await_ready("uplink");
    cluster.delete(&format!("{PODS}/first"), false);
    cluster.await_ready("second");
    let told = cluster.events("foreign");
    assert!(
        told.iter().any(|event| event.starts_with("Refused")),
        "{told:?}"
    );
    drop(node);
}

/// Agent, daemon and instances die in any order; what forwards goes on, nothing doubles, nothing stays.
pub fn whoever_dies_nothing_is_lost(cluster: &Cluster, platform: &mut Platform) {
    let mut node = cluster.node(platform, "edge1");
    let beside = cluster.node(platform, "edge2");
    let chain = [
        ("a", "links: [[lan, .in], [.out, '@b.in']]"),
        ("b", "links: [[.out, wan]]"),
    ];
    cluster.create(PODS, &pod("chain", "edge1", &chain));
    for name in ["stays", "ends", "vanishes"] {
        cluster.create(PODS, &pod(name, "edge1", &[("x", "")]));
    }
    cluster.create(PODS, &pod("other", "edge2", &[("x", "")]));
    for name in ["chain", "stays", "ends", "vanishes", "other"] {
        cluster.await_ready(name);
    }
    eventually("frames pass", || platform.pings("client", SERVER));
    let before = platform.pids();
    assert_eq!(before.len(), 6);

    // While the agent is away, one pod is to end, another one is gone, and the history is forgotten.
    node.kill();
    cluster.delete(&format!("{PODS}/ends"), false);
    cluster.delete(&format!("{PODS}/vanishes"), true);
    platform.kill_daemon();
    platform.start();
    assert!(
        platform.pings("client", SERVER),
        "frames pass without an agent"
    );
    node.start();
    await_instances(platform, 4);
    eventually("the pod has ended", || {
        cluster.get(&format!("{PODS}/ends")).is_none()
    });
    let after = platform.pids();
    assert!(
        after
            .iter()
            .all(|(name, pid)| before.get(name) == Some(pid)),
        "{before:?} {after:?}"
    );

    // A watch breaks; a pod that comes afterwards is seen.
    cluster.compact();
    cluster.create(PODS, &pod("late", "edge1", &[("x", "")]));
    cluster.await_ready("late");
    cluster.delete(&format!("{PODS}/late"), true);
    await_instances(platform, 4);

    // An instance crashes, and somebody removes another one.
    let id = |pod: &str| {
        container(&cluster.pod(pod), "x")["containerID"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let instance = |pod: &str| {
        id(pod)
            .trim_start_matches("nfluid://")
            .split('/')
            .next()
            .expect("a name")
            .to_owned()
    };
    let (crashes, removed) = (instance("stays"), instance("other"));
    signal(after[&crashes], Signal::KILL);
    eventually("the crash is counted", || {
        let pod = cluster.pod("stays");
        let status = container(&pod, "x");
        status["restartCount"] == 1 && status["ready"] == true
    });
    eventually("the crash is told", || {
        cluster
            .events("stays")
            .iter()
            .any(|event| event.starts_with("Crashed x: "))
    });
    let known = id("other");
    platform.must_say(&["delete", "instance", &removed]);
    eventually("it is made anew", || {
        let pod = cluster.pod("other");
        let status = container(&pod, "x");
        id("other") != known && status["ready"] == true && status["restartCount"] == 1
    });
    assert!(platform.pings("client", SERVER));

    // A node whose daemon is away takes no pods.
    let is_ready = || {
        let node = cluster.get("/api/v1/nodes/edge1").unwrap_or_default();
        condition(&node, "Ready") == Some("True")
    };
    platform.kill_daemon();
    eventually("the node is not ready", || !is_ready());
    platform.start();
    eventually("the node is ready", is_ready);
    drop(beside);
}

/// A pod that is not to be restarted ends with its instance.
pub fn a_pod_ends_as_its_policy_says(cluster: &Cluster, platform: &mut Platform) {
    let mut node = cluster.node(platform, "edge1");
    for name in ["crashes", "is-removed"] {
        let mut once = pod(name, "edge1", &[("x", "")]);
        once["spec"]["restartPolicy"] = "Never".into();
        cluster.create(PODS, &once);
        cluster.await_ready(name);
    }
    let instance = |pod: &str| {
        let pod = cluster.pod(pod);
        let id = container(&pod, "x")["containerID"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        id.trim_start_matches("nfluid://")
            .split('/')
            .next()
            .expect("a name")
            .to_owned()
    };
    signal(platform.pids()[&instance("crashes")], Signal::KILL);
    eventually("the pod has failed", || {
        cluster.pod("crashes")["status"]["phase"] == "Failed"
    });
    let failed = cluster.pod("crashes");
    assert_eq!(
        container(&failed, "x")["state"]["terminated"]["exitCode"],
        137
    );
    // An agent that comes later does not make it again.
    node.kill();
    platform.must_say(&["delete", "instance", &instance("is-removed")]);
    node.start();
    eventually("the pod has failed", || {
        cluster.pod("is-removed")["status"]["phase"] == "Failed"
    });
    // What they were promised is free again, and the log is there.
    await_instances(platform, 0);
    let left = platform.ask(&["get", "instances"]);
    assert_eq!(left.as_array().map(Vec::len), Some(0), "{left}");
    eventually("the log is there", || {
        let (code, log) = cluster.ask_agent(&node, "/containerLogs/default/crashes/x", None);
        code == 200 && log.contains("running on 2 ports")
    });
    for name in ["crashes", "is-removed"] {
        cluster.delete(&format!("{PODS}/{name}"), false);
        eventually("the pod is gone", || {
            cluster.get(&format!("{PODS}/{name}")).is_none()
        });
    }
    await_instances(platform, 0);
}

/// Callers of the agent are who Kubernetes says, and may what it says.
pub fn callers_may_what_kubernetes_says(cluster: &Cluster, node: &Node) {
    use super::double::READER;
    let code = |path: &str, token: &str| cluster.ask_agent(node, path, Some(token)).0;
    assert_eq!(code("/metrics/resource", READER), 200);
    for path in [
        "/containerLogs/default/x/x",
        "/exec/default/x/x?command=rules",
        "/anything",
        "/healthz",
    ] {
        assert_eq!(code(path, READER), 403, "{path}");
        assert_eq!(code(path, "token-of-a-stranger"), 403, "{path}");
        assert_eq!(code(path, "nobody's"), 401, "{path}");
    }
    let (missing, why) = cluster.ask_agent(node, "/containerLogs/default/x/x", None);
    assert!(
        missing == 404 && why.contains("not on this node"),
        "{missing} {why}"
    );
    let (refused, _) = cluster.ask_agent(node, "/exec/default/x/x?command=rules", None);
    assert_eq!(refused, 400, "without a WebSocket");
}

/// Everybody dies at random while pods come and go. The chain that nobody touches forwards all the time; at the end there is an instance for each
/// pod, and no other one.
pub fn all_die_at_random(cluster: &Cluster, platform: &mut Platform, turns: u32) {
    let seed = 0x6b75_6265;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let mut node = cluster.node(platform, "edge1");
    let chain = [
        ("a", "links: [[lan, .in], [.out, '@b.in']]"),
        ("b", "links: [[.out, wan]]"),
    ];
    cluster.create(PODS, &pod("chain", "edge1", &chain));
    cluster.await_ready("chain");
    eventually("frames pass", || platform.pings("client", SERVER));
    let untouched = platform.pids();
    let mut present = BTreeSet::new();
    for turn in 0..turns {
        let name = format!("p{turn}");
        cluster.create(PODS, &pod(&name, "edge1", &[("x", "")]));
        present.insert(name);
        let mut daemon_is_dead = false;
        match random.below(8) {
            0 => node.kill(),
            1 => {
                platform.kill_daemon();
                daemon_is_dead = true;
            }
            2 => cluster.compact(),
            3 => {
                let known = untouched.keys().collect::<Vec<_>>();
                let all = platform.pids();
                let others = all.iter().filter(|(name, _)| !known.contains(name));
                let others: Vec<_> = others.map(|(_, pid)| *pid).collect();
                if !others.is_empty() {
                    signal(random.pick(&others), Signal::KILL);
                }
            }
            _ => {
                // Most have run before.
                let all: Vec<_> = present.iter().cloned().collect();
                let gone = &all[random.below(all.len() as u32) as usize];
                cluster.delete(&format!("{PODS}/{gone}"), random.one_in(2));
                present.remove(gone);
            }
        }
        assert!(platform.pings("client", SERVER), "turn {turn}");
        if daemon_is_dead {
            platform.start();
        }
        // The agent misses some turns.
        if random.one_in(2) {
            node.start();
        }
    }
    node.start();
    for name in &present {
        cluster.await_ready(name);
    }
    await_instances(platform, present.len() + untouched.len());
    let pids = platform.pids();
    assert!(
        untouched
            .iter()
            .all(|(name, pid)| pids.get(name) == Some(pid))
    );
    eventually("nobody else's pod is left", || {
        let all = cluster.get(PODS).unwrap_or_default();
        all["items"].as_array().map_or(0, Vec::len) == present.len() + 1
    });
}

/// A chain is pods on nodes: changed in place where that is possible, else one after the other, and made elsewhere where a node is lost.
pub fn a_chain_is_pods_on_nodes(cluster: &Cluster, platform: &mut Platform) {
    let mut other = platform
        .beside("a_chain_is_pods_on_nodes")
        .expect("as the first");
    other.start();
    other.apply("version: 1\nuplinks: { lan: { interface: lan0, kind: tap, netns: EDGE }, wan: { interface: wan0, kind: tap, netns: EDGE } }\n");
    let _first = cluster.node(platform, "edge1");
    let mut controller = cluster.controller();
    let stages = |rules: &str, permille: u32| {
        json!([
            { "name": "fw", "nf": "firewall", "permille": permille, "memory": "32Mi", "config": { "rules": rules } },
            { "name": "br", "nf": "bridge", "permille": 20, "memory": "16Mi" }
        ])
    };
    let via = |rules: &str, permille: u32| json!({ "spec": { "via": stages(rules, permille) } });
    let chain = json!({
        "apiVersion": "nfluid.io/v1alpha1", "kind": "ServiceChain", "metadata": { "name": "edge" },
        "spec": { "from": "lan", "to": "wan", "via": stages("allow ip from any to any", 50), "replicas": 1, "placement": "spread", "nodeLossSeconds": 5 }
    });
    // It looks as if it were the chain's, and is somebody else's.
    let mut foreign = pod("foreign", "nowhere", &[("x", "")]);
    foreign["metadata"]["labels"] =
        json!({ "nfluid.io/of": "edge", "nfluid.io/kind": "ServiceChain", "nfluid.io/slot": "0" });
    cluster.create(PODS, &foreign);
    cluster.create(CHAINS, &chain);
    let path = format!("{CHAINS}/edge");
    let status = || cluster.get(&path).unwrap_or_default()["status"].clone();
    let is_ready = || status()["conditions"][0]["status"] == "True";
    let why = || {
        status()["conditions"][0]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    eventually("the chain is ready", || {
        is_ready() && status()["nodes"] == "edge1"
    });
    eventually("frames pass", || platform.pings("client", SERVER));

    // The processes stay; what the daemon refuses is told at the chain.
    let before = platform.pids();
    cluster.change(&path, &via("deny icmp from any to any", 50));
    eventually("pings are denied", || !platform.pings("client", SERVER));
    cluster.change(&path, &via("nonsense", 50));
    eventually("the refusal is told", || {
        !is_ready() && why().contains("'nonsense'")
    });
    controller.kill();
    cluster.change(&path, &via("allow ip from any to any", 50));
    controller = cluster.controller();
    eventually("pings are allowed", || {
        platform.pings("client", SERVER) && is_ready()
    });
    assert_eq!(platform.pids(), before);

    // Another share is another pod.
    cluster.change(&path, &via("allow ip from any to any", 70));
    eventually("others run", || {
        let pids = platform.pids();
        pids.len() == 2 && pids.keys().all(|name| !before.contains_key(name)) && is_ready()
    });
    eventually("frames pass", || platform.pings("client", SERVER));

    // A second one is on the second node; it is replaced when it has to leave, although its node is silent.
    let mut second = cluster.node(&other, "edge2");
    cluster.change(&path, &json!({ "spec": { "replicas": 2 } }));
    eventually("both run", || {
        is_ready() && status()["nodes"] == "edge1,edge2"
    });
    second.kill();
    cluster.delete(&format!("{PODS}/edge-1"), false);
    eventually("another one is made", || {
        let all = cluster.get(PODS).unwrap_or_default();
        let mut all = all["items"].as_array().into_iter().flatten();
        all.any(|pod| {
            pod["metadata"]["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("edge-1-"))
        })
    });
    assert!(
        !cluster.pod("edge-1")["metadata"]["deletionTimestamp"].is_null(),
        "its node has not ended it"
    );
    second.start();
    eventually("both run again", || {
        is_ready() && cluster.get(&format!("{PODS}/edge-1")).is_none()
    });
    cluster.change(&path, &json!({ "spec": { "replicas": 0 } }));
    await_instances(platform, 0);
    await_instances(&other, 0);
    eventually("the chain has none", || {
        status()["nodes"] == "" && is_ready()
    });
    assert!(
        cluster.get(&format!("{PODS}/foreign")).is_some(),
        "it is not the chain's"
    );
    drop(controller);
}

/// Switches and uplinks are objects that the agents make on their hosts: a chain between them forwards, changes reach it, and what cannot be is
/// told at the object.
pub fn switches_and_uplinks_are_objects(cluster: &Cluster, platform: &mut Platform) {
    let object = |kind: &str, name: &str, spec: Value| json!({ "apiVersion": "nfluid.io/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    let uplink = |name: &str, interface: &str, more: Value| {
        let mut spec = json!({ "interface": interface, "uplink": { "netns": platform.edge() } });
        spec.as_object_mut()
            .expect("keys")
            .extend(more.as_object().expect("keys").clone());
        object("Uplink", name, spec)
    };
    // The uplinks of the platform's own document go: they have these interfaces.
    platform.apply("version: 1\n");
    let mut node = cluster.node(platform, "edge1");
    let controller = cluster.controller();
    let path = |name: &str| match name {
        "lan" => format!("{SWITCHES}/lan"),
        name => format!("{}/{name}", cluster::UPLINKS),
    };
    let state = |name: &str| {
        let found = cluster.get(&path(name)).unwrap_or_default();
        let condition = found["status"]["conditions"][0].clone();
        (
            condition["status"] == "True",
            condition["message"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let names = |kind: &str| -> BTreeSet<String> {
        let all = platform.ask(&["get", kind]);
        let all = all.as_array().into_iter().flatten();
        all.filter_map(|it| Some(it["name"].as_str()?.to_owned()))
            .collect()
    };
    // The uplink comes before its switch, and waits for it.
    cluster.create(
        cluster::UPLINKS,
        &uplink("client", "client", json!({ "switch": "lan" })),
    );
    eventually("it waits", || state("client").1.contains("lan"));
    cluster.create(
        SWITCHES,
        &object("Switch", "lan", json!({ "ageing": "60s" })),
    );
    cluster.create(cluster::UPLINKS, &uplink("server", "server", json!({})));
    let elsewhere = json!({ "nodeSelector": { "kubernetes.io/hostname": "edge9" } });
    cluster.create(cluster::UPLINKS, &uplink("elsewhere", "client", elsewhere));
    for name in ["lan", "client", "server"] {
        eventually(&format!("{name} is ready"), || state(name).0);
    }
    eventually("no node has it", || {
        state("elsewhere").1 == "no node has it"
    });
    let chain = json!({
        "apiVersion": "nfluid.io/v1alpha1", "kind": "ServiceChain", "metadata": { "name": "way" },
        "spec": { "from": "switch/lan", "to": "server", "via": [{ "name": "br", "nf": "bridge", "permille": 20, "memory": "16Mi" }] }
    });
    cluster.create(CHAINS, &chain);
    eventually("frames pass", || platform.pings("client", SERVER));

    let told = cluster.get(&path("lan")).expect("it is there")["status"].clone();
    assert_eq!((&told["wanted"], &told["ready"]), (&json!(1), &json!(1)));
    if let Some((_, said)) = cluster.kubectl(&["get", "switches,uplinks"]) {
        assert!(said.contains("WANTED   READY"), "{said}");
    }

    // Nobody's document touches them, nor does an object what is an operator's.
    platform.apply("version: 1\nswitches: { own: {} }\n");
    assert!(platform.pings("client", SERVER));
    cluster.create(SWITCHES, &object("Switch", "own", json!({})));
    let own = format!("{SWITCHES}/own");
    eventually("it is the operator's", || {
        let found = cluster.get(&own).unwrap_or_default();
        let why = &found["status"]["conditions"][0]["message"];
        why.as_str()
            .is_some_and(|why| why.contains("nobody's in particular"))
    });
    cluster.delete(&own, false);

    // A change in place; one that is impossible is told, and everything goes on as it was.
    cluster.change(&path("lan"), &json!({ "spec": { "ageing": "90s" } }));
    eventually("the switch is changed", || {
        let all = platform.ask(&["get", "switches"]);
        let mut all = all.as_array().into_iter().flatten();
        all.any(|it| it["name"] == "lan" && it["ageing_s"] == 90)
    });
    cluster.change(
        &path("client"),
        &json!({ "spec": { "interface": "nowhere" } }),
    );
    eventually("it is told", || {
        let (is_ready, why) = state("client");
        !is_ready && why.contains("spec.interface") && why.contains("nowhere")
    });
    assert!(platform.pings("client", SERVER));
    cluster.change(
        &path("client"),
        &json!({ "spec": { "interface": "client" } }),
    );
    eventually("it is ready again", || state("client").0);

    // The agent is away while an object goes. What a chain uses stays until the chain is gone.
    node.kill();
    for name in ["client", "server", "lan"] {
        cluster.delete(&path(name), false);
    }
    assert!(platform.pings("client", SERVER));
    node.start();
    eventually("the free uplink is gone", || {
        !names("uplinks").contains("client")
    });
    assert!(names("uplinks").contains("server") && names("switches").contains("lan"));
    cluster.delete(&format!("{CHAINS}/way"), false);
    // Here, Kubernetes' own collector of garbage does that, and the double has none.
    if cluster.get(&format!("{PODS}/way-0")).is_some() {
        cluster.delete(&format!("{PODS}/way-0"), false);
    }
    eventually("nothing is left", || {
        names("uplinks").is_empty() && names("switches") == BTreeSet::from(["own".to_owned()])
    });
    drop(controller);
}

/// Pods are asked for at a rate, and the server's own log says where the time has gone.
pub fn pods_are_asked_for_at_a_rate(cluster: &Cluster, platform: &mut Platform) {
    let _node = cluster.node(platform, "edge1");
    let orchestra = |arguments: &[&str]| {
        let program = built("nfluid-orchestra", "nfluid-orchestra").expect("it was built");
        run_command(Command::new(program).args(arguments))
    };
    let at = |name: &str| platform.directory().join(name).display().to_string();
    let template = pod("pushed", "edge1", &[("br", "")]);
    fs::write(at("pod.json"), template.to_string()).expect("written");
    let (kubeconfig, log) = (
        cluster.kubeconfig().display().to_string(),
        at("asked.jsonl"),
    );
    let push = |template: &str, more: &[&str]| {
        let arguments = [
            "push",
            "--kubernetes",
            &kubeconfig,
            "--load",
            "10x1s",
            "--template",
            template,
        ];
        orchestra(&[&arguments, more].concat())
    };
    let pushed = push(&at("pod.json"), &["--trace", &log]);
    assert!(pushed.succeeded(), "{pushed:?}");
    let asked: Vec<Value> = fs::read_to_string(&log)
        .expect("it was written")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let names: BTreeSet<_> = asked
        .iter()
        .map(|it| it["name"].as_str().expect("a name"))
        .collect();
    assert_eq!((asked.len(), names.len()), (10, 10));
    await_instances(platform, 10);
    for name in names {
        cluster.await_ready(name);
    }
    // The names are taken: each request is refused, and none is sent later because of that.
    let again = push(&at("pod.json"), &[]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stdout.contains("refused 10 times: "), "{again:?}");
    let unknown = at("unknown.json");
    fs::write(
        &unknown,
        r#"{"apiVersion":"v1","kind":"Pot","metadata":{"name":"x"}}"#,
    )
    .expect("written");
    assert!(!push(&unknown, &[]).succeeded());

    if let Some(audit) = cluster.audit_log() {
        let events = platform.must_say(&["events", "-o", "json"]);
        fs::write(at("events.json"), events).expect("written");
        let (audit, svg) = (audit.display().to_string(), at("phases.svg"));
        let said = orchestra(&[
            "analyse",
            "--kubernetes-audit",
            &audit,
            "--nfluid-events",
            &at("events.json"),
            "--name",
            "pushed-",
            "--plot",
            &svg,
        ]);
        assert!(said.succeeded(), "{said:?}");
        println!("{}", said.stdout);
        for part in [
            "10 times",
            "API",
            "agent, nfluid",
            "agent tells",
            "API is told",
            "in all",
        ] {
            assert!(said.stdout.contains(part), "{}", said.stdout);
        }
        assert!(
            fs::read_to_string(svg)
                .expect("it was drawn")
                .contains("</svg>")
        );
    }
    for name in 0..10 {
        cluster.delete(&format!("{PODS}/pushed-{name}"), false);
    }
    await_instances(platform, 0);
    // With '--remove', nothing is left of a load.
    let removed = push(&at("pod.json"), &["--remove"]);
    assert!(removed.succeeded(), "{removed:?}");
    eventually("no pod is left", || {
        let all = cluster.get(PODS).unwrap_or_default();
        all["items"].as_array().is_some_and(Vec::is_empty)
    });
    await_instances(platform, 0);
}
