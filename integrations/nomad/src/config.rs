//! From a task to the instance that it asks for.

use crate::files::Folders;
use crate::hcl;
use crate::protocol::drivers::{LinuxResources, TaskConfig};
use crate::tasks::Terms;
use anyhow::{Context, anyhow, bail, ensure};
use nfluid_api::types::CreateRequest;
use nfluid_control::attachments::attached_files;
use nfluid_control::model::NAME_MAX;
use nfluid_control::quantity::Millis;
use nfluid_control::yaml::Node;
use nfluid_engine::links::{Wish, put_on_switches};
use nfluid_engine::requests::place_in;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Length of the allocation's part of a name. With 48 bits, two of a host's allocations do not share it by chance.
const ALLOCATION_DIGITS: usize = 12;

/// More than the error of a quotient of two amounts of CPU time, so that what is whole stays whole.
const ROUNDING: f64 = 1e-6;

/// Maximum length of an owner, less that of its other parts.
const OWNER_TASK_MAX: usize = 60;

/// Most time for which an instance waits for a successor.
const HAND_OVER_MS_MAX: u64 = 60_000;

/// The instance that a task asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// The instance, and the links whose other ends are not other tasks.
    pub request: CreateRequest,
    /// What concerns the task alone.
    pub terms: Terms,
}

/// Returns the owner of a task's instance. Each start of a task has another owner.
pub fn owner(task: &TaskConfig) -> String {
    let start = task.id.rsplit('/').next().unwrap_or_default();
    format!("{}{}", owner_of_any_start(task), graphic(start))
}

/// The beginning of the owners of all starts of a task.
pub fn owner_of_any_start(task: &TaskConfig) -> String {
    format!(
        "nomad:{}/{}/",
        graphic(&task.alloc_id),
        owner_part(&task.name)
    )
}

/// Returns true for the owners of all starts of all tasks of this name.
pub fn is_owner_of_task_named(owner: &str, name: &str) -> bool {
    let parts: Vec<_> = owner.split('/').collect();
    owner.starts_with("nomad:") && parts.len() == 3 && parts[1] == owner_part(name)
}

fn owner_part(task: &str) -> String {
    graphic(task).chars().take(OWNER_TASK_MAX).collect()
}

fn graphic(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    text.chars().map(plain).collect()
}

/// Returns the name of a task's instance, unless the task names it.
fn derived_name(task: &TaskConfig) -> String {
    let digits = task.alloc_id.chars().filter(char::is_ascii_alphanumeric);
    let allocation: String = digits.take(ALLOCATION_DIGITS).collect();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    };
    let room = NAME_MAX - ALLOCATION_DIGITS - 1;
    let name: String = task.name.chars().map(plain).take(room).collect();
    let name = name.trim_start_matches(['-', '_']);
    match name {
        "" => format!("task-{allocation}"),
        name => format!("{name}-{allocation}"),
    }
}

/// Reads what a task asks for. Volumes may be below `host_volumes`.
///
/// # Errors
/// The configuration cannot be read, or names a file that cannot.
pub fn read(task: &TaskConfig, host_volumes: &[String]) -> anyhow::Result<Wanted> {
    let mut keys = hcl::decode(&task.msgpack_driver_config)?;
    let hand_over = keys.remove("hand_over").map(read_hand_over).transpose()?;
    let name = match keys.remove("name") {
        None => {
            ensure!(
                hand_over.is_none(),
                "config.hand_over: a successor finds the instance by its name; add for example name = \"{}-${{NOMAD_ALLOC_INDEX}}\"",
                task.name
            );
            derived_name(task)
        }
        Some(Value::String(name)) => name,
        Some(_) => bail!("config.name: it is no text"),
    };
    let links = keys.remove("links").unwrap_or_else(|| json!([]));
    let links: Vec<[String; 2]> = serde_json::from_value(links).ok().context(
        "config.links: a link has two ends; write for example [[\".in\", \"lan\"], [\".out\", \"@nat.in\"]]",
    )?;
    let links = put_on_switches(&mut keys, links).map_err(|why| anyhow!("config.links: {why}"))?;
    let folders = Folders::of(task);
    on_host(&mut keys, &folders, host_volumes)?;
    give_resources(&mut keys, task);
    add_environment(&mut keys, task)?;
    keys.insert("owner".to_owned(), owner(task).into());
    let address = address(&keys);
    let (wishes, links) = Wish::divide(&name, links);
    let mut request = CreateRequest {
        instance: Value::Object(keys),
        links,
        ..CreateRequest::default()
    };
    for (path, file) in attached_files(&Node::from_json(&request.value(&name))) {
        let text = folders
            .read(&file)
            .with_context(|| place_in("config", &path, &name))?;
        request.attachments.insert(file, text);
    }
    Ok(Wanted {
        name,
        request,
        terms: Terms {
            wishes,
            address,
            hand_over,
        },
    })
}

fn read_hand_over(value: Value) -> anyhow::Result<Duration> {
    let time = value.as_str().and_then(|text| text.parse::<Millis>().ok());
    let time = time.filter(|time| (1..=HAND_OVER_MS_MAX).contains(&time.0));
    let time = time.with_context(|| {
        format!(
            "config.hand_over: {value} is no time from 1ms to {}s; write for example \"10s\"",
            HAND_OVER_MS_MAX / 1000
        )
    })?;
    Ok(Duration::from_millis(time.0))
}

fn is_fast_path(keys: &Map<String, Value>) -> bool {
    keys.get("tier").is_some_and(|tier| tier == "xdp")
}

/// Replaces paths in the task's folders by paths on the host.
fn on_host(
    keys: &mut Map<String, Value>,
    folders: &Folders,
    host_volumes: &[String],
) -> anyhow::Result<()> {
    if let Some(Value::String(program)) = keys.get_mut("program") {
        *program = folders.on_host(program).context("config.program")?;
    }
    if let Some(Value::String(image)) = keys.get_mut("image")
        && let Some((kind, path)) = image.split_once(':')
    {
        *image = format!("{kind}:{}", folders.on_host(path).context("config.image")?);
    }
    let Some(Value::Array(volumes)) = keys.get_mut("volumes") else {
        return Ok(());
    };
    for (at, volume) in volumes.iter_mut().enumerate() {
        let from = match volume {
            Value::Object(keys) => keys.get_mut("from"),
            value => Some(value),
        };
        let Some(Value::String(from)) = from else {
            continue;
        };
        let place = folders
            .on_host(from)
            .with_context(|| format!("config.volumes[{at}]"))?;
        let is_own = place != *from;
        let is_below = |folder: &String| std::path::Path::new(&place).starts_with(folder);
        ensure!(
            is_own || host_volumes.iter().any(is_below),
            "config.volumes[{at}]: {from} is not among the folders that the agent's configuration allows: write a path below /local, \
             /secrets or /alloc, or add it to host_volumes there"
        );
        *from = place;
    }
    Ok(())
}

/// Gives an instance the CPU time and the memory that Nomad has given the task, unless the task says otherwise. Nomad starts it again, not nfluid.
fn give_resources(keys: &mut Map<String, Value>, task: &TaskConfig) {
    if is_fast_path(keys) {
        return;
    }
    keys.insert("restart".to_owned(), "never".into());
    let none = LinuxResources::default();
    let resources = task.resources.as_ref();
    let given = resources
        .and_then(|resources| resources.linux_resources.as_ref())
        .unwrap_or(&none);
    let says_share = ["share", "guarantee", "group"]
        .iter()
        .any(|key| keys.contains_key(*key));
    // Nomad counts all CPUs of the host as one amount.
    let hundredths = (given.percent_ticks * 10_000.0 + ROUNDING)
        .floor()
        .clamp(0.0, 10_000.0) as u64;
    if !says_share && hundredths > 0 {
        let share = format!("{}.{:02}% of platform", hundredths / 100, hundredths % 100);
        keys.insert("share".to_owned(), share.into());
    }
    if !keys.contains_key("memory") && given.memory_limit_bytes > 0 {
        keys.insert(
            "memory".to_owned(),
            format!("{}KiB", given.memory_limit_bytes >> 10).into(),
        );
    }
}

/// Gives an image the variables that Nomad has for the task; its own come behind.
fn add_environment(keys: &mut Map<String, Value>, task: &TaskConfig) -> anyhow::Result<()> {
    if !keys.contains_key("image") {
        return Ok(());
    }
    let own = match keys.remove("environment") {
        None => Vec::new(),
        Some(Value::Array(own)) => own,
        Some(_) => bail!("config.environment: it is no list"),
    };
    // The same every time, and not the folders, which the image has only as volumes.
    let sorted: std::collections::BTreeMap<_, _> =
        task.env.iter().chain(&task.device_env).collect();
    let is_folder = |name: &str| name.starts_with("NOMAD_") && name.ends_with("_DIR");
    let variables = sorted.into_iter().filter(|(name, _)| !is_folder(name));
    let variables = variables.map(|(name, value)| Value::from(format!("{name}={value}")));
    keys.insert("environment".to_owned(), variables.chain(own).collect());
    Ok(())
}

/// Returns the first address of the instance's interfaces, without its prefix length.
fn address(keys: &Map<String, Value>) -> Option<String> {
    let ports = keys.get("ports")?.as_object()?;
    let mut all = ports
        .values()
        .filter_map(|port| port.get("addresses")?.as_array()?.first()?.as_str());
    let first = all.next()?;
    Some(first.split('/').next().unwrap_or(first).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::drivers::Resources;
    use rmpv::Value as Packed;

    fn packed(value: &Value) -> Packed {
        match value {
            Value::Null => Packed::Nil,
            Value::Bool(value) => (*value).into(),
            Value::Number(value) => value.as_i64().expect("whole").into(),
            Value::String(text) => text.as_str().into(),
            Value::Array(items) => Packed::Array(items.iter().map(packed).collect()),
            Value::Object(keys) => Packed::Map(
                keys.iter()
                    .map(|(key, value)| (key.as_str().into(), packed(value)))
                    .collect(),
            ),
        }
    }

    fn task(config: &Value) -> TaskConfig {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &packed(config)).expect("room");
        let given = LinuxResources {
            percent_ticks: 0.0255,
            memory_limit_bytes: 32 << 20,
            ..LinuxResources::default()
        };
        TaskConfig {
            id: "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0/fw/01234567".to_owned(),
            alloc_id: "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0".to_owned(),
            name: "fw".to_owned(),
            alloc_dir: "/n/a".to_owned(),
            msgpack_driver_config: bytes,
            env: [("B", "2"), ("A", "1"), ("NOMAD_TASK_DIR", "/local")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            resources: Some(Resources {
                linux_resources: Some(given),
                ..Resources::default()
            }),
            ..TaskConfig::default()
        }
    }

    fn wanted(config: Value) -> anyhow::Result<Wanted> {
        read(&task(&config), &["/srv".to_owned()])
    }

    #[test]
    fn nomads_resources_are_the_instances() {
        let wanted = wanted(json!({ "nf": "nat", "links": [[".in", "lan"]] })).expect("read");
        assert_eq!(wanted.name, "fw-0b1c2d3e4f50");
        assert_eq!(wanted.request.links, [["fw-0b1c2d3e4f50.in", "lan"]]);
        let expected = json!({
            "nf": "nat", "restart": "never", "share": "2.55% of platform", "memory": "32768KiB",
            "owner": "nomad:0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0/fw/01234567"
        });
        assert_eq!(wanted.request.instance, expected);
    }

    #[test]
    fn what_a_task_says_itself_comes_first() {
        let said = json!({ "nf": "nat", "name": "nat-7", "share": "30%", "memory": "8MiB" });
        let wanted_ = wanted(said).expect("read");
        let instance = &wanted_.request.instance;
        assert_eq!(
            (
                wanted_.name.as_str(),
                &instance["share"],
                &instance["memory"]
            ),
            ("nat-7", &json!("30%"), &json!("8MiB"))
        );
        let fast =
            wanted(json!({ "nf": "firewall", "tier": "xdp", "interface": "eth1" })).expect("read");
        let keys = fast.request.instance.as_object().expect("keys").keys();
        assert_eq!(
            keys.collect::<Vec<_>>(),
            ["nf", "tier", "interface", "owner"]
        );
    }

    #[test]
    fn an_image_has_the_tasks_variables_and_an_address() {
        let ports = json!({ "eth0": { "kind": "interface", "addresses": ["10.0.0.2/24"] } });
        let wanted =
            wanted(json!({ "image": "oci:local/web", "environment": ["A=3"], "ports": ports }))
                .expect("read");
        assert_eq!(
            wanted.request.instance["environment"],
            json!(["A=1", "B=2", "A=3"])
        );
        assert_eq!(wanted.request.instance["image"], "oci:/n/a/fw/local/web");
        assert_eq!(wanted.terms.address.as_deref(), Some("10.0.0.2"));
    }

    #[test]
    fn a_volume_is_in_a_folder_that_the_agent_allows() {
        let with = |from: &str| {
            wanted(json!({ "program": "/bin/x", "volumes": [{ "from": from, "at": "/data" }] }))
        };
        for (from, place) in [
            ("/local/d", "/n/a/fw/local/d"),
            ("/alloc/data", "/n/a/alloc/data"),
            ("/srv/x", "/srv/x"),
        ] {
            let wanted = with(from).expect("allowed");
            assert_eq!(wanted.request.instance["volumes"][0]["from"], place);
        }
        for from in ["/", "/etc", "/srvx", "/local/../../x"] {
            assert!(with(from).is_err(), "{from}");
        }
    }

    #[test]
    fn whatever_a_task_is_called_its_instance_has_a_name() {
        for name in ["fw", "", "../../x", "Ä b", "-", &"x".repeat(300)] {
            let task = TaskConfig {
                name: name.to_owned(),
                ..task(&json!({}))
            };
            let derived = derived_name(&task);
            nfluid_control::model::check_name(&derived).expect(&derived);
            let owner = owner(&task);
            assert!(
                owner.len() <= 128 && owner.bytes().all(|c| c.is_ascii_graphic()),
                "{owner}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for bad in [
            json!({ "links": 1 }),
            json!({ "name": 1 }),
            json!({ "nf": "x", "config": { "rules_file": "/etc/shadow" } }),
        ] {
            assert!(wanted(bad).is_err());
        }
    }
}
