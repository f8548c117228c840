//! From a pod to the instances that it asks for: one for each container.

use crate::amounts::{share_of, whole};
use crate::cluster::{Place, containers, derived_name, uid};
use crate::files::{Data, Mounts, Reference};
use crate::foreign;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use nfluid_api::types::CreateRequest;
use nfluid_control::attachments::attached_files;
use nfluid_control::yaml::{self, Node};
use nfluid_engine::links::{Wish, put_on_switches};
use nfluid_engine::requests::place_in;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The annotation with the keys of a container's instance: this, and the container's name.
const KEYS: &str = "instance.nfluid.io/";
/// The image of a container that is a built-in network function: this, and its name.
pub const NF_IMAGE: &str = "nfluid.io/nf/";
/// The image of a container whose annotation says what it is.
pub const ANY_IMAGE: &str = "nfluid.io/instance";
/// The command of a probe that is the daemon's own supervision.
const HEALTH: &str = "health";
/// CPU time in thousandths of a core.
pub const SHARE: &str = "nfluid.io/permille";

/// The keys that are the pod's own, and what has their place.
const ELSEWHERE: [(&str, &str); 5] = [
    ("owner", "Kubernetes owns the instance"),
    ("restart", "spec.restartPolicy says it"),
    ("share", "resources.limits says it, by nfluid.io/permille"),
    (
        "guarantee",
        "resources.limits says the share, by nfluid.io/permille",
    ),
    ("memory", "resources.limits says it"),
];

/// The instance that a container asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The container's name.
    pub container: String,
    /// The instance's name.
    pub name: String,
    /// The instance's owner.
    pub owner: String,
    /// The instance, and the links of its ports.
    pub request: CreateRequest,
    /// Its addresses, if it has interfaces with some.
    pub addresses: Vec<String>,
}

impl Wanted {
    /// Returns a place in a deployment as a place in the pod.
    pub fn place(&self, path: &str) -> String {
        place_in(&annotation(&self.container), path, &self.name)
    }
}

/// Returns the annotation with the keys of a container's instance.
pub fn annotation(container: &str) -> String {
    format!("{KEYS}{container}")
}

fn annotated<'a>(pod: &'a Pod, container: &str) -> Option<&'a String> {
    pod.metadata
        .annotations
        .as_ref()?
        .get(&annotation(container))
}

/// Returns the keys of a container's instance as the pod has them.
fn keys(pod: &Pod, container: &str) -> Result<Map<String, Value>, String> {
    let text = annotated(pod, container).map_or("", |text| text.trim());
    if text.is_empty() {
        return Ok(Map::new());
    }
    let place = annotation(container);
    let node = yaml::parse(text)
        .map_err(|error| format!("{place}: line {}: {}", error.mark.line, error.message))?;
    match node.to_json() {
        Value::Object(keys) => Ok(keys),
        Value::Null => Ok(Map::new()),
        _ => Err(format!(
            "{place}: the keys of an instance are expected, as in a deployment's 'instances'"
        )),
    }
}

/// Returns the name of a container's instance.
pub fn name_of(pod: &Pod, container: &str) -> String {
    let mut keys = keys(pod, container).unwrap_or_default();
    take_name(&mut keys, pod, container)
}

/// Takes the name out of the keys of a container's instance; without one, the name follows from the pod.
fn take_name(keys: &mut Map<String, Value>, pod: &Pod, container: &str) -> String {
    match keys.remove("name") {
        Some(Value::String(name)) => name,
        _ => derived_name(uid(pod), container),
    }
}

/// Reads what a pod asks for. `look` returns the present data of an object that the pod refers to. Folders of the host are mounted if they are
/// below one of `host_volumes`. The host has `cpus` CPUs.
///
/// # Errors
/// Everything that is wrong with the pod.
pub fn read(
    pod: &Pod,
    place: &Place,
    look: impl Fn(&Reference) -> Option<Data>,
    host_volumes: &[PathBuf],
    cpus: usize,
) -> Result<Vec<Wanted>, Vec<String>> {
    let mut faults = pod.spec.as_ref().map_or(Vec::new(), foreign::faults);
    let mut all: Vec<Wanted> = Vec::new();
    let mut wishes = Vec::new();
    for container in containers(pod) {
        let reader = Reader {
            pod,
            container,
            host_volumes,
            cpus,
        };
        let mounts = Mounts::of(pod, container, &look);
        match mounts.and_then(|mounts| reader.read(place, &mounts)) {
            Ok((wanted, own)) => {
                wishes.extend(own.into_iter().map(|wish| (all.len(), wish)));
                all.push(wanted);
            }
            Err(more) => faults.extend(more),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    // A link is made with the later of its instances. One to no container is the daemon's to refuse.
    let find = |known: &[Wanted], container: &str| {
        let found = known.iter().find(|it| it.container == container);
        found.map(|it| it.name.clone())
    };
    for (own, wish) in wishes {
        let last = all.len() - 1;
        let at = (own..last).find(|at| wish.resolve(|name| find(&all[..=*at], name)).is_some());
        let whole = wish.resolve(|name| Some(find(&all, name).unwrap_or(format!("@{name}"))));
        all[at.unwrap_or(last)].request.links.extend(whole);
    }
    Ok(all)
}

/// A container that is read.
struct Reader<'a> {
    pod: &'a Pod,
    container: &'a Container,
    host_volumes: &'a [PathBuf],
    cpus: usize,
}

impl Reader<'_> {
    fn read(&self, place: &Place, mounts: &Mounts) -> Result<(Wanted, Vec<Wish>), Vec<String>> {
        let container = &self.container.name;
        let mut keys = keys(self.pod, container).map_err(|fault| vec![fault])?;
        let mut faults = Vec::new();
        for (key, instead) in ELSEWHERE {
            if keys.contains_key(key) {
                faults.push(format!("{}.{key}: {instead}", annotation(container)));
            }
        }
        let name = take_name(&mut keys, self.pod, container);
        let links = keys.remove("links").unwrap_or_else(|| json!([]));
        let links = serde_json::from_value(links).unwrap_or_else(|_| {
            faults.push(format!(
                "{}.links: a link has two ends; write for example [[lan, .in], [.out, '@nat.in']]",
                annotation(container)
            ));
            Vec::new()
        });
        let links = put_on_switches(&mut keys, links).unwrap_or_else(|why| {
            faults.push(format!("{}.links: {why}", annotation(container)));
            Vec::new()
        });
        let mut note = |done: Result<(), String>| {
            let at = format!("spec.containers[{container}]");
            faults.extend(done.err().map(|why| format!("{at}.{why}")));
        };
        note(self.give_function(&mut keys));
        note(self.give_resources(&mut keys));
        note(self.give_program(&mut keys));
        note(self.give_folders(&mut keys, mounts));
        note(self.give_health(&mut keys));
        self.give_restart(&mut keys);
        let owner = place.owner(uid(self.pod), container);
        keys.insert("owner".to_owned(), owner.clone().into());
        let addresses = addresses(&keys);
        let (wishes, links) = Wish::divide(&name, links);
        let mut wanted = Wanted {
            container: container.clone(),
            name,
            owner,
            request: CreateRequest {
                instance: Value::Object(keys),
                links,
                ..CreateRequest::default()
            },
            addresses,
        };
        let document = Node::from_json(&wanted.request.value(&wanted.name));
        for (path, file) in attached_files(&document) {
            match mounts.text(&file) {
                Ok(text) => {
                    wanted.request.attachments.insert(file, text);
                }
                Err(why) => faults.push(format!("{}: {why}", wanted.place(&path))),
            }
        }
        if faults.is_empty() {
            Ok((wanted, wishes))
        } else {
            Err(faults)
        }
    }

    /// The image says what the instance runs, unless the annotation does.
    fn give_function(&self, keys: &mut Map<String, Value>) -> Result<(), String> {
        let says = ["nf", "program", "image"]
            .iter()
            .any(|key| keys.contains_key(*key));
        let image = self.container.image.as_deref().unwrap_or_default();
        match image.strip_prefix(NF_IMAGE) {
            Some(nf) if !nf.is_empty() && !says => {
                keys.insert("nf".to_owned(), nf.into());
                Ok(())
            }
            None if image == ANY_IMAGE && says => Ok(()),
            None if image == ANY_IMAGE => Err(format!(
                "image: {ANY_IMAGE} needs 'nf', 'program' or 'image' in the annotation {}",
                annotation(&self.container.name)
            )),
            Some(_) => Err(format!(
                "image: either {NF_IMAGE}NAME names the network function, or {ANY_IMAGE} and the annotation do"
            )),
            None => Err(format!(
                "image: '{image}' is not fetched here: write {NF_IMAGE}NAME for a network function, or {ANY_IMAGE} and the annotation {}",
                annotation(&self.container.name)
            )),
        }
    }

    /// Limits are the share and the memory.
    fn give_resources(&self, keys: &mut Map<String, Value>) -> Result<(), String> {
        let Some(resources) = &self.container.resources else {
            return Ok(());
        };
        let both = [&resources.requests, &resources.limits];
        let mut named = both.into_iter().flatten().flat_map(|it| it.keys());
        if let Some(other) = named.find(|name| *name != SHARE && *name != "memory") {
            return Err(format!(
                "resources: '{other}' is no resource of this node: {SHARE} (thousandths of a core) and memory are"
            ));
        }
        let limit = |name| {
            let limits = resources.limits.as_ref()?;
            limits.get(name).map(|quantity| quantity.0.as_str())
        };
        if let Some(share) = limit(SHARE) {
            let permille = whole(share)
                .ok_or_else(|| format!("resources.limits.{SHARE}: '{share}' is no whole number"))?;
            if permille > 0 {
                keys.insert("share".to_owned(), share_of(permille, self.cpus).into());
            }
        }
        if let Some(memory) = limit("memory") {
            let bytes = whole(memory)
                .ok_or_else(|| format!("resources.limits.memory: '{memory}' is no amount"))?;
            keys.insert("memory".to_owned(), format!("{}KiB", bytes >> 10).into());
        }
        Ok(())
    }

    /// Command, arguments and variables are a program's.
    fn give_program(&self, keys: &mut Map<String, Value>) -> Result<(), String> {
        let (is_image, is_program) = (keys.contains_key("image"), keys.contains_key("program"));
        let it = self.container;
        let present = |list: bool, key: &str, into: &str| {
            let is_twice = keys.contains_key(into);
            match list {
                true if is_twice => Err(format!("{key}: the annotation has '{into}' already")),
                _ => Ok(list),
            }
        };
        let has_command = present(
            it.command.as_ref().is_some_and(|it| !it.is_empty()),
            "command",
            "entrypoint",
        )?;
        let has_args = present(
            it.args.as_ref().is_some_and(|it| !it.is_empty()),
            "args",
            "args",
        )?;
        let has_env = present(
            it.env.as_ref().is_some_and(|it| !it.is_empty()),
            "env",
            "environment",
        )?;
        if has_command && !is_image {
            return Err("command: only a container image has one; 'program' in the annotation names a program of the host".to_owned());
        }
        if has_args && !is_image && !is_program {
            return Err(
                "args: a network function has none; its 'config' is in the annotation".to_owned(),
            );
        }
        if has_env && !is_image {
            return Err("env: only a container image has variables".to_owned());
        }
        let words = it.command.iter().chain(&it.args).flatten();
        let values = it.env.iter().flatten().filter_map(|it| it.value.as_ref());
        if let Some(word) = words.chain(values).find(|word| word.contains("$(")) {
            return Err(format!(
                "env: '{word}' refers to a variable, and is not expanded here"
            ));
        }
        if has_command {
            keys.insert("entrypoint".to_owned(), json!(it.command));
        }
        if has_args {
            keys.insert("args".to_owned(), json!(it.args));
        }
        if has_env {
            let mut all = Vec::new();
            for variable in it.env.iter().flatten() {
                let value = match (&variable.value, &variable.value_from) {
                    (Some(value), None) => value.clone(),
                    (None, None) => String::new(),
                    (_, Some(from)) => {
                        let field = from.field_ref.as_ref().map(|it| it.field_path.as_str());
                        let value = field.and_then(|field| self.field(field));
                        value.ok_or_else(|| format!("env.{}: only the fields metadata.name, metadata.namespace, metadata.uid and spec.nodeName are known here", variable.name))?
                    }
                };
                all.push(format!("{}={value}", variable.name));
            }
            keys.insert("environment".to_owned(), json!(all));
        }
        Ok(())
    }

    fn field(&self, path: &str) -> Option<String> {
        let metadata = &self.pod.metadata;
        match path {
            "metadata.name" => metadata.name.clone(),
            "metadata.namespace" => metadata.namespace.clone(),
            "metadata.uid" => metadata.uid.clone(),
            "spec.nodeName" => self.pod.spec.as_ref()?.node_name.clone(),
            _ => None,
        }
    }

    /// Folders of the host are volumes of a program. What the annotation mounts has to be allowed as well.
    fn give_folders(&self, keys: &mut Map<String, Value>, mounts: &Mounts) -> Result<(), String> {
        let has_volumes = keys.contains_key("image") || keys.contains_key("program");
        if !mounts.folders.is_empty() && !has_volumes {
            return Err("volumeMounts: a network function mounts no folder of the host".to_owned());
        }
        if keys.contains_key("volumes") {
            return Err("volumeMounts: these say the volumes, not the annotation".to_owned());
        }
        let mut volumes = Vec::new();
        for (from, at, write) in &mounts.folders {
            let path = Path::new(from);
            let is_plain = path.components().all(|part| part.as_os_str() != "..");
            let is_allowed = self.host_volumes.iter().any(|it| path.starts_with(it));
            if !is_plain || !is_allowed {
                return Err(format!(
                    "volumeMounts: {from} is not among the folders that this node allows (nfluid-kubernetes --host-volume)"
                ));
            }
            volumes.push(json!({ "from": from, "at": at, "write": write }));
        }
        if !volumes.is_empty() {
            keys.insert("volumes".to_owned(), volumes.into());
        }
        Ok(())
    }

    /// A probe is the daemon's supervision: of liveness, it restarts what is unhealthy; of readiness, it reports it.
    fn give_health(&self, keys: &mut Map<String, Value>) -> Result<(), String> {
        let liveness = self.container.liveness_probe.as_ref();
        let readiness = self.container.readiness_probe.as_ref();
        let (place, probe, action) = match (liveness, readiness) {
            (None, None) => return Ok(()),
            (Some(probe), _) => ("livenessProbe", probe, "restart"),
            (None, Some(probe)) => ("readinessProbe", probe, "report"),
        };
        for (place, probe) in [("livenessProbe", liveness), ("readinessProbe", readiness)] {
            if probe.is_some_and(|probe| !is_supervision(probe)) {
                return Err(format!(
                    "{place}: 'exec: {{ command: [{HEALTH}] }}' is what this node can do: the daemon supervises the instance"
                ));
            }
        }
        if keys.contains_key("health") {
            return Err(format!("{place}: the annotation has 'health' already"));
        }
        let seconds =
            |value: Option<i32>, default: i32| format!("{}s", value.unwrap_or(default).max(1));
        let health = json!({
            "interval": seconds(probe.period_seconds, 10),
            "timeout": seconds(probe.timeout_seconds, 1),
            "failures": probe.failure_threshold.unwrap_or(3),
            "grace": seconds(probe.initial_delay_seconds, 1),
            "action": action,
        });
        keys.insert("health".to_owned(), health);
        Ok(())
    }

    fn give_restart(&self, keys: &mut Map<String, Value>) {
        let is_fast_path = keys.get("tier").is_some_and(|tier| tier == "xdp");
        if !is_fast_path {
            keys.insert("restart".to_owned(), policy(self.pod).into());
        }
    }
}

/// Returns the policy of restarts in the daemon's words.
pub fn policy(pod: &Pod) -> &'static str {
    let policy = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref());
    match policy {
        Some("Never") => "never",
        Some("OnFailure") => "on-failure",
        _ => "always",
    }
}

fn is_supervision(probe: &Probe) -> bool {
    let command = probe.exec.as_ref().and_then(|exec| exec.command.as_ref());
    command.is_some_and(|command| command == &[HEALTH])
}

/// Returns the addresses of the instance's interfaces, without their prefix lengths.
fn addresses(keys: &Map<String, Value>) -> Vec<String> {
    let ports = keys.get("ports").and_then(Value::as_object);
    let all = ports.into_iter().flat_map(|ports| ports.values());
    let all = all.filter_map(|port| port.get("addresses")?.as_array());
    let all = all.flatten().filter_map(Value::as_str);
    all.map(|address| address.split('/').next().unwrap_or(address).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0";

    fn pod(annotations: &Value, containers: &Value) -> Pod {
        let pod = json!({
            "metadata": { "name": "edge", "namespace": "lab", "uid": UID, "annotations": annotations },
            "spec": {
                "nodeName": "a", "restartPolicy": "Always", "containers": containers,
                "volumes": [
                    { "name": "rules", "configMap": { "name": "fw" } },
                    { "name": "data", "hostPath": { "path": "/srv/x" } },
                    { "name": "far", "hostPath": { "path": "/srv/../etc" } }
                ]
            }
        });
        serde_json::from_value(pod).expect("a pod")
    }

    fn wanted(annotations: &Value, containers: &Value) -> Result<Vec<Wanted>, Vec<String>> {
        let look = |reference: &Reference| {
            (reference.name == "fw").then(|| {
                let text = b"allow ip from any to any\n".to_vec();
                [("rules".to_owned(), text)].into()
            })
        };
        let place = Place::new("cluster", "a");
        read(
            &pod(annotations, containers),
            &place,
            look,
            &["/srv".into()],
            4,
        )
    }

    fn one(keys: &str, container: Value) -> Result<Value, Vec<String>> {
        let mut whole = json!({ "name": "fw", "image": ANY_IMAGE });
        for (key, value) in container.as_object().expect("keys") {
            whole[key] = value.clone();
        }
        let annotations = json!({ "instance.nfluid.io/fw": keys });
        Ok(wanted(&annotations, &json!([whole]))?
            .remove(0)
            .request
            .instance)
    }

    // promise: 26.1
    #[test]
    fn a_pod_is_a_chain_of_instances() {
        let annotations = json!({
            "instance.nfluid.io/fw": "config: { rules_file: /etc/nf/rules }\nlinks: [[lan, .in], [.out, '@nat.in']]\n",
            "instance.nfluid.io/nat": "{\"config\": {\"pool\": [\"192.0.2.1\"]}, \"links\": [[\".out\", \"wan\"]]}"
        });
        let limits = json!({ "nfluid.io/permille": "125", "memory": "32Mi" });
        let all = wanted(
            &annotations,
            &json!([
                { "name": "fw", "image": "nfluid.io/nf/firewall", "resources": { "limits": limits, "requests": limits },
                  "volumeMounts": [{ "name": "rules", "mountPath": "/etc/nf" }] },
                { "name": "nat", "image": "nfluid.io/nf/nat" }
            ]),
        )
        .expect("read");
        let [fw, nat] = &all[..] else { panic!("two") };
        assert_eq!(fw.name, "fw-0b1c2d3e4f50");
        assert_eq!(fw.request.links, [["lan", "fw-0b1c2d3e4f50.in"]]);
        let expected = json!({
            "nf": "firewall", "config": { "rules_file": "/etc/nf/rules" }, "share": "12.5%", "memory": "32768KiB",
            "restart": "always", "owner": fw.owner
        });
        assert_eq!(fw.request.instance, expected);
        assert_eq!(
            fw.request.attachments["/etc/nf/rules"],
            "allow ip from any to any\n"
        );
        assert_eq!(
            nat.request.links,
            [
                ["nat-0b1c2d3e4f50.out", "wan"],
                ["fw-0b1c2d3e4f50.out", "nat-0b1c2d3e4f50.in"]
            ],
            "a link is made with the later of its instances"
        );
    }

    #[test]
    fn a_container_image_has_command_variables_and_folders() {
        let keys =
            "image: oci:/srv/web\nports: { eth0: { kind: interface, addresses: [10.0.0.2/24] } }\n";
        let container = json!({
            "command": ["/bin/web"], "args": ["-x"],
            "env": [{ "name": "A", "value": "1" }, { "name": "N", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
            "volumeMounts": [{ "name": "data", "mountPath": "/data", "readOnly": true }]
        });
        let instance = one(keys, container).expect("read");
        assert_eq!(instance["entrypoint"], json!(["/bin/web"]));
        assert_eq!(instance["environment"], json!(["A=1", "N=edge"]));
        assert_eq!(
            instance["volumes"],
            json!([{ "from": "/srv/x", "at": "/data", "write": false }])
        );
        assert_eq!(addresses(instance.as_object().expect("keys")), ["10.0.0.2"]);
    }

    // promise: 26.4
    #[test]
    fn faults_name_the_field_of_the_pod() {
        let places = |keys: &str, container: Value| {
            let faults = one(keys, container).expect_err("wrong");
            let places = faults
                .iter()
                .map(|fault| fault.split_once(": ").expect("a place").0.to_owned());
            places.collect::<Vec<_>>()
        };
        let none = || json!({});
        assert_eq!(places("nf: [", none()), ["instance.nfluid.io/fw"]);
        assert_eq!(places("- nf", none()), ["instance.nfluid.io/fw"]);
        for key in ["share", "memory", "owner", "restart", "guarantee"] {
            let place = format!("instance.nfluid.io/fw.{key}");
            assert_eq!(places(&format!("nf: x\n{key}: 1"), none()), [place]);
        }
        assert_eq!(
            places("nf: x\nlinks: 1", none()),
            ["instance.nfluid.io/fw.links"]
        );
        let at = |rest: &str| format!("spec.containers[fw].{rest}");
        let limits = json!({ "resources": { "limits": { "cpu": "1" } } });
        for (keys, container, place) in [
            ("{}", none(), "image"),
            (
                "nf: x",
                json!({ "image": "docker.io/library/nginx" }),
                "image",
            ),
            ("nf: x", json!({ "image": "nfluid.io/nf/nat" }), "image"),
            ("nf: x", limits, "resources"),
            ("nf: x", json!({ "command": ["sh"] }), "command"),
            ("nf: x", json!({ "args": ["x"] }), "args"),
            ("image: x", json!({ "args": ["$(A)"] }), "env"),
            (
                "image: x",
                json!({ "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
                "env.A",
            ),
            (
                "nf: x",
                json!({ "livenessProbe": { "httpGet": { "port": 80 } } }),
                "livenessProbe",
            ),
            (
                "nf: x",
                json!({ "volumeMounts": [{ "name": "data", "mountPath": "/d" }] }),
                "volumeMounts",
            ),
            (
                "image: x",
                json!({ "volumeMounts": [{ "name": "far", "mountPath": "/d" }] }),
                "volumeMounts",
            ),
            ("image: x\nvolumes: [/etc]", none(), "volumeMounts"),
        ] {
            assert_eq!(places(keys, container), [at(place)], "{keys}");
        }
        let file = one("nf: firewall\nconfig: { rules_file: /etc/shadow }", none());
        let file = file.expect_err("no file");
        assert!(
            file[0].starts_with("instance.nfluid.io/fw.config.rules_file: "),
            "{file:?}"
        );
    }

    #[test]
    fn a_probe_is_the_daemons_supervision() {
        let probe =
            |seconds| json!({ "exec": { "command": ["health"] }, "periodSeconds": seconds });
        let readiness = one("nf: x", json!({ "readinessProbe": probe(5) })).expect("read");
        assert_eq!(readiness["health"]["action"], "report");
        assert_eq!(readiness["health"]["interval"], "5s");
        let both = json!({ "readinessProbe": probe(5), "livenessProbe": probe(7) });
        let both = one("nf: x", both).expect("read");
        assert_eq!(
            (&both["health"]["action"], &both["health"]["interval"]),
            (&json!("restart"), &json!("7s"))
        );
    }
}
