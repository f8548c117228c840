//! How instances come to be: one [`Runtime`] for each kind of isolation.

use crate::workload::Workload;
use nfluid_control::group::Groups;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::stopwatch::Lap;
use std::sync::Arc;

/// Where an instance is made.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The groups of tenants as they are when it is finished.
    pub groups: Arc<Groups>,
    /// The core that its placement puts it on.
    pub core: Option<u32>,
}

/// An instance that is to be made.
#[derive(Clone, Debug)]
pub struct Coming {
    /// Name of the instance.
    pub name: String,
    /// What it is made from.
    pub spec: InstanceSpec,
    /// Where it is made.
    pub site: Site,
    /// The instances at the other ends of its links, by port.
    pub peers: Vec<Option<String>>,
}

/// An instance that runs and belongs to nobody yet. When this is dropped, the instance is taken back.
pub trait Prepared: Send {
    /// Steps of its making that were not taken before, and when each was done.
    fn take_laps(&mut self) -> Vec<Lap>;

    /// The core that it was put on.
    fn core(&self) -> Option<u32>;

    /// The instance, which stays from now on.
    ///
    /// # Errors
    /// It is not finished; what there is of it is taken back.
    fn keep(self: Box<Self>) -> anyhow::Result<Box<dyn Workload>>;
}

/// An instance of that name, or why it could not be prepared.
pub type Outcome = (String, anyhow::Result<Box<dyn Prepared>>);

/// Instances that a plan is about to make, all of which have what takes the lock of the host.
pub trait Batch: Send {
    /// Does the rest for all of them, without the lock of the host.
    fn complete(self: Box<Self>) -> Vec<Outcome>;
}

/// An instance of an earlier daemon that was taken over.
pub struct Adopted {
    /// The instance.
    pub workload: Box<dyn Workload>,
    /// Frames that are lost: the earlier daemon was putting them into its rings when it ended.
    pub lost: u64,
}

/// Makes instances of one kind of isolation.
pub trait Runtime: Send + Sync {
    /// Notes the instances that a plan is going to make, before [`Runtime::prepare`] is called for those that are new.
    fn plan(&self, coming: &[&InstanceSpec]);

    /// Begins all instances that a plan makes. What fails for one of them is its outcome.
    fn prepare(&self, coming: Vec<Coming>) -> Box<dyn Batch>;

    /// Makes one instance at once.
    ///
    /// # Errors
    /// Nothing of it is left.
    fn start(&self, coming: Coming) -> anyhow::Result<Box<dyn Prepared>>;

    /// Makes the doorbell of an instance that is to take the place of another one: a peer that starts earlier is given it.
    ///
    /// # Errors
    /// A file cannot be made.
    fn make_doorbell(&self, name: &str) -> anyhow::Result<()>;

    /// Takes over an instance of an earlier daemon, which is to be as `spec` says.
    ///
    /// # Errors
    /// The instance is not there, or not as it is to be.
    fn adopt(&self, name: &str, spec: &InstanceSpec) -> anyhow::Result<Adopted>;
}
