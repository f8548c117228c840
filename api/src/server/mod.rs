//! What a daemon has to do to be reached by HTTP, and the router that speaks HTTP for it.

mod change;
mod handlers;
mod limits;
mod metrics;
mod openapi;
mod query;
mod respond;
mod router;
mod stream;

pub use limits::{BODY_BYTES_MAX, CONCURRENT_REQUESTS_MAX, EVENT_WAIT_MAX, REQUEST_TIME_MAX};
pub use metrics::prometheus;
pub use openapi::document;
pub use router::router;

use crate::types::{
    ApplyRequest, ApplyResponse, ChainStatus, CommandRequest, CommandResponse, DeleteRequest,
    DoctorReport, EventPage, Health, InstanceStatus, LinkStatus, Logs, PortStatus, Problem, Stats,
    SwitchStatus, UplinkStatus, Version,
};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

/// The logic behind the API. Methods may block: the router calls them on threads for that, several
/// at a time.
pub trait Server: Send + Sync + 'static {
    /// What answers.
    fn version(&self) -> Version;

    /// Whether everything desired is there.
    fn health(&self) -> Health;

    /// Validates and applies a deployment.
    ///
    /// # Errors
    /// [`Problem::invalid`] with every error of the document, [`Problem::failed`] when it was
    /// rolled back, [`Problem::not_saved`] when the state cannot be saved. Nothing was changed.
    fn apply(&self, request: ApplyRequest) -> Result<ApplyResponse, Problem>;

    /// Removes objects from the deployment.
    ///
    /// # Errors
    /// As for [`Server::apply`]; also when others still use the object.
    fn delete(&self, request: DeleteRequest) -> Result<ApplyResponse, Problem>;

    /// The deployment in force, in the syntax of the user's file.
    fn deployment(&self) -> Value;

    /// All instances.
    fn instances(&self) -> Vec<InstanceStatus>;

    /// All ports of instances.
    fn ports(&self) -> Vec<PortStatus>;

    /// All switches.
    fn switches(&self) -> Vec<SwitchStatus>;

    /// All links.
    fn links(&self) -> Vec<LinkStatus>;

    /// All chains.
    fn chains(&self) -> Vec<ChainStatus>;

    /// All uplinks.
    fn uplinks(&self) -> Vec<UplinkStatus>;

    /// All counters and gauges, at one moment.
    fn stats(&self) -> Stats;

    /// Events after the position `since`, oldest first, as many as are kept.
    fn events(&self, since: u64) -> EventPage;

    /// The position of the newest event; changes when one happens.
    fn newest_event(&self) -> watch::Receiver<u64>;

    /// Log lines of an instance after the position `since`, at most the last `tail`.
    ///
    /// # Errors
    /// There is no such instance.
    fn logs(&self, instance: &str, since: u64, tail: usize) -> Result<Logs, Problem>;

    /// Runs a command of an instance's NF.
    ///
    /// # Errors
    /// There is no such instance or command, or it does not answer.
    fn command(&self, instance: &str, command: CommandRequest) -> Result<CommandResponse, Problem>;

    /// Ends and starts an instance.
    ///
    /// # Errors
    /// There is no such instance, or it does not start.
    fn restart(&self, instance: &str) -> Result<(), Problem>;

    /// Copies the frames of a port (`instance.port` or an uplink) as a pcap stream, file header
    /// first, until the receiver is dropped. Frames that the receiver is too slow for are left out.
    ///
    /// # Errors
    /// There is no such port.
    fn capture(&self, port: &str) -> Result<mpsc::Receiver<Vec<u8>>, Problem>;

    /// Checks the host.
    fn doctor(&self) -> DoctorReport;

    /// All metrics in Prometheus' text format.
    fn metrics(&self) -> String {
        prometheus(&self.stats())
    }
}
