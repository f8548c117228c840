//! A host whose instances are values in memory.

use crate::site::{Forwarded, Instances, Leaving, Rings, Site, Stopped};
use anyhow::{Context, ensure};
use nfluid_api::types::{EventKind, Kind, ObjectName, Problem};
use nfluid_control::document::read_unchecked;
use nfluid_control::events::{Events, Subject};
use nfluid_control::guards::{guard_of, guarded_by};
use nfluid_control::model::Deployment;
use nfluid_formats::frames::frames_in;
use nfluid_formats::message::{Address, Taken};
use nfluid_sandbox::ProcessIdentity;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// The host at which each instance serves its ports. No instance may ever do so at two hosts.
#[derive(Default)]
pub struct World {
    serving: Mutex<BTreeSet<(String, &'static str)>>,
    violations: Mutex<Vec<String>>,
}

impl World {
    fn set_serving(&self, name: &str, site: &'static str, serves: bool) {
        let mut serving = self.serving.lock().expect("whole");
        let key = (name.to_owned(), site);
        if !serves {
            serving.remove(&key);
        } else if serving.insert(key)
            && serving.iter().filter(|(other, _)| other == name).count() > 1
        {
            let mut violations = self.violations.lock().expect("whole");
            violations.push(format!("{name} serves at {site} and elsewhere"));
        }
    }

    /// Returns the hosts at which an instance serves its ports.
    pub fn hosts_of(&self, name: &str) -> Vec<&'static str> {
        let serving = self.serving.lock().expect("whole");
        let found = serving.iter().filter(|(other, _)| other == name);
        found.map(|(_, site)| *site).collect()
    }

    /// Returns each time at which an instance has served its ports at two hosts.
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().expect("whole").clone()
    }
}

/// An instance.
#[derive(Clone, Debug)]
pub struct MemoryInstance {
    process: ProcessIdentity,
    pub state: Vec<u8>,
    /// Frames in the rings.
    pub frames: Vec<u8>,
    pub announced: Vec<Address>,
    has_open_ports: bool,
    is_wired: bool,
    stands_still: bool,
    pub is_unsettled: bool,
}

impl MemoryInstance {
    fn serves(&self) -> bool {
        self.has_open_ports && self.is_wired && !self.stands_still
    }
}

#[derive(Default)]
struct Tables {
    instances: BTreeMap<String, MemoryInstance>,
    document: Value,
    processes: u32,
}

impl Tables {
    fn make_instance(&mut self, name: &str, host: &str) {
        self.processes += 1;
        let instance = MemoryInstance {
            process: ProcessIdentity {
                pid: self.processes,
                start_time: 0,
                boot_id: host.to_owned(),
            },
            state: Vec::new(),
            frames: Vec::new(),
            announced: Vec::new(),
            has_open_ports: true,
            is_wired: false,
            stands_still: false,
            is_unsettled: false,
        };
        self.instances.insert(name.to_owned(), instance);
    }
}

/// A host.
#[derive(Clone)]
pub struct MemorySite {
    name: &'static str,
    world: Arc<World>,
    tables: Arc<Mutex<Tables>>,
}

impl MemorySite {
    /// A host without instances.
    pub fn new(name: &'static str, world: &Arc<World>) -> Self {
        let tables = Tables {
            document: json!({ "version": 1, "uplinks": { "wan": { "interface": "eth0" } } }),
            ..Tables::default()
        };
        MemorySite {
            name,
            world: Arc::clone(world),
            tables: Arc::new(Mutex::new(tables)),
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().expect("whole")
    }

    /// Returns an instance as it is.
    pub fn instance(&self, name: &str) -> Option<MemoryInstance> {
        self.tables().instances.get(name).cloned()
    }

    /// Returns the desired state.
    pub fn document(&self) -> Value {
        self.tables().document.clone()
    }

    /// Makes an instance without wires.
    pub fn make_unwired(&self, name: &str) {
        let mut document = json!({
            "instances": { name: { "nf": "firewall", "flavor": "own" } },
            "flavors": { "own": { "memory": "64 MiB" } },
        });
        drop(self.make(name, &mut document).expect("is free"));
    }

    /// Makes an instance that is wired and serves its ports.
    pub fn start(&self, name: &str, state: &[u8], frames: &[u8]) {
        self.make_unwired(name);
        let end = format!("{name}.in");
        let wires = json!({ "links": [["wan", end]] });
        Site::apply(self, &wires).expect("a link");
        self.change(name, |it| {
            it.state = state.to_vec();
            it.frames = frames.to_vec();
        })
        .expect("is there");
    }

    /// Puts a guard in front of the port of an instance that is there.
    pub fn guard(&self, name: &str, guard_state: &[u8]) {
        let port = json!({ "in": { "switch": "lan", "security_groups": [] } });
        let guarded = json!({ name: { "nf": "firewall", "flavor": "own", "ports": port } });
        self.apply_instances(&guarded);
        let guard = guard_of(name, "in");
        self.change(&guard, |it| it.state = guard_state.to_vec())
            .expect("is there");
    }

    /// Changes instances, and makes their guards.
    fn apply_instances(&self, instances: &Value) {
        for (name, instance) in instances.as_object().into_iter().flatten() {
            self.tables().document["instances"][name] = instance.clone();
            for (_, guard) in self
                .deployment()
                .instances
                .get(name)
                .expect("is there")
                .guards(name)
            {
                self.tables().make_instance(&guard, self.name);
            }
        }
    }

    /// Changes an instance, and notes whether the instance serves its ports afterwards.
    fn change<T>(
        &self,
        name: &str,
        change: impl FnOnce(&mut MemoryInstance) -> T,
    ) -> anyhow::Result<T> {
        let mut tables = self.tables();
        let instance = tables.instances.get_mut(name);
        let instance = instance.context("there is no such instance")?;
        let outcome = change(instance);
        self.world.set_serving(name, self.name, instance.serves());
        Ok(outcome)
    }
}

impl Site for MemorySite {
    type Instances = Self;

    fn instances(&self) -> &Self {
        self
    }

    fn deployment(&self) -> Deployment {
        let text = self.document().to_string();
        read_unchecked(&text, None).expect("a deployment")
    }

    fn settled_deployment(&self) -> Deployment {
        self.deployment()
    }

    fn document_of(&self, all: &Value, name: &str) -> Result<Value, Problem> {
        let found = all["instances"].get(name);
        let found = found.ok_or_else(|| Problem::not_found("no such instance"))?;
        let flavors = all["flavors"].clone();
        Ok(json!({ "version": 1, "instances": { name: found }, "flavors": flavors }))
    }

    fn make(
        &self,
        name: &str,
        document: &mut Value,
    ) -> Result<impl FnOnce() -> Result<(), Problem>, Problem> {
        let mut tables = self.tables();
        if tables.instances.contains_key(name) {
            return Err(Problem::conflict("there is such an instance"));
        }
        tables.make_instance(name, self.name);
        for kind in ["instances", "flavors"] {
            let new = document[kind].as_object().cloned().unwrap_or_default();
            for (name, object) in new {
                tables.document[kind][name] = object;
            }
        }
        Ok(|| Ok(()))
    }

    fn apply(&self, document: &Value) -> Result<(), Problem> {
        self.apply_instances(&document["instances"]);
        self.tables().document["links"] = document["links"].clone();
        let links = document["links"].as_array().into_iter().flatten();
        for end in links.filter_map(|link| link[1].as_str()) {
            let (name, _) = end.split_once('.').expect("a port of an instance");
            let wired = self.change(name, |it| it.is_wired = true);
            wired.expect("the instance is there");
        }
        Ok(())
    }

    fn delete(&self, objects: Vec<ObjectName>) -> Result<(), Problem> {
        let mut tables = self.tables();
        for ObjectName { kind, name } in objects {
            let kinds = match kind {
                Kind::Instance => "instances",
                Kind::Flavor => "flavors",
                other => panic!("{other} is not deleted here"),
            };
            let all = tables.document[kinds].as_object_mut();
            all.and_then(|all| all.remove(&name)).expect("is there");
            if kind == Kind::Instance {
                let is_guard =
                    |it: &str| guarded_by(it).is_some_and(|it| it.owner() == Some(&name));
                tables.instances.retain(|it, _| !is_guard(it));
                let gone = tables.instances.remove(&name).expect("is there");
                if gone.is_unsettled {
                    return Err(Problem::conflict("either host may have it"));
                }
                self.world.set_serving(&name, self.name, false);
                let links = tables.document.as_object_mut();
                links.expect("a document").remove("links");
            }
        }
        Ok(())
    }
}

impl Events for MemorySite {
    fn record(&self, _kind: EventKind, _subject: Subject<'_>, _message: String) {}

    fn note_change_of(&self, _instance: &str) {}

    fn note_change(&self) {}
}

impl Instances for MemorySite {
    type Stopped = MemoryStopped;
    type Rings = MemoryRings;
    type PoolPause = ();

    fn events(&self) -> &dyn Events {
        self
    }

    fn pause_pool(&self) {}

    fn process_of(&self, name: &str) -> Option<ProcessIdentity> {
        self.instance(name).map(|it| it.process)
    }

    fn settle(&self, name: &str) {
        let _gone = self.change(name, |it| it.is_unsettled = false);
    }

    fn unsettle(&self, name: &str) {
        let _gone = self.change(name, |it| it.is_unsettled = true);
    }

    fn let_go(&self, name: &str) {
        self.settle(name);
    }

    fn begin_departure(&self, name: &str) -> Result<ProcessIdentity, Problem> {
        let begun = self.change(name, |it| {
            ensure!(!it.is_unsettled, "either host may have it");
            it.is_unsettled = true;
            Ok(it.process.clone())
        });
        begun
            .and_then(|begun| begun)
            .map_err(|why| Problem::conflict(format!("{why:#}")))
    }

    fn state_now(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        Ok(self.instance(name).context("is there")?.state)
    }

    fn stop(&self, name: &str) -> anyhow::Result<Leaving<MemoryStopped>> {
        self.change(name, |it| {
            it.stands_still = true;
            Leaving {
                stopped: MemoryStopped {
                    site: self.clone(),
                    name: name.to_owned(),
                    is_held: false,
                    next: VecDeque::new(),
                },
                state: it.state.clone(),
                addresses: vec![RECENT],
            }
        })
    }

    fn resume(&self, name: &str) {
        let _gone = self.change(name, |it| it.stands_still = false);
    }

    fn unpause(&self, _name: &str) {}

    fn pause(&self, _name: &str) -> anyhow::Result<()> {
        Ok(())
    }

    fn frames_dropped(&self, _name: &str) -> u64 {
        0
    }

    fn frames_left(&self, name: &str) -> u64 {
        let frames = self.instance(name).map(|it| it.frames).unwrap_or_default();
        frames_in(&frames).map_or(0, |frames| frames.len() as u64)
    }

    fn close_ports(&self, name: &str) -> anyhow::Result<ProcessIdentity> {
        self.change(name, |it| {
            it.has_open_ports = false;
            it.is_unsettled = true;
            it.process.clone()
        })
    }

    fn open_ports(
        &self,
        name: &str,
        process: &ProcessIdentity,
        record: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let opened = self.change(name, |it| {
            ensure!(it.process == *process, "another process");
            record()?;
            it.has_open_ports = true;
            it.is_unsettled = false;
            Ok(())
        });
        opened.and_then(|opened| opened)
    }

    fn reopen_ports(&self, name: &str) {
        let _gone = self.change(name, |it| it.has_open_ports = true);
    }

    fn rehearse(&self, name: &str, _state: &[u8]) -> anyhow::Result<()> {
        self.change(name, |_| ())
    }

    fn take_in(&self, name: &str, state: Vec<u8>) -> anyhow::Result<Taken> {
        let taken = state.len() as u64;
        self.change(name, |it| it.state = state)?;
        Ok(Taken { taken, left_out: 0 })
    }

    fn rings(&self, name: &str, _process: &ProcessIdentity) -> anyhow::Result<MemoryRings> {
        Ok(MemoryRings {
            site: self.clone(),
            name: name.to_owned(),
        })
    }

    fn addresses_of(&self, _name: &str) -> Vec<Address> {
        vec![OWN]
    }

    fn announce(&self, name: &str, addresses: &[Address]) -> anyhow::Result<()> {
        self.change(name, |it| it.announced.extend(addresses))
    }
}

/// The address of an instance's own port.
pub const OWN: Address = (0, [2, 0, 0, 0, 0, 1]);
/// An address of recent frames for an instance.
pub const RECENT: Address = (0, [2, 0, 0, 0, 0, 9]);

/// An instance that stands still.
pub struct MemoryStopped {
    site: MemorySite,
    name: String,
    is_held: bool,
    next: VecDeque<Forwarded>,
}

impl Stopped for MemoryStopped {
    fn hold(&mut self) -> anyhow::Result<()> {
        self.is_held = true;
        Ok(())
    }

    fn forward(&mut self) -> anyhow::Result<()> {
        let frames = self
            .site
            .change(&self.name, |it| std::mem::take(&mut it.frames))?;
        self.next = [Forwarded::Frames(frames), Forwarded::AllThatWaited].into();
        Ok(())
    }

    fn next(&mut self) -> anyhow::Result<Forwarded> {
        Ok(self.next.pop_front().unwrap_or(Forwarded::Nothing))
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.next = [Forwarded::End].into();
        Ok(())
    }
}

impl Drop for MemoryStopped {
    fn drop(&mut self) {
        if !self.is_held {
            self.site.resume(&self.name);
        }
    }
}

/// The rings of an instance that arrives.
pub struct MemoryRings {
    site: MemorySite,
    name: String,
}

impl Rings for MemoryRings {
    fn put(&self, frames: &[u8]) -> anyhow::Result<Taken> {
        let taken = frames_in(frames)?.len() as u64;
        self.site
            .change(&self.name, |it| it.frames.extend_from_slice(frames))?;
        Ok(Taken { taken, left_out: 0 })
    }
}
