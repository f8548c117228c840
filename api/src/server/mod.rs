//! The interface that a daemon implements for the HTTP API, and the router that serves HTTP.

mod access;
mod change;
mod function;
mod handlers;
mod life;
mod limits;
mod metrics;
mod openapi;
mod problems;
mod query;
pub mod remote;
mod respond;
mod router;
mod shared;
mod stream;

pub use access::{Caller, Clients, Role};
pub use limits::{BODY_BYTES_MAX, CONCURRENT_REQUESTS_MAX, EVENT_WAIT_MAX, REQUEST_TIME_MAX};
pub use metrics::prometheus;
pub use openapi::document;
pub use router::router;

use crate::types::{
    ApplyRequest, ApplyResponse, Capacity, ChainStatus, CommandRequest, CommandResponse,
    CreateRequest, DeleteRequest, DoctorReport, EventPage, FunctionReport, FunctionRequest,
    GroupStatus, Health, InstanceSnapshot, InstanceStatus, IoStatus, LinkStatus, Logs,
    MigrateReport, MigrateRequest, PauseRequest, PoolStatus, PortStatus, Problem, RestoreReport,
    RestoreRequest, SavedInstance, ScaleReport, ScaleRequest, SecurityGroupStatus, Stats,
    SwitchStatus, TemplateStatus, Took, UpgradeReport, UplinkStatus, Version,
};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

/// The logic behind the API. Methods may block: the router calls them on threads for blocking calls, several at a time.
pub trait Server: Send + Sync + 'static {
    /// Returns the version of the daemon.
    fn version(&self) -> Version;
    /// Returns the capacity of the host, and its promised part.
    fn capacity(&self) -> Capacity;

    /// Returns the health of the daemon: all desired objects exist, or some are missing.
    fn health(&self) -> Health;

    /// Validates and applies a deployment.
    ///
    /// # Errors
    /// [`Problem::invalid`] with every error of the document, [`Problem::failed`] when the change was rolled back,
    /// [`Problem::not_saved`] when the state cannot be saved. Nothing was changed.
    fn apply(&self, request: ApplyRequest) -> Result<ApplyResponse, Problem>;

    /// Creates one instance with links of its ports. An existing instance is changed to what the request describes.
    ///
    /// # Errors
    /// As for [`Server::apply`].
    fn create(&self, name: &str, request: CreateRequest) -> Result<ApplyResponse, Problem> {
        self.apply(request.document(name))
    }

    /// Removes objects from the deployment.
    ///
    /// # Errors
    /// As for [`Server::apply`]; also if other objects still use the object.
    fn delete(&self, request: DeleteRequest) -> Result<ApplyResponse, Problem>;

    /// Returns the deployment in force, in the syntax of the user's file.
    fn deployment(&self) -> Value;

    /// Returns all instances.
    fn instances(&self) -> Vec<InstanceStatus>;

    /// Returns one instance, in a time that does not depend on the number of other instances; `None` if it does not exist.
    fn instance(&self, name: &str) -> Option<InstanceStatus> {
        self.instances()
            .into_iter()
            .find(|found| found.name == name)
    }

    /// Returns all groups of tenants.
    fn groups(&self) -> Vec<GroupStatus>;

    /// Returns all ports of instances.
    fn ports(&self) -> Vec<PortStatus>;

    /// Returns all switches.
    fn switches(&self) -> Vec<SwitchStatus>;

    /// Returns all security groups.
    fn security_groups(&self) -> Vec<SecurityGroupStatus>;

    /// Returns all links.
    fn links(&self) -> Vec<LinkStatus>;

    /// Returns all chains.
    fn chains(&self) -> Vec<ChainStatus>;

    /// Returns all uplinks.
    fn uplinks(&self) -> Vec<UplinkStatus>;

    /// Returns the I/O threads.
    fn io(&self) -> IoStatus;

    /// Returns all pools of shells.
    fn pools(&self) -> Vec<PoolStatus>;
    /// Returns all templates.
    fn templates(&self) -> Vec<TemplateStatus>;

    /// Returns a snapshot of all counters and gauges.
    fn stats(&self) -> Stats;

    /// Returns a snapshot of one instance, in a time that does not depend on the number of other instances.
    ///
    /// # Errors
    /// The instance does not exist.
    fn instance_stats(&self, instance: &str) -> Result<InstanceSnapshot, Problem>;

    /// Returns the events after the position `since`, oldest first, as many as are kept.
    fn events(&self, since: u64) -> EventPage;

    /// Returns the position of the newest event; the value changes with each event.
    fn newest_event(&self) -> watch::Receiver<u64>;

    /// Returns log lines of an instance after the position `since`, at most the last `tail` lines. The logs of the latest instances that are gone
    /// are kept.
    ///
    /// # Errors
    /// The instance does not exist, and no log of it is kept.
    fn logs(&self, instance: &str, since: u64, tail: usize) -> Result<Logs, Problem>;

    /// Runs a command of an instance's NF.
    ///
    /// # Errors
    /// The instance or the command does not exist, or the instance does not respond.
    fn command(&self, instance: &str, command: CommandRequest) -> Result<CommandResponse, Problem>;

    /// Ends and starts an instance.
    ///
    /// # Errors
    /// The instance does not exist, or does not start.
    fn restart(&self, instance: &str) -> Result<(), Problem>;

    /// Pauses an instance. Frames for the instance are treated as the request says.
    ///
    /// # Errors
    /// The instance does not exist, does not run, or its frames cannot be treated in this way.
    fn pause(&self, instance: &str, request: PauseRequest) -> Result<Took, Problem>;

    /// Resumes a paused instance.
    ///
    /// # Errors
    /// The instance does not exist, or is not paused.
    fn unpause(&self, instance: &str) -> Result<Took, Problem>;

    /// Replaces the running version of an instance's NF by the installed one, with ports and state.
    ///
    /// # Errors
    /// The instance does not exist, or the running version continues, with the reason.
    fn upgrade(&self, instance: &str) -> Result<UpgradeReport, Problem>;

    /// Divides the flows of an instance among another number of members; no frame is lost.
    ///
    /// # Errors
    /// The instance does not exist, or the number of members is unchanged, with the reason.
    fn scale(&self, instance: &str, request: ScaleRequest) -> Result<ScaleReport, Problem>;

    /// Moves an instance to another daemon, or keeps an instance here after a move with unknown outcome.
    ///
    /// # Errors
    /// The instance does not exist, or continues here, with the reason; or the other daemon does not report whether it
    /// has the instance.
    fn migrate(&self, instance: &str, request: MigrateRequest) -> Result<MigrateReport, Problem>;

    /// Saves the present state of an instance. The instance continues.
    ///
    /// # Errors
    /// The instance does not exist, or its program has no state that could be saved.
    fn save(&self, instance: &str) -> Result<SavedInstance, Problem>;

    /// Creates an instance from an image.
    ///
    /// # Errors
    /// The image is invalid or incomplete, or does not fit this host. Nothing was created.
    fn restore(&self, request: RestoreRequest) -> Result<RestoreReport, Problem>;

    /// Copies the frames of a port (`instance.port` or an uplink) as a pcap stream, file header
    /// first, until the receiver is dropped. Frames that the receiver is too slow for are left out.
    ///
    /// # Errors
    /// The port does not exist.
    fn capture(&self, port: &str) -> Result<mpsc::Receiver<Vec<u8>>, Problem>;

    /// Runs a program once, in an instance of its own, until the program ends or `client` hangs up.
    ///
    /// # Errors
    /// The program cannot run on this host, the limits are too high, or no instance can be created for it.
    fn run_function(
        &self,
        request: FunctionRequest,
        client: std::io::PipeReader,
    ) -> Result<FunctionReport, Problem>;

    /// Checks the host.
    fn doctor(&self) -> DoctorReport;

    /// Returns all metrics in Prometheus' text format.
    fn metrics(&self) -> String {
        prometheus(&self.stats())
    }
}
