//! The logic behind the API.

mod capacity;
mod ending;
mod saving;

use crate::demand::{Demand, SharedController};
use crate::facts::{BuiltIn, ThisHost};
use crate::host::{self, Functions, HostPlatform, Shared, lock};
use crate::site::HostInstances;
pub use capacity::Labels;
use nfluid_api::server::Server;
use nfluid_api::types::{
    ApplyRequest, ApplyResponse, Capacity, ChainStatus, Check, CheckStatus, CommandRequest,
    CommandResponse, CreateRequest, DeleteRequest, DoctorReport, EventKind, EventPage,
    FunctionReport, FunctionRequest, GroupStatus, Health, HealthStatus, InstanceSnapshot,
    InstanceState, InstanceStatus, IoStatus, LinkStatus, Logs, MigrateReport, MigrateRequest,
    PauseRequest, PoolStatus, PortState, PortStatus, Problem, RestoreReport, RestoreRequest,
    SavedInstance, ScaleReport, ScaleRequest, SecurityGroupStatus, Stats, SwitchStatus,
    TemplateStatus, Took, UpgradeReport, UplinkStatus, Version,
};
use nfluid_control::access::Stop;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::controller::{Controller, Stepped};
use nfluid_control::desired::Desired;
use nfluid_control::frames::domains;
use nfluid_control::inventory::Inventory;
use nfluid_control::model::{Deployment, PortRef};
use nfluid_control::single::proposal::Proposal;
use nfluid_control::state::FileStore;
use nfluid_control::state::journal::Durable;
use nfluid_control::state::tidying::Tidying;
use nfluid_control::validate::Environment;
use nfluid_lifecycle::services::Services as _;
use nfluid_lifecycle::{pausing, scaling};
use nfluid_migration::Migration;
use nfluid_ring::clock::monotonic_ns;
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;
use tokio::sync::{mpsc, watch};

/// The host that requests are checked against.
const ENVIRONMENT: Environment<'static> = Environment {
    host: &ThisHost,
    catalogue: &BuiltIn,
};

/// The running daemon.
pub struct Daemon {
    host: Shared,
    pub(crate) instances: HostInstances,
    migration: Arc<Migration>,
    functions: Arc<Functions>,
    controller: SharedController,
    /// The desired state, readable while the controller is busy.
    desired: Desired,
    /// Objects of the desired state that were missing at the last look.
    missing: Mutex<Vec<String>>,
    demand: Demand,
    labels: Labels,
}

impl Daemon {
    /// Assembles the daemon, and starts to admit clients of templates.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn new(
        host: Shared,
        controller: Controller<HostPlatform, FileStore>,
        functions: Arc<Functions>,
        migration: Arc<Migration>,
        labels: Labels,
    ) -> std::io::Result<Self> {
        let desired = controller.desired();
        let controller = Arc::new(Mutex::new(controller));
        Ok(Daemon {
            demand: Demand::start(&host, &controller, &desired)?,
            desired,
            missing: Mutex::default(),
            instances: HostInstances::new(&host),
            host,
            functions,
            controller,
            migration,
            labels,
        })
    }

    pub(crate) fn controller(&self) -> MutexGuard<'_, Controller<HostPlatform, FileStore>> {
        self.controller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn model(&self) -> Deployment {
        self.desired.read().clone()
    }

    /// Returns the desired objects that are missing. While a change is carried out, which may take seconds, the list
    /// of the previous call is returned, so that no client waits.
    fn missing(&self) -> Vec<String> {
        let mut known = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let controller = match self.controller.try_lock() {
            Ok(controller) => controller,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return known.clone(),
        };
        let desired = Inventory::of(&controller.deployment());
        let missing = nfluid_control::plan::plan(controller.present(), &desired);
        let missing = missing.iter();
        *known = missing
            .map(|action| format!("still to do: {action}"))
            .collect();
        known.clone()
    }

    fn add(&self, proposal: Proposal) -> Option<Result<Stepped, Problem>> {
        self.controller().add(proposal, ENVIRONMENT)
    }

    fn told<T>(&self, what: &str, result: Result<T, Problem>) -> Result<T, Problem> {
        let host = lock(&self.host);
        match &result {
            Ok(_) => host.event(EventKind::Applied, None, what),
            Err(problem) => host.event(EventKind::RolledBack, None, format!("{what}: {problem}")),
        }
        result
    }

    /// Returns the response to a change of single instances, as soon as the change would survive a power cut. Other
    /// requests go on meanwhile.
    fn stepped(
        &self,
        what: &str,
        result: Result<Stepped, Problem>,
    ) -> Result<ApplyResponse, Problem> {
        let Stepped {
            mut response,
            durable,
            watch,
            ..
        } = self.report_step(what, result)?;
        response.took = Some(watch.timeline(monotonic_ns()));
        wait_for(durable)?;
        Ok(response)
    }

    /// Reports a change of single instances that failed. After a change that succeeded, starts the pending work on
    /// the disk in the background.
    fn report_step(
        &self,
        what: &str,
        result: Result<Stepped, Problem>,
    ) -> Result<Stepped, Problem> {
        let mut stepped = result.inspect_err(|problem| {
            let message = format!("{what}: {problem}");
            lock(&self.host).event(EventKind::RolledBack, None, message);
        })?;
        if let Some(work) = stepped.tidying.take() {
            tidy(work);
        }
        Ok(stepped)
    }

    /// Refuses an instance without a process of its own, which cannot be stopped, asked or moved.
    fn require_process(&self, instance: &str) -> Result<(), Problem> {
        if !lock(&self.host).is_fast(instance) {
            return Ok(());
        }
        let detail = format!("instance '{instance}' is in tier 'xdp': it has no process");
        Err(Problem::bad_request(detail).with_remedy(
            "'nfluid describe instance' shows what it does, 'nfluid restart' reads everything anew",
        ))
    }

    fn no_instance(name: &str) -> Problem {
        Problem::not_found(format!("there is no instance '{name}'"))
            .with_remedy("'nfluid get instances' lists them")
    }
}

impl Server for Daemon {
    fn version(&self) -> Version {
        Version {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api: "v1".to_owned(),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            data_plane: lock(&self.host).data_plane(),
        }
    }

    fn capacity(&self) -> Capacity {
        capacity::of_host(&self.model(), &self.labels)
    }

    fn health(&self) -> Health {
        let mut reasons = self.missing();
        let host = lock(&self.host);
        for instance in host.instance_statuses() {
            let is_well = matches!(
                instance.state,
                InstanceState::Running | InstanceState::Paused | InstanceState::Stopped
            );
            if !is_well {
                let why = instance.unhealthy.map(|why| format!(": {why}"));
                reasons.push(format!(
                    "instance {} is {}{}",
                    instance.name,
                    instance.state,
                    why.unwrap_or_default()
                ));
            }
        }
        for uplink in host.uplink_statuses() {
            reasons.extend(
                uplink
                    .reason
                    .map(|why| format!("uplink {}: {why}", uplink.name)),
            );
        }
        reasons.extend(host.io_problem());
        drop(host);
        reasons.extend(self.migration.problems());
        let status = if reasons.is_empty() {
            HealthStatus::Ok
        } else {
            HealthStatus::Degraded
        };
        Health { status, reasons }
    }

    fn apply(&self, request: ApplyRequest) -> Result<ApplyResponse, Problem> {
        if let Some(added) = Proposal::of(&request).and_then(|proposal| self.add(proposal)) {
            return self.stepped("create", added);
        }
        let result = self.controller().apply(&request, ENVIRONMENT);
        if request.dry_run {
            result
        } else {
            self.told("apply", result)
        }
    }

    fn create(&self, name: &str, request: CreateRequest) -> Result<ApplyResponse, Problem> {
        let document = request.value(name);
        let proposal = Proposal::made(&document, &request.attachments);
        let added = proposal.filter(|_| !request.dry_run);
        match added.and_then(|proposal| self.add(proposal)) {
            Some(added) => self.stepped("create", added),
            None => self.apply(request.document(name)),
        }
    }

    fn delete(&self, request: DeleteRequest) -> Result<ApplyResponse, Problem> {
        let _endings = self.end_programs(&request)?;
        let removed = self.controller().take_out(&request);
        if let Some(removed) = removed {
            return self.stepped("destroy", removed);
        }
        let result = self.controller().delete(&request);
        if request.dry_run {
            result
        } else {
            self.told("delete", result)
        }
    }

    fn deployment(&self) -> Value {
        serde_json::to_value(self.model()).unwrap_or(Value::Null)
    }

    fn instances(&self) -> Vec<InstanceStatus> {
        lock(&self.host).instance_statuses()
    }

    fn instance(&self, name: &str) -> Option<InstanceStatus> {
        lock(&self.host).status_of(name)
    }

    fn groups(&self) -> Vec<GroupStatus> {
        lock(&self.host).group_statuses()
    }

    fn ports(&self) -> Vec<PortStatus> {
        lock(&self.host).port_statuses()
    }

    fn switches(&self) -> Vec<SwitchStatus> {
        lock(&self.host).switch_statuses()
    }

    fn security_groups(&self) -> Vec<SecurityGroupStatus> {
        nfluid_control::guards::statuses(&self.model())
    }

    fn links(&self) -> Vec<LinkStatus> {
        let model = self.model();
        let host = lock(&self.host);
        let status = |link: &nfluid_control::model::Link| LinkStatus {
            name: link.name(),
            a: link.0.to_string(),
            b: link.1.to_string(),
            state: all_up(
                [&link.0, &link.1]
                    .into_iter()
                    .map(|port| host.port_state(port)),
            ),
        };
        model.links.iter().map(status).collect()
    }

    fn chains(&self) -> Vec<ChainStatus> {
        let model = self.model();
        let host = lock(&self.host);
        let chains = model.chains.iter();
        chains
            .map(|(name, chain)| host.chain_status(name, chain))
            .collect()
    }

    fn uplinks(&self) -> Vec<UplinkStatus> {
        let mut statuses = lock(&self.host).uplink_statuses();
        let mut desired = {
            let model = self.desired.read();
            for status in &mut statuses {
                let uplink = model.uplinks.get(&status.name);
                status.owner = uplink.and_then(|it| it.owner.clone());
            }
            Inventory::of(&model)
        };
        let host = lock(&self.host);
        for (name, spec) in &mut desired.instances {
            if let Some(running) = host.instances().get(name) {
                spec.keep_long(&running.spec);
            }
        }
        drop(host);
        let domains = domains(&[&desired]);
        for status in statuses.iter_mut().filter(|it| it.frames_reason.is_none()) {
            let mut domains = domains.iter();
            let domain = domains.find(|domain| domain.uplinks.contains(&status.name));
            // An uplink whose last neighbour has gone keeps the frames that it lets in.
            let domain = domain.filter(|domain| domain.frames.to_string() == status.frames);
            let why = domain.map(|domain| domain.why.clone());
            status.frames_reason = why.filter(|why| !why.is_empty());
        }
        statuses
    }

    fn io(&self) -> IoStatus {
        lock(&self.host).io_status()
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let pool = lock(&self.host).pool();
        pool.statuses()
    }

    fn templates(&self) -> Vec<TemplateStatus> {
        let model = self.model();
        self.demand.client_table().statuses(&model)
    }

    fn stats(&self) -> Stats {
        let model = self.model();
        let templates = self.demand.client_table().statuses(&model);
        let (mut stats, sockets) = {
            let host = lock(&self.host);
            let found = host.congestion().figures();
            let mut stats = host.stats(&found);
            stats.templates = templates;
            stats.chains = model
                .chains
                .iter()
                .map(|(name, chain)| host.chain_stats(name, chain, &found))
                .collect();
            (stats, host.control_sockets())
        };
        // The NFs are asked without the lock, so that an NF that does not answer delays no other request.
        let mut metrics = host::nf_metrics(sockets);
        for instance in &mut stats.instances {
            if let Some(found) = metrics.remove(&instance.name) {
                instance.metrics = found;
            }
        }
        stats
    }

    fn instance_stats(&self, instance: &str) -> Result<InstanceSnapshot, Problem> {
        let host = lock(&self.host);
        let found = host.congestion().figures();
        let snapshot = host.snapshot_of(instance, &found);
        snapshot.ok_or_else(|| Self::no_instance(instance))
    }

    fn events(&self, since: u64) -> EventPage {
        lock(&self.host).events().since(since)
    }

    fn newest_event(&self) -> watch::Receiver<u64> {
        lock(&self.host).events().newest()
    }

    fn logs(&self, instance: &str, since: u64, tail: usize) -> Result<Logs, Problem> {
        let lines = lock(&self.host).log_lines(instance, since, tail);
        if lines.is_none() {
            self.require_process(instance)?;
        }
        let (lines, next) = lines
            .ok_or_else(|| Self::no_instance(instance))?
            .map_err(|error| Problem::failed(format!("reading the log of {instance}: {error}")))?;
        Ok(Logs { lines, next })
    }

    fn command(&self, instance: &str, command: CommandRequest) -> Result<CommandResponse, Problem> {
        self.require_process(instance)?;
        let socket = {
            let host = lock(&self.host);
            let awake = host.instances().check_awake(instance);
            awake.map_err(|error| problem(instance, error))?;
            host.control_socket(instance)
                .ok_or_else(|| Self::no_instance(instance))?
        };
        let output = host::nf_command(&socket, &command.name, &command.args)
            .map_err(|error| Problem::bad_request(format!("{instance}: {error:#}")))?;
        Ok(CommandResponse { output })
    }

    fn restart(&self, instance: &str) -> Result<(), Problem> {
        let _ending = host::prepare_end(&self.host, instance, Stop::default());
        let restarted = lock(&self.host).restart(instance);
        restarted.map_err(|error| match error.kind {
            PlatformErrorKind::NotFound => Self::no_instance(instance),
            _ => Problem::failed(error.to_string()),
        })
    }

    fn pause(&self, instance: &str, request: PauseRequest) -> Result<Took, Problem> {
        self.require_process(instance)?;
        let begun = Instant::now();
        let paused = pausing::pause(&mut *lock(&self.host), instance, request.traffic);
        paused.map_err(|error| problem(instance, error))?;
        Ok(took(begun))
    }

    fn unpause(&self, instance: &str) -> Result<Took, Problem> {
        self.require_process(instance)?;
        let begun = Instant::now();
        let unpaused = pausing::unpause(&mut *lock(&self.host), instance);
        unpaused.map_err(|error| problem(instance, error))?;
        Ok(took(begun))
    }

    fn upgrade(&self, instance: &str) -> Result<UpgradeReport, Problem> {
        self.require_process(instance)?;
        let upgraded = host::upgrade(&self.host, instance);
        upgraded.map_err(|error| problem(instance, error))
    }

    fn scale(&self, instance: &str, request: ScaleRequest) -> Result<ScaleReport, Problem> {
        self.require_process(instance)?;
        let begun = Instant::now();
        {
            // Checked before members are created, so that none has to be removed again.
            let mut host = lock(&self.host);
            let ready = host
                .instances()
                .check_settled(instance)
                .and_then(|()| host.instances().check_awake(instance));
            ready.map_err(|error| problem(instance, error))?;
            // Discards the report of an earlier change that no client has asked for.
            let _earlier = scaling::take_report(&mut *host, instance);
        }
        let scaled = self
            .controller()
            .scale(instance, request.replicas, ENVIRONMENT);
        self.told(&format!("scale {instance}"), scaled)?;
        let report = scaling::take_report(&mut *lock(&self.host), instance).unwrap_or_default();
        Ok(ScaleReport {
            took_us: took(begun).took_us,
            ..report
        })
    }

    fn save(&self, instance: &str) -> Result<SavedInstance, Problem> {
        self.save_instance(instance)
    }

    fn restore(&self, request: RestoreRequest) -> Result<RestoreReport, Problem> {
        self.restore_instance(request)
    }

    fn migrate(&self, instance: &str, request: MigrateRequest) -> Result<MigrateReport, Problem> {
        self.require_process(instance)?;
        match (request.to, request.keep) {
            (Some(to), false) => self.migration.migrate(self, instance, &to),
            (None, true) => self.migration.keep_here(self, instance),
            _ => Err(Problem::bad_request(
                "a move needs either 'to', where the instance goes, or 'keep'",
            )),
        }
    }

    fn capture(&self, port: &str) -> Result<mpsc::Receiver<Vec<u8>>, Problem> {
        let port: PortRef = port
            .parse()
            .map_err(|error| Problem::bad_request(format!("{error}")))?;
        host::capture(&self.host, &port)
    }

    fn run_function(
        &self,
        request: FunctionRequest,
        client: std::io::PipeReader,
    ) -> Result<FunctionReport, Problem> {
        self.functions.run(&request, &client)
    }

    fn doctor(&self) -> DoctorReport {
        let data_plane = lock(&self.host).data_plane();
        doctor(&data_plane, &self.uplinks())
    }
}

/// Merges a long journal into the saved state while requests go on. A merge that fails now is done later.
fn tidy(work: Tidying) {
    let tidied = std::thread::Builder::new()
        .name("tidying".to_owned())
        .spawn(move || {
            if let Err(error) = work.run() {
                tracing::warn!(%error, "making the journal a part of the saved state");
            }
        });
    if let Err(error) = tidied {
        tracing::warn!(%error, "no thread to make the journal a part of the saved state");
    }
}

/// Waits until a change would survive a power cut.
pub(crate) fn wait_for(durable: Durable) -> Result<(), Problem> {
    durable.wait().map_err(|error| {
        let detail = format!("it is done, but may be forgotten after a power cut: {error}");
        Problem::not_saved(detail).with_remedy("look at the disk of the state's directory")
    })
}

fn took(begun: Instant) -> Took {
    Took {
        took_us: begun.elapsed().as_micros() as u64,
    }
}

/// The problem of an action that failed for an instance.
pub(crate) fn problem(instance: &str, error: PlatformError) -> Problem {
    let problem = match error.kind {
        PlatformErrorKind::NotFound => return Daemon::no_instance(instance),
        PlatformErrorKind::Refused | PlatformErrorKind::Unsupported => {
            Problem::bad_request(error.message)
        }
        _ => Problem::failed(error.message),
    };
    problem.with_remedy(error.remedy)
}

/// Checks the host, from within the running daemon.
fn doctor(data_plane: &[String], uplinks: &[UplinkStatus]) -> DoctorReport {
    let mut checks = vec![Check {
        name: "switch".to_owned(),
        status: CheckStatus::Ok,
        detail: data_plane.join("; "),
        remedy: String::new(),
    }];
    checks.extend(uplinks.iter().map(frames_of));
    checks.extend(nfluid_sandbox::probe().into_iter().map(Check::from));
    DoctorReport { checks }
}

/// Returns a check that shows which frames an uplink lets in. The check never warns: plain frames are a choice, or the limit of an
/// interface.
fn frames_of(uplink: &UplinkStatus) -> Check {
    let memory = format!("{} KiB for long frames", uplink.long_bytes >> 10);
    let why = uplink.frames_reason.as_deref();
    Check {
        name: format!("frames of uplink {}", uplink.name),
        status: CheckStatus::Ok,
        detail: match why {
            Some(why) => format!("{} ({memory}): {why}", uplink.frames),
            None => format!("{} ({memory})", uplink.frames),
        },
        remedy: String::new(),
    }
}

fn all_up(mut states: impl Iterator<Item = PortState>) -> PortState {
    if states.all(|state| state == PortState::Up) {
        PortState::Up
    } else {
        PortState::Down
    }
}
