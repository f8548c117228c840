//! Hosts that exist in memory alone: the controller that a daemon has, behind the API that a daemon has, on a platform that does nothing. Engines and their
//! drivers see no difference, and a thousand of them fit into a laptop.

mod platform;
#[cfg(test)]
mod tests;

pub use platform::Size;

use nfluid_api::server::{Server, router};
use nfluid_api::types::{
    ApplyRequest, ApplyResponse, Capacity, ChainStatus, CommandRequest, CommandResponse,
    CreateRequest, DeleteRequest, DoctorReport, EventKind, EventPage, FunctionReport,
    FunctionRequest, GroupStatus, Health, InstanceSnapshot, InstanceState, InstanceStatus,
    IoStatus, Kind, LinkStatus, Logs, MigrateReport, MigrateRequest, PauseRequest, PoolStatus,
    PortState, PortStatus, Problem, RestoreReport, RestoreRequest, SavedInstance, ScaleReport,
    ScaleRequest, SecurityGroupStatus, Stats, SwitchStatus, TemplateStatus, Took, UpgradeReport,
    UplinkStatus, Version,
};
use nfluid_control::capacity::capacity;
use nfluid_control::controller::Controller;
use nfluid_control::desired::Desired;
use nfluid_control::events::EventLog;
use nfluid_control::inventory::Inventory;
use nfluid_control::model::PortRef;
use nfluid_control::single::proposal::Proposal;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::state::StateError;
use nfluid_control::tier::Tier;
use nfluid_control::validate::Environment;
use platform::{Forgetful, Named, Nothing};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::io::PipeReader;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};

/// Number of events that are kept.
const EVENTS: usize = 1024;

/// The facts that a simulated host tells of itself.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its size.
    pub size: Size,
    /// The network functions that it has.
    pub nfs: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// A host in memory.
pub struct SimulatedHost {
    size: Size,
    catalogue: Named,
    labels: BTreeMap<String, String>,
    state: Mutex<State>,
    desired: Desired,
    newest: watch::Sender<u64>,
}

struct State {
    controller: Controller<Nothing, Forgetful>,
    events: EventLog,
    /// When the instances were started, in milliseconds since 1970.
    started_ms: HashMap<String, u64>,
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_millis() as u64
}

fn simulated<T>(what: &str) -> Result<T, Problem> {
    Err(Problem::bad_request(format!(
        "this host is simulated: {what}"
    )))
}

impl SimulatedHost {
    /// Creates a host without objects.
    ///
    /// # Errors
    /// Never: there is no saved state that could be damaged.
    pub fn new(description: Description) -> Result<Self, StateError> {
        let platform = Nothing {
            cpus: description.size.cpus as usize,
        };
        let controller = Controller::load(platform, Forgetful, Inventory::default())?;
        let mut events = EventLog::new(EVENTS, now_ms());
        let begun = events.record(now_ms(), EventKind::DaemonStarted, None, "simulated");
        Ok(SimulatedHost {
            size: description.size,
            catalogue: Named(description.nfs),
            labels: description.labels,
            desired: controller.desired(),
            state: Mutex::new(State {
                controller,
                events,
                started_ms: HashMap::new(),
            }),
            newest: watch::Sender::new(begun),
        })
    }

    /// Serves the API on a socket, until it is cancelled.
    ///
    /// # Errors
    /// The socket fails.
    pub async fn serve(self: Arc<Self>, socket: UnixListener) -> std::io::Result<()> {
        axum::serve(socket, router(self)).await
    }

    fn environment(&self) -> Environment<'_> {
        Environment {
            host: &self.size,
            catalogue: &self.catalogue,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change, and tells what it did to instances as a daemon does.
    fn change(
        &self,
        change: impl FnOnce(
            &mut Controller<Nothing, Forgetful>,
            Environment<'_>,
        ) -> Result<ApplyResponse, Problem>,
    ) -> Result<ApplyResponse, Problem> {
        let mut state = self.state();
        let response = change(&mut state.controller, self.environment())?;
        if response.dry_run {
            return Ok(response);
        }
        let now = now_ms();
        let State {
            controller,
            events,
            started_ms,
        } = &mut *state;
        let present = &controller.present().instances;
        let mut newest = None;
        started_ms.retain(|name, _| {
            let stays = present.contains_key(name);
            if !stays {
                let subject = Some((Kind::Instance, name.as_str()));
                newest = Some(events.record(now, EventKind::Removed, subject, "removed"));
            }
            stays
        });
        for change in &response.changes {
            let name = &change.name;
            if change.kind == Kind::Instance && present.contains_key(name) {
                let is_new = started_ms.insert(name.clone(), now).is_none();
                let kind = if is_new {
                    EventKind::Started
                } else {
                    EventKind::Changed
                };
                let subject = Some((Kind::Instance, name.as_str()));
                newest = Some(events.record(now, kind, subject, "simulated"));
            }
        }
        if let Some(newest) = newest {
            self.newest.send_replace(newest);
        }
        Ok(response)
    }
}

fn status(name: &str, spec: &InstanceSpec, started_ms: Option<u64>) -> InstanceStatus {
    let ports = spec.ports.iter();
    InstanceStatus {
        name: name.to_owned(),
        nf: spec.program.name().to_owned(),
        owner: spec.owner.clone(),
        tier: spec.tier.to_string(),
        state: InstanceState::Running,
        started_ms,
        uptime_ms: started_ms.map(|started| now_ms().saturating_sub(started)),
        io: spec.io.to_string(),
        flavor: spec.flavor.clone(),
        ring: spec.ring,
        placement: spec.resources.placement.to_string(),
        memory_limit_bytes: spec.resources.memory.0,
        ports: ports
            .map(|port| PortRef::instance(name, &port.name).to_string())
            .collect(),
        config: spec.config.clone(),
        ..InstanceStatus::default()
    }
}

impl Server for SimulatedHost {
    fn version(&self) -> Version {
        Version {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api: "v1".to_owned(),
            kernel: "simulated".to_owned(),
            data_plane: Vec::new(),
        }
    }

    fn capacity(&self) -> Capacity {
        let found = capacity(&self.desired.read(), &self.size);
        found.for_engines(Tier::ALL, &self.catalogue, &self.labels)
    }

    fn health(&self) -> Health {
        Health::default()
    }

    fn apply(&self, request: ApplyRequest) -> Result<ApplyResponse, Problem> {
        self.change(|controller, environment| controller.apply(&request, environment))
    }

    fn create(&self, name: &str, request: CreateRequest) -> Result<ApplyResponse, Problem> {
        let proposal =
            Proposal::made(&request.value(name), &request.attachments).filter(|_| !request.dry_run);
        self.change(|controller, environment| {
            let added = proposal.and_then(|proposal| controller.add(proposal, environment));
            match added {
                Some(added) => added.map(|it| it.response),
                None => controller.apply(&request.document(name), environment),
            }
        })
    }

    fn delete(&self, request: DeleteRequest) -> Result<ApplyResponse, Problem> {
        self.change(|controller, _| match controller.take_out(&request) {
            Some(removed) => removed.map(|it| it.response),
            None => controller.delete(&request),
        })
    }

    fn deployment(&self) -> Value {
        serde_json::to_value(&*self.desired.read()).unwrap_or(Value::Null)
    }

    fn instances(&self) -> Vec<InstanceStatus> {
        let state = self.state();
        let all = state.controller.present().instances.iter();
        all.map(|(name, spec)| status(name, spec, state.started_ms.get(name).copied()))
            .collect()
    }

    fn instance(&self, name: &str) -> Option<InstanceStatus> {
        let state = self.state();
        let spec = state.controller.present().instances.get(name)?;
        Some(status(name, spec, state.started_ms.get(name).copied()))
    }

    fn groups(&self) -> Vec<GroupStatus> {
        Vec::new()
    }

    fn ports(&self) -> Vec<PortStatus> {
        let state = self.state();
        let all = state.controller.present().instances.iter();
        let ports = all.flat_map(|(name, spec)| {
            spec.ports.iter().map(move |port| PortStatus {
                name: PortRef::instance(name, &port.name).to_string(),
                mac: port.mac.to_string(),
                state: PortState::Up,
                ring: spec.ring,
                queues: port.queues,
                ..PortStatus::default()
            })
        });
        ports.collect()
    }

    fn security_groups(&self) -> Vec<SecurityGroupStatus> {
        nfluid_control::guards::statuses(&self.desired.read())
    }

    fn switches(&self) -> Vec<SwitchStatus> {
        let desired = self.desired.read();
        let all = desired.switches.iter();
        all.map(|(name, switch)| SwitchStatus {
            name: name.to_owned(),
            ageing_s: switch.ageing.0 / 1000,
            owner: switch.owner.clone(),
            ..SwitchStatus::default()
        })
        .collect()
    }

    fn links(&self) -> Vec<LinkStatus> {
        let desired = self.desired.read();
        let all = desired.links.iter();
        all.map(|link| LinkStatus {
            name: link.name(),
            a: link.0.to_string(),
            b: link.1.to_string(),
            state: PortState::Up,
        })
        .collect()
    }

    fn chains(&self) -> Vec<ChainStatus> {
        Vec::new()
    }

    fn uplinks(&self) -> Vec<UplinkStatus> {
        let state = self.state();
        let desired = state.controller.deployment();
        let owner = |name: &String| desired.uplinks.get(name).and_then(|it| it.owner.clone());
        let all = state.controller.present().uplinks.iter();
        all.map(|(name, spec)| UplinkStatus {
            name: name.clone(),
            owner: owner(name),
            interface: spec.interface.clone(),
            kind: "simulated".to_owned(),
            state: PortState::Up,
            ..UplinkStatus::default()
        })
        .collect()
    }

    fn io(&self) -> IoStatus {
        IoStatus::default()
    }

    fn pools(&self) -> Vec<PoolStatus> {
        Vec::new()
    }

    fn templates(&self) -> Vec<TemplateStatus> {
        Vec::new()
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn instance_stats(&self, _: &str) -> Result<InstanceSnapshot, Problem> {
        simulated("its instances have no counters")
    }

    fn events(&self, since: u64) -> EventPage {
        self.state().events.since(since)
    }

    fn newest_event(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    fn logs(&self, _: &str, _: u64, _: usize) -> Result<Logs, Problem> {
        simulated("its instances have no logs")
    }

    fn command(&self, _: &str, _: CommandRequest) -> Result<CommandResponse, Problem> {
        simulated("its instances take no commands")
    }

    fn restart(&self, _: &str) -> Result<(), Problem> {
        simulated("its instances have no processes")
    }

    fn pause(&self, _: &str, _: PauseRequest) -> Result<Took, Problem> {
        simulated("its instances have no processes")
    }

    fn unpause(&self, _: &str) -> Result<Took, Problem> {
        simulated("its instances have no processes")
    }

    fn upgrade(&self, _: &str) -> Result<UpgradeReport, Problem> {
        simulated("its instances have no processes")
    }

    fn scale(&self, _: &str, _: ScaleRequest) -> Result<ScaleReport, Problem> {
        simulated("its instances have no members")
    }

    fn migrate(&self, _: &str, _: MigrateRequest) -> Result<MigrateReport, Problem> {
        simulated("its instances have no state")
    }

    fn save(&self, _: &str) -> Result<SavedInstance, Problem> {
        simulated("its instances have no state")
    }

    fn restore(&self, _: RestoreRequest) -> Result<RestoreReport, Problem> {
        simulated("its instances have no state")
    }

    fn capture(&self, _: &str) -> Result<mpsc::Receiver<Vec<u8>>, Problem> {
        simulated("its ports carry no frames")
    }

    fn run_function(&self, _: FunctionRequest, _: PipeReader) -> Result<FunctionReport, Problem> {
        simulated("it runs no functions")
    }

    fn doctor(&self) -> DoctorReport {
        DoctorReport::default()
    }
}
