//! A daemon without a host: what the life of instances asks of a daemon, noted.

use crate::null::{self, NullRuntime, Shared};
use nfluid_api::types::EventKind;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::events::{EventLog, Events, Subject};
use nfluid_control::group::Groups;
use nfluid_control::io::IoModel;
use nfluid_control::model::{PortRef, Program, Restart};
use nfluid_control::spec::InstanceSpec;
use nfluid_control::tier::Isolation;
use nfluid_lifecycle::creation;
use nfluid_lifecycle::runtime::Runtime;
use nfluid_lifecycle::scaling::FlowTables;
use nfluid_lifecycle::services::Services;
use nfluid_lifecycle::table::Instances;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A kind of isolation, and the runtime for it.
type Row = (Isolation, fn(&Shared) -> Arc<dyn Runtime>);

/// The runtimes of this daemon, a row each.
const RUNTIMES: &[Row] = &[(null::ISOLATION, |world| {
    Arc::new(NullRuntime(world.clone()))
})];

/// Events, in a log of the last ones.
struct Log(Mutex<EventLog>);

impl Events for Log {
    fn record(&self, kind: EventKind, subject: Subject<'_>, message: String) {
        let mut log = self.0.lock().expect("whole");
        log.record(0, kind, subject, message);
    }

    fn note_change_of(&self, _: &str) {}

    fn note_change(&self) {}
}

/// A daemon without a host.
pub struct Daemon {
    /// The world of the instances.
    pub world: Shared,
    /// Instances that frames are led past.
    pub bypassed: BTreeSet<String>,
    /// By instance, the peers of its ports.
    pub peers: BTreeMap<String, Vec<Option<String>>>,
    runtimes: BTreeMap<Isolation, Arc<dyn Runtime>>,
    instances: Instances,
    groups: Groups,
    events: Arc<Log>,
}

impl Daemon {
    /// A daemon whose instances live in `world`.
    pub fn of(world: &Shared) -> Self {
        let rows = RUNTIMES.iter();
        Daemon {
            world: world.clone(),
            bypassed: BTreeSet::new(),
            peers: BTreeMap::new(),
            runtimes: rows.map(|(key, make)| (*key, make(world))).collect(),
            instances: Instances::default(),
            groups: Groups::new(),
            events: Arc::new(Log(Mutex::new(EventLog::new(1000, 1)))),
        }
    }

    /// Makes an instance.
    pub fn create(&mut self, name: &str, restart: Restart) -> anyhow::Result<()> {
        let spec = spec(restart);
        let prepared = creation::start(self, name, &spec)?;
        creation::take_up(self, name, &spec, prepared).map(drop)
    }

    /// The kinds of the events since the last call.
    pub fn take_events(&mut self) -> Vec<EventKind> {
        let mut log = self.events.0.lock().expect("whole");
        let page = log.since(0);
        *log = EventLog::new(1000, 1);
        page.events.iter().map(|event| event.kind).collect()
    }
}

/// An instance of tier `null`.
pub fn spec(restart: Restart) -> InstanceSpec {
    let program = Program::BuiltIn {
        nf: "bridge".to_owned(),
    };
    InstanceSpec {
        restart,
        ..InstanceSpec::bare(program, null::TIER)
    }
}

impl Services for Daemon {
    fn instances(&self) -> &Instances {
        &self.instances
    }

    fn instances_mut(&mut self) -> &mut Instances {
        &mut self.instances
    }

    fn groups(&self) -> &Groups {
        &self.groups
    }

    fn runtime(&self, spec: &InstanceSpec) -> Result<Arc<dyn Runtime>, PlatformError> {
        let runtime = self.runtimes.get(&spec.tier.isolation()).cloned();
        runtime.ok_or_else(|| PlatformError::new(PlatformErrorKind::Unsupported, "no runtime"))
    }

    fn events(&self) -> Arc<dyn Events> {
        self.events.clone()
    }

    fn link_peers(&self, name: &str, _: &InstanceSpec) -> Vec<Option<String>> {
        self.peers.get(name).cloned().unwrap_or_default()
    }

    fn check_bypass(&self, _: &str) -> Result<(), PlatformError> {
        Ok(())
    }

    fn begin_bypass(&mut self, name: &str) -> Result<(), PlatformError> {
        if self.world.lock().failing.contains("begin_bypass") {
            return Err(PlatformError::new(PlatformErrorKind::Failed, "no way"));
        }
        self.bypassed.insert(name.to_owned());
        Ok(())
    }

    fn end_bypass(&mut self, name: &str) -> Result<(), PlatformError> {
        self.bypassed.remove(name);
        Ok(())
    }

    fn choose_doorbells_of(&self, _: &str) {}

    fn choose_doorbells_of_peers(&self, _: &str) {}

    fn senders_to(&self, _: &PortRef) -> Option<Vec<u32>> {
        None
    }

    fn flow_tables(&self) -> Arc<dyn FlowTables> {
        unreachable!("no flows are divided")
    }

    fn scaling_note(&self, _: &str) -> PathBuf {
        PathBuf::new()
    }

    fn scaling_notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn is_one_of_several(&self, _: &str) -> bool {
        false
    }

    fn assign_io(&mut self, _: &str, _: IoModel) -> anyhow::Result<()> {
        Ok(())
    }

    fn release(&mut self, _: &str) {}

    fn dismiss(&mut self, _: &str) {}

    fn forget_wires(&mut self, name: &str) {
        self.bypassed.remove(name);
    }

    fn set_io_weights(&self) {}
}
