//! The logic behind the API.

use crate::facts::{BuiltIn, ThisHost};
use crate::host::{self, HostPlatform, Shared, lock};
use nfluid_api::server::Server;
use nfluid_api::types::{
    ApplyRequest, ApplyResponse, ChainStats, ChainStatus, Check, CheckStatus, CommandRequest,
    CommandResponse, DeleteRequest, DoctorReport, EventKind, EventPage, Health, HealthStatus,
    InstanceState, InstanceStatus, LinkStatus, Logs, PortState, PortStats, PortStatus, Problem,
    Stats, SwitchStatus, UplinkStatus, Version,
};
use nfluid_control::apply::PlatformErrorKind;
use nfluid_control::controller::Controller;
use nfluid_control::inventory::Inventory;
use nfluid_control::matching::MatchRule;
use nfluid_control::model::{Chain, Deployment, PortRef};
use nfluid_control::state::FileStore;
use nfluid_control::validate::Environment;
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};

/// The running daemon.
pub struct Daemon {
    host: Shared,
    controller: Mutex<Controller<HostPlatform, FileStore>>,
}

impl Daemon {
    /// Puts the parts together.
    pub fn new(host: Shared, controller: Controller<HostPlatform, FileStore>) -> Self {
        Daemon {
            host,
            controller: Mutex::new(controller),
        }
    }

    fn controller(&self) -> MutexGuard<'_, Controller<HostPlatform, FileStore>> {
        self.controller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn model(&self) -> Deployment {
        self.controller().deployment().clone()
    }

    fn told<T>(&self, what: &str, result: Result<T, Problem>) -> Result<T, Problem> {
        let mut host = lock(&self.host);
        match &result {
            Ok(_) => host.event(EventKind::Applied, None, what),
            Err(problem) => host.event(EventKind::RolledBack, None, format!("{what}: {problem}")),
        }
        result
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

    fn health(&self) -> Health {
        let mut reasons = Vec::new();
        let controller = self.controller();
        let missing = nfluid_control::plan::plan(
            controller.present(),
            &Inventory::of(controller.deployment()),
        );
        reasons.extend(
            missing
                .iter()
                .map(|action| format!("still to do: {action}")),
        );
        drop(controller);
        let host = lock(&self.host);
        for instance in host.instance_statuses() {
            if instance.state != InstanceState::Running && instance.state != InstanceState::Stopped
            {
                reasons.push(format!("instance {} is {}", instance.name, instance.state));
            }
        }
        for uplink in host.uplink_statuses() {
            reasons.extend(
                uplink
                    .reason
                    .map(|why| format!("uplink {}: {why}", uplink.name)),
            );
        }
        let status = if reasons.is_empty() {
            HealthStatus::Ok
        } else {
            HealthStatus::Degraded
        };
        Health { status, reasons }
    }

    fn apply(&self, request: ApplyRequest) -> Result<ApplyResponse, Problem> {
        let environment = Environment {
            host: &ThisHost,
            catalogue: &BuiltIn,
        };
        let result = self.controller().apply(&request, environment);
        if request.dry_run {
            result
        } else {
            self.told("apply", result)
        }
    }

    fn delete(&self, request: DeleteRequest) -> Result<ApplyResponse, Problem> {
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

    fn ports(&self) -> Vec<PortStatus> {
        lock(&self.host).port_statuses()
    }

    fn switches(&self) -> Vec<SwitchStatus> {
        lock(&self.host).switch_statuses()
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
        let words = |rules: &[MatchRule]| rules.iter().map(ToString::to_string).collect();
        let status = |(name, chain): (&str, &Chain)| ChainStatus {
            name: name.to_owned(),
            from: chain.from.to_string(),
            to: chain.to.to_string(),
            via: chain.via.iter().map(|hop| hop.instance.clone()).collect(),
            rules: words(&chain.rules),
            return_rules: words(&chain.effective_return_rules()),
            state: all_up(chain_ports(chain).iter().map(|port| host.port_state(port))),
        };
        model.chains.iter().map(status).collect()
    }

    fn uplinks(&self) -> Vec<UplinkStatus> {
        lock(&self.host).uplink_statuses()
    }

    fn stats(&self) -> Stats {
        let model = self.model();
        let (mut stats, sockets) = {
            let host = lock(&self.host);
            let mut stats = host.stats();
            stats.chains = model
                .chains
                .iter()
                .map(|(name, chain)| chain_stats(&host, name, chain, &stats.ports))
                .collect();
            (stats, host.control_sockets())
        };
        // The NFs are asked without the lock: one that does not answer holds up nobody else.
        for (name, socket) in sockets {
            if let Some(instance) = stats
                .instances
                .iter_mut()
                .find(|instance| instance.name == name)
            {
                instance.metrics = host::nf_metrics(&socket);
            }
        }
        stats
    }

    fn events(&self, since: u64) -> EventPage {
        lock(&self.host).events().since(since)
    }

    fn newest_event(&self) -> watch::Receiver<u64> {
        lock(&self.host).newest_event()
    }

    fn logs(&self, instance: &str, since: u64, tail: usize) -> Result<Logs, Problem> {
        let lines = lock(&self.host).log_lines(instance, since, tail);
        let (lines, next) = lines
            .ok_or_else(|| Self::no_instance(instance))?
            .map_err(|error| Problem::failed(format!("reading the log of {instance}: {error}")))?;
        Ok(Logs { lines, next })
    }

    fn command(&self, instance: &str, command: CommandRequest) -> Result<CommandResponse, Problem> {
        let socket = lock(&self.host)
            .control_socket(instance)
            .ok_or_else(|| Self::no_instance(instance))?;
        let output = host::nf_command(&socket, &command.name, &command.args)
            .map_err(|error| Problem::bad_request(format!("{instance}: {error:#}")))?;
        Ok(CommandResponse { output })
    }

    fn restart(&self, instance: &str) -> Result<(), Problem> {
        lock(&self.host)
            .restart(instance)
            .map_err(|error| match error.kind {
                PlatformErrorKind::NotFound => Self::no_instance(instance),
                _ => Problem::failed(error.to_string()),
            })
    }

    fn capture(&self, port: &str) -> Result<mpsc::Receiver<Vec<u8>>, Problem> {
        let port: PortRef = port
            .parse()
            .map_err(|error| Problem::bad_request(format!("{error}")))?;
        host::capture(&self.host, &port)
    }

    fn doctor(&self) -> DoctorReport {
        doctor(&lock(&self.host).data_plane())
    }
}

/// Checks the host, from within the running daemon.
fn doctor(data_plane: &[String]) -> DoctorReport {
    let mut checks = vec![Check {
        name: "switch".to_owned(),
        status: CheckStatus::Ok,
        detail: data_plane.join("; "),
        remedy: String::new(),
    }];
    checks.extend(nfluid_sandbox::probe().into_iter().map(Check::from));
    DoctorReport { checks }
}

fn all_up(mut states: impl Iterator<Item = PortState>) -> PortState {
    if states.all(|state| state == PortState::Up) {
        PortState::Up
    } else {
        PortState::Down
    }
}

/// Every port that a chain's frames go through.
fn chain_ports(chain: &Chain) -> Vec<PortRef> {
    let hops = chain
        .via
        .iter()
        .flat_map(|hop| [hop.input_port(), hop.output_port()]);
    [chain.from.clone()]
        .into_iter()
        .chain(hops)
        .chain([chain.to.clone()])
        .collect()
}

/// What entered a chain: what its first, and backwards its last, NF received; and what waits in the
/// rings on its way.
fn chain_stats(
    host: &crate::host::Host,
    name: &str,
    chain: &Chain,
    ports: &[PortStats],
) -> ChainStats {
    let received =
        |port: Option<PortRef>| port.map_or(0, |port| host.counters_of(&port).rx_packets);
    let waiting = |receivers: &[PortRef]| {
        let rings = receivers.iter().map(|receiver| {
            let name = receiver.to_string();
            let port = ports.iter().find(|port| port.name == name)?;
            port.rx_ring_used.map(u64::from)
        });
        rings.sum()
    };
    let inputs = chain.via.iter().map(|hop| hop.input_port());
    let forward: Vec<PortRef> = inputs.chain([chain.to.clone()]).collect();
    let outputs = chain.via.iter().map(|hop| hop.output_port());
    let back: Vec<PortRef> = outputs.chain([chain.from.clone()]).collect();
    ChainStats {
        name: name.to_owned(),
        forward_packets: received(chain.via.first().map(|hop| hop.input_port())),
        return_packets: received(chain.via.last().map(|hop| hop.output_port())),
        forward_waiting: waiting(&forward),
        return_waiting: waiting(&back),
    }
}
