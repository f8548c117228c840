//! Creation of instances: one [`Runtime`] for each kind of isolation.

use crate::workload::Workload;
use nfluid_control::group::Groups;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::stopwatch::Lap;
use std::sync::Arc;

/// The surroundings in which an instance is created.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The groups of tenants, as they will be when the creation is finished.
    pub groups: Arc<Groups>,
    /// The core that its placement chose.
    pub core: Option<u32>,
}

/// An instance that is to be created.
#[derive(Clone, Debug)]
pub struct PlannedInstance {
    /// Name of the instance.
    pub name: String,
    /// The specification from which it is made.
    pub spec: InstanceSpec,
    /// The surroundings in which it is made.
    pub site: Site,
    /// The instances at the other ends of its links, by port.
    pub peers: Vec<Option<String>>,
}

/// An instance that runs and is not in the table yet. Dropping this value removes the instance.
pub trait Prepared: Send {
    /// Returns the steps of its creation since the last call, with the time of each.
    fn take_laps(&mut self) -> Vec<Lap>;

    /// Returns the core that it was put on.
    fn core(&self) -> Option<u32>;

    /// Keeps the instance.
    ///
    /// # Errors
    /// The instance is not finished; its parts are removed.
    fn keep(self: Box<Self>) -> anyhow::Result<Box<dyn Workload>>;
}

/// The result of preparing an instance: its name, and the instance or the error.
pub type Outcome = (String, anyhow::Result<Box<dyn Prepared>>);

/// Instances that a plan is about to create, for which all steps that need the host's lock are done.
pub trait Batch: Send {
    /// Does the other steps for all of them, without the host's lock.
    fn complete(self: Box<Self>) -> Vec<Outcome>;
}

/// An instance of an earlier daemon that was taken over.
pub struct Adopted {
    /// The instance.
    pub workload: Box<dyn Workload>,
    /// Number of lost frames: the earlier daemon was putting them into the instance's rings when it ended.
    pub lost: u64,
}

/// Makes instances of one kind of isolation.
pub trait Runtime: Send + Sync {
    /// Announces the instances that a plan is going to create, before [`Runtime::prepare`] is called for the new
    /// ones.
    fn plan(&self, coming: &[&InstanceSpec]);

    /// Begins all instances that a plan creates. A failure of one of them is its outcome.
    fn prepare(&self, coming: Vec<PlannedInstance>) -> Box<dyn Batch>;

    /// Creates one instance at once.
    ///
    /// # Errors
    /// All parts of the instance were removed.
    fn start(&self, coming: PlannedInstance) -> anyhow::Result<Box<dyn Prepared>>;

    /// Creates the doorbell of an instance that is to replace another one: a peer that starts earlier is given this
    /// doorbell.
    ///
    /// # Errors
    /// A file cannot be created.
    fn make_doorbell(&self, name: &str) -> anyhow::Result<()>;

    /// Takes over an instance of an earlier daemon that matches `spec`.
    ///
    /// # Errors
    /// The instance does not exist, or does not match.
    fn adopt(&self, name: &str, spec: &InstanceSpec) -> anyhow::Result<Adopted>;
}
