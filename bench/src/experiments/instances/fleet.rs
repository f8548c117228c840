//! Chains on many nodes: how many a second come up, how long it takes until all is right again after a tenth of the nodes is lost, and what the controller and the
//! control plane need for a node (`fleet.*`).
//!
//! The nodes are simulated: agents as those of real nodes, before hosts in memory. The control plane is Kubernetes' own, and all of it is on the same two
//! cores.

use super::orchestrated::{now_ms, open_cluster};
use crate::host::cpu::process_seconds;
use crate::host::memory::peak_bytes;
use crate::report::{Report, table};
use anyhow::{Context, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::interrupt;
use nfluid_testbed::kubernetes::{Kubernetes, Manner, find};
use nfluid_testbed::process::Service;
use nfluid_testbed::program::built;
use nfluid_tls::testing::Authority;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Processes that simulate the nodes, each a tenth of them.
const PARTS: usize = 10;
/// Network functions of a chain.
const FUNCTIONS: usize = 10;
/// Network functions of a chain, again from the first after the last.
const KINDS: [&str; 4] = ["firewall", "nat", "limiter", "counter"];
/// The status of an answer that there is such an object.
const CONFLICT: u16 = 409;
/// Requests for chains that are under way at a time.
const AT_A_TIME: usize = 16;
/// Time for which the cluster is watched at rest, and until it is taken to be at rest.
const REST: Duration = Duration::from_secs(20);
/// Interval of looks.
const LOOK: Duration = Duration::from_millis(500);
/// Time after which what is waited for is not going to happen.
const PATIENCE: Duration = Duration::from_secs(1800);

/// How large an experiment is.
#[derive(Clone, Copy)]
struct Scale {
    nodes: usize,
    /// Chains that are asked for in a round.
    chains: usize,
    rounds: usize,
    rest: Duration,
    /// True if nodes are lost, which takes longer than a quick run has.
    loses: bool,
}

struct Cluster {
    client: Client,
    runtime: Runtime,
    /// The processes that simulate nodes.
    parts: Vec<Service>,
    controller: Service,
    control_plane: Kubernetes,
    program: PathBuf,
    scale: Scale,
    folder: ScratchDirectory,
}

/// Where a chain's pod is, and whether it is ready there.
#[derive(Default)]
struct Chain {
    is_ready: bool,
    nodes: String,
}

impl Cluster {
    fn new(scale: Scale) -> anyhow::Result<Self> {
        let programs = find()?;
        let program = built("nfluid-kubernetes", "nfluid-kubernetes")?;
        let folder = ScratchDirectory::new()?;
        let at = folder.path("kubernetes");
        std::fs::create_dir_all(&at)?;
        let caller = Authority::new()?.write_user(&at, "kube-apiserver", "system:masters")?;
        let manner = Manner {
            is_large: true,
            ..Manner::default()
        };
        let control_plane = Kubernetes::start(
            programs,
            at.clone(),
            (&caller.certificate, &caller.key),
            manner,
        )?;
        let definitions = folder.path("definitions.yaml");
        let text = Command::new(&program).arg("definitions").output()?;
        std::fs::write(&definitions, text.stdout)?;
        let definitions = definitions.display().to_string();
        let (is_done, said) = control_plane.kubectl(&["apply", "-f", &definitions])?;
        ensure!(is_done, "kubectl apply: {said}");
        let uplink = |name: &str| json!({ "interface": name, "switch": name });
        let deployment = json!({
            "version": 1,
            "switches": { "lan": {}, "wan": {} },
            "uplinks": { "lan": uplink("lan"), "wan": uplink("wan") }
        });
        std::fs::write(folder.path("host.yaml"), deployment.to_string())?;
        let kubeconfig = control_plane.kubeconfig();
        let (is_done, said) = control_plane.kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd/servicechains.nfluid.io",
        ])?;
        ensure!(is_done, "kubectl wait: {said}");
        let mut command = Command::new(&program);
        command
            .arg("controller")
            .arg("--kubeconfig")
            .arg(&kubeconfig);
        let controller = Service::start("controller", &mut command, at.join("controller.log"))?;
        let (runtime, client) = open_cluster(&kubeconfig)?;
        let mut cluster = Cluster {
            client,
            runtime,
            parts: Vec::new(),
            controller,
            control_plane,
            program,
            scale,
            folder,
        };
        for part in 0..PARTS {
            let simulated = cluster.simulate(part)?;
            cluster.parts.push(simulated);
        }
        Ok(cluster)
    }

    /// Starts the process of a tenth of the nodes.
    fn simulate(&self, part: usize) -> anyhow::Result<Service> {
        let mut command = Command::new(&self.program);
        command
            .args(["simulate", "--prefix", &prefix(part)])
            .args(["--nodes", &(self.scale.nodes / PARTS).to_string()])
            .args([
                "--nf", "firewall", "--nf", "nat", "--nf", "limiter", "--nf", "counter",
            ])
            .arg("--deployment")
            .arg(self.folder.path("host.yaml"))
            .arg("--kubeconfig")
            .arg(self.control_plane.kubeconfig())
            .env("RUST_LOG", "warn");
        let name = prefix(part);
        let log = self.folder.path(&format!("{name}.log"));
        Service::start(&name, &mut command, log)
    }

    /// Waits until all nodes take pods; returns the seconds that it took.
    fn await_nodes(&mut self) -> anyhow::Result<f64> {
        let begun = Instant::now();
        let nodes = Api::<Node>::all(self.client.clone());
        loop {
            self.check()?;
            // From the API server's memory: the look takes nothing from what is looked at.
            let cached = ListParams::default().match_any();
            let all = self.patiently(|| nodes.list(&cached))?;
            let takes_pods = |node: &&Node| {
                let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
                let mut conditions = conditions.into_iter().flatten();
                let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
                let mut taints = taints.into_iter().flatten();
                conditions.any(|it| it.type_ == "Ready" && it.status == "True")
                    && taints.all(|it| it.key == "nfluid.io/node")
            };
            if all.items.iter().filter(takes_pods).count() == self.scale.nodes {
                return Ok(begun.elapsed().as_secs_f64());
            }
            ensure!(begun.elapsed() < PATIENCE, "the nodes are not ready");
            std::thread::sleep(LOOK);
        }
    }

    /// Fails if a process of the cluster has ended, or the experiment is interrupted.
    fn check(&mut self) -> anyhow::Result<()> {
        interrupt::check()?;
        for service in self.parts.iter_mut().chain([&mut self.controller]) {
            let runs = service.is_running();
            ensure!(
                runs,
                "{} has ended: {}",
                service.name(),
                service.last_log_line()
            );
        }
        Ok(())
    }

    /// Asks the API server until it answers: under load it ends connections.
    fn patiently<T, F>(&mut self, ask: impl Fn() -> F) -> anyhow::Result<T>
    where
        F: Future<Output = kube::Result<T>>,
    {
        let begun = Instant::now();
        loop {
            self.check()?;
            match self.runtime.block_on(ask()) {
                Ok(answer) => return Ok(answer),
                Err(error) if is_refusal(&error) || begun.elapsed() > PATIENCE => {
                    return Err(error.into());
                }
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }

    fn chains(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("nfluid.io", "v1alpha1", "ServiceChain");
        Api::namespaced_with(
            self.client.clone(),
            "default",
            &ApiResource::from_gvk(&kind),
        )
    }

    /// Waits until all of `count` chains are ready on nodes that `lives`; returns the time of the last change, in milliseconds since 1970.
    fn await_chains(&mut self, count: usize, lives: impl Fn(&str) -> bool) -> anyhow::Result<f64> {
        let api = self.chains();
        let begun = Instant::now();
        loop {
            // A watch ends now and then.
            let (mut known, version) = self.patiently(|| list(&api))?;
            let is_wrong = |chain: &Chain| !(chain.is_ready && lives(&chain.nodes));
            let mut wrong: HashSet<String> = known
                .iter()
                .filter(|(_, chain)| is_wrong(chain))
                .map(|(name, _)| name.clone())
                .collect();
            if known.len() == count && wrong.is_empty() {
                return Ok(now_ms());
            }
            let watch = WatchParams::default();
            let mut events = self.patiently(|| api.watch(&watch, &version))?.boxed();
            loop {
                self.check()?;
                ensure!(
                    begun.elapsed() < PATIENCE,
                    "{} of {count} chains are there, {} of them not ready",
                    known.len(),
                    wrong.len()
                );
                let next = self.runtime.block_on(async {
                    tokio::time::timeout(Duration::from_secs(1), events.try_next()).await
                });
                let event = match next {
                    Err(_) => continue,
                    Ok(Ok(Some(event))) => event,
                    Ok(_) => break,
                };
                let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else {
                    continue;
                };
                let (name, chain) = read(&object);
                if is_wrong(&chain) {
                    wrong.insert(name.clone());
                } else {
                    wrong.remove(&name);
                }
                known.insert(name, chain);
                if known.len() == count && wrong.is_empty() {
                    return Ok(now_ms());
                }
            }
        }
    }

    /// Asks for chains; returns when it began, in milliseconds since 1970.
    fn ask(&self, round: usize) -> anyhow::Result<f64> {
        let api = self.chains();
        let begun = now_ms();
        let all: anyhow::Result<Vec<_>> = (0..self.scale.chains)
            .map(|at| chain(&format!("c{round}-{at}")))
            .collect();
        let parameters = PostParams::default();
        let posts = stream::iter(all?)
            .map(|chain| {
                let (api, parameters) = (&api, &parameters);
                async move {
                    interrupt::check()?;
                    while let Err(error) = api.create(parameters, &chain).await {
                        match error {
                            // The answer to an earlier request was lost.
                            kube::Error::Api(status) if status.code == CONFLICT => break,
                            error if is_refusal(&error) => return Err(error.into()),
                            _ => tokio::time::sleep(LOOK).await,
                        }
                    }
                    anyhow::Ok(())
                }
            })
            .buffer_unordered(AT_A_TIME)
            .try_collect::<Vec<()>>();
        self.runtime.block_on(posts)?;
        Ok(begun)
    }

    /// Kills a tenth of the nodes; returns the seconds until all of `count` chains are ready on others. The nodes are there again in the end.
    fn lose(&mut self, part: usize, count: usize) -> anyhow::Result<f64> {
        let prefix = format!("{}-", prefix(part));
        let lives = |nodes: &str| nodes.split(',').all(|node| !node.starts_with(&prefix));
        let api = self.chains();
        let (known, _) = self.patiently(|| list(&api))?;
        ensure!(
            !known.values().all(|chain| lives(&chain.nodes)),
            "no chain is on the nodes that are to be lost"
        );
        let begun = now_ms();
        let mut dead = self.parts.remove(part);
        dead.signal(Signal::KILL)?;
        dead.wait()?;
        let right = self.await_chains(count, lives)?;
        let again = self.simulate(part)?;
        self.parts.insert(part, again);
        self.await_nodes()?;
        Ok((right - begun) / 1e3)
    }

    /// CPU seconds so far of the control plane, of the controller, and of the nodes' agents and hosts.
    fn used(&self) -> anyhow::Result<[f64; 3]> {
        let sum = |pids: &mut dyn Iterator<Item = u32>| {
            pids.map(process_seconds).sum::<anyhow::Result<f64>>()
        };
        Ok([
            sum(&mut self.control_plane.pids())?,
            process_seconds(self.controller.pid())?,
            sum(&mut self.parts.iter().map(Service::pid))?,
        ])
    }

    /// CPU of the cluster at rest, in microseconds per second and node, as [`Cluster::used`] divides it.
    fn at_rest(&mut self) -> anyhow::Result<[f64; 3]> {
        std::thread::sleep(self.scale.rest);
        self.check()?;
        let (before, begun) = (self.used()?, Instant::now());
        std::thread::sleep(self.scale.rest);
        let (after, seconds) = (self.used()?, begun.elapsed().as_secs_f64());
        let nodes = self.scale.nodes as f64;
        Ok(std::array::from_fn(|at| {
            (after[at] - before[at]) / seconds / nodes * 1e6
        }))
    }
}

/// Returns the beginning of the names of a part's nodes.
fn prefix(part: usize) -> String {
    format!("part{part}")
}

fn chain(name: &str) -> anyhow::Result<DynamicObject> {
    let stage = |at: usize| json!({ "name": format!("f{at}"), "nf": KINDS[at % KINDS.len()], "permille": 10, "memory": "16Mi" });
    let via: Vec<Value> = (0..FUNCTIONS).map(stage).collect();
    let chain = json!({
        "apiVersion": "nfluid.io/v1alpha1", "kind": "ServiceChain",
        "metadata": { "name": name },
        "spec": { "from": "switch/lan", "to": "switch/wan", "via": via, "nodeLossSeconds": 0 }
    });
    serde_json::from_value(chain).context("a chain")
}

fn read(object: &DynamicObject) -> (String, Chain) {
    let status = &object.data["status"];
    let conditions = status["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let chain = Chain {
        is_ready: conditions.any(|it| it["type"] == "Ready" && it["status"] == "True"),
        nodes: status["nodes"].as_str().unwrap_or_default().to_owned(),
    };
    (object.name_any(), chain)
}

/// Returns true if the API server has answered, and will answer the same again. It asks callers to come later (429) and says so of itself (5xx).
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code < 500 && status.code != 429)
}

async fn list(api: &Api<DynamicObject>) -> kube::Result<(HashMap<String, Chain>, String)> {
    let all = api.list(&ListParams::default()).await?;
    // Without a version a watch begins with all that there is.
    let version = all.metadata.resource_version.unwrap_or_default();
    Ok((all.items.iter().map(read).collect(), version))
}

/// The cluster at rest: name of the figure, and whose CPU it is.
const AT_REST: [(&str, &str); 3] = [
    (
        "control_plane",
        "Kubernetes' own: API server, its store, scheduler, controllers",
    ),
    ("controller", "nfluid's controller"),
    ("agent", "a node's agent and its simulated host"),
];

fn run_at(report: &mut Report, scale: Scale) -> anyhow::Result<Vec<Vec<String>>> {
    let mut cluster = Cluster::new(scale)?;
    let nodes = cluster.await_nodes()?;
    let [mut rates, mut converged] = [const { Vec::new() }; 2];
    let empty = cluster.at_rest()?;
    let alive = |_: &str| true;
    for round in 0..scale.rounds {
        let count = (round + 1) * scale.chains;
        let begun = cluster.ask(round)?;
        let ready = cluster.await_chains(count, alive)?;
        rates.push(scale.chains as f64 / (ready - begun) * 1e3);
        if scale.loses {
            let count = (round + 1) * scale.chains;
            converged.push(cluster.lose(round % PARTS, count)?);
        }
    }
    let full = cluster.at_rest()?;
    let instances = scale.rounds * scale.chains * FUNCTIONS;
    let memory = peak_bytes(cluster.controller.pid())? as f64 / 1e6;
    let agents: anyhow::Result<Vec<u64>> = cluster
        .parts
        .iter()
        .map(|part| peak_bytes(part.pid()))
        .collect();
    let agents = agents?.iter().sum::<u64>() as f64 / 1e6 / scale.nodes as f64;
    let id = |name: &str| format!("fleet.{}.{name}", scale.nodes);
    let (rates, converged) = (Samples::from_iter(rates), Samples::from_iter(converged));
    let chains = format!(
        "{} chains of {} functions at a time, {} instances in the end; from the first request until the last is ready",
        scale.chains, FUNCTIONS, instances
    );
    report.figure(id("chains_per_s"), &rates, "1/s", &chains);
    if scale.loses {
        report.figure(
            id("converge_s"),
            &converged,
            "s",
            "a tenth of the nodes killed at once, until all chains are ready elsewhere; Kubernetes gives up a node after 20 s",
        );
    }
    let one = |value: f64| Samples::from_iter([value]);
    report.figure(
        id("nodes_s"),
        &one(nodes),
        "s",
        "all agents started at once, until all nodes take pods",
    );
    report.figure(
        id("controller_mb"),
        &one(memory),
        "MB",
        "most memory of nfluid's controller",
    );
    report.figure(
        id("agent_mb"),
        &one(agents),
        "MB",
        "most memory of an agent and its simulated host",
    );
    let right_again = match scale.loses {
        true => format!("{:.1}", converged.median()),
        false => "-".to_owned(),
    };
    let mut rows = vec![
        vec![
            "chains per second".to_owned(),
            format!("{:.1}", rates.median()),
        ],
        vec!["right again, s".to_owned(), right_again],
        vec!["all nodes ready, s".to_owned(), format!("{nodes:.1}")],
        vec!["controller, MB".to_owned(), format!("{memory:.0}")],
        vec!["agent and host, MB".to_owned(), format!("{agents:.2}")],
    ];
    for (at, (name, whose)) in AT_REST.iter().enumerate() {
        for (state, used) in [("empty", empty[at]), ("full", full[at])] {
            let conditions = format!("CPU at rest, of a second and by node; {whose}; {state}");
            report.figure(
                id(&format!("{name}_{state}_us")),
                &one(used),
                "us",
                &conditions,
            );
            rows.push(vec![
                format!("{whose}, {state}, us/s/node"),
                format!("{used:.0}"),
            ]);
        }
    }
    Ok(rows)
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let full = |nodes, chains| Scale {
        nodes,
        chains,
        rounds: 5,
        rest: REST,
        loses: true,
    };
    let quick = Scale {
        nodes: 10,
        chains: 50,
        rounds: 1,
        rest: Duration::from_secs(1),
        loses: false,
    };
    let scales = report.choose(vec![full(100, 200), full(1000, 2000)], vec![quick]);
    report.settle();
    for scale in scales {
        let rows = run_at(report, scale)?;
        table(
            &format!("Fleet of {} nodes", scale.nodes),
            &["what", "value"],
            &rows,
        );
    }
    Ok(())
}
