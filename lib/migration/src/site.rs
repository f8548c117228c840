//! The host, as the order of a move sees it: a daemon implements these traits, and tests do in memory.

use nfluid_api::types::{ObjectName, Problem};
use nfluid_control::events::Events;
use nfluid_control::model::Deployment;
use nfluid_formats::message::{Address, Taken};
use nfluid_sandbox::ProcessIdentity;
use serde_json::Value;

/// A host: its desired state and its instances.
pub trait Site: Sync {
    /// The instances of the host.
    type Instances: Instances;

    /// Returns the instances of the host.
    fn instances(&self) -> &Self::Instances;

    /// Returns the desired state.
    fn deployment(&self) -> Deployment;

    /// Returns the desired state after the change that is being carried out, if there is one.
    fn settled_deployment(&self) -> Deployment;

    /// Returns a document with one instance of the deployment `all`, and with its flavor if the flavor is the deployment's own.
    ///
    /// # Errors
    /// The instance does not exist, or cannot leave as a single instance.
    fn document_of(&self, all: &Value, name: &str) -> Result<Value, Problem>;

    /// Creates the instance `name` from a document. The returned function waits until the change would survive a power
    /// failure.
    ///
    /// # Errors
    /// The instance was not created.
    fn make(
        &self,
        name: &str,
        document: &mut Value,
    ) -> Result<impl FnOnce() -> Result<(), Problem>, Problem>;

    /// Merges a document with the links, chains and attachments of an instance into the desired state.
    ///
    /// # Errors
    /// The objects were not changed.
    fn apply(&self, document: &Value) -> Result<(), Problem>;

    /// Deletes objects, and the links of the instances among them.
    ///
    /// # Errors
    /// The objects were not deleted.
    fn delete(&self, objects: Vec<ObjectName>) -> Result<(), Problem>;
}

/// The instances of a host.
pub trait Instances: Sync {
    /// An instance that stands still.
    type Stopped: Stopped;
    /// The rings of an instance.
    type Rings: Rings;
    /// As long as this value lives, the host prepares no shells.
    type PoolPause;

    /// Returns where events are reported.
    fn events(&self) -> &dyn Events;

    /// Leaves the cores to an instance that arrives: no shells are prepared meanwhile.
    fn pause_pool(&self) -> Self::PoolPause;

    /// Returns the process of an instance, if the process runs.
    fn process_of(&self, name: &str) -> Option<ProcessIdentity>;

    /// Notes that one host has the instance for certain: requests about the instance are no longer refused.
    fn settle(&self, name: &str);

    /// Notes that either host may have the instance: requests about the instance are refused.
    fn unsettle(&self, name: &str);

    /// Notes that the other host has the instance: requests about the instance are refused, but for its removal.
    fn let_go(&self, name: &str);

    /// Begins a departure: checks that the instance can be moved, and calls [`Instances::unsettle`].
    ///
    /// # Errors
    /// The instance cannot be moved.
    fn begin_departure(&self, name: &str) -> Result<ProcessIdentity, Problem>;

    /// Returns the state of an instance, which goes on.
    ///
    /// # Errors
    /// The instance does not answer.
    fn state_now(&self, name: &str) -> anyhow::Result<Vec<u8>>;

    /// Stops an instance.
    ///
    /// # Errors
    /// The instance goes on.
    fn stop(&self, name: &str) -> anyhow::Result<Leaving<Self::Stopped>>;

    /// Lets an instance go on that stands still for a move, if there is one.
    fn resume(&self, name: &str);

    /// Lets an instance go on that was paused, if there is one.
    fn unpause(&self, name: &str);

    /// Pauses an instance; its frames are dropped.
    ///
    /// # Errors
    /// The instance goes on.
    fn pause(&self, name: &str) -> anyhow::Result<()>;

    /// Returns how many frames were dropped since the instance was made because its rings were full.
    fn frames_dropped(&self, name: &str) -> u64;

    /// Returns how many frames an instance holds that stands still for a move.
    fn frames_left(&self, name: &str) -> u64;

    /// Closes the ports of an instance that was just made, and calls [`Instances::unsettle`].
    ///
    /// # Errors
    /// The instance has ended.
    fn close_ports(&self, name: &str) -> anyhow::Result<ProcessIdentity>;

    /// Opens the ports of an instance that arrives. Calls `record` first, with nothing in between.
    ///
    /// # Errors
    /// The instance has another process than `process`, or `record` fails. The ports stay closed.
    fn open_ports(
        &self,
        name: &str,
        process: &ProcessIdentity,
        record: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()>;

    /// Opens the ports of an instance that arrived when an earlier daemon ran.
    fn reopen_ports(&self, name: &str);

    /// Has an instance that arrives take in a state and forget the state, so that the memory is there for the final one.
    ///
    /// # Errors
    /// The instance refuses the state.
    fn rehearse(&self, name: &str, state: &[u8]) -> anyhow::Result<()>;

    /// Has an instance that arrives take in its state.
    ///
    /// # Errors
    /// The instance refuses the state.
    fn take_in(&self, name: &str, state: Vec<u8>) -> anyhow::Result<Taken>;

    /// Returns the rings of an instance with this process.
    ///
    /// # Errors
    /// The instance has ended.
    fn rings(&self, name: &str, process: &ProcessIdentity) -> anyhow::Result<Self::Rings>;

    /// Returns the addresses of an instance's own ports.
    fn addresses_of(&self, name: &str) -> Vec<Address>;

    /// Has an instance tell the network that addresses are behind its ports.
    ///
    /// # Errors
    /// The instance does not answer.
    fn announce(&self, name: &str, addresses: &[Address]) -> anyhow::Result<()>;
}

/// An instance that has stopped for a move, and its state.
pub struct Leaving<S> {
    /// The instance.
    pub stopped: S,
    /// The state of its NF.
    pub state: Vec<u8>,
    /// The addresses of recent frames for the instance.
    pub addresses: Vec<Address>,
}

/// An instance that stands still for a move. Dropped before [`Stopped::hold`], the instance goes on.
pub trait Stopped {
    /// Keeps the instance from going on by itself.
    ///
    /// # Errors
    /// The instance has ended, or has gone on.
    fn hold(&mut self) -> anyhow::Result<()>;

    /// Has the instance forward the frames that wait, and those that still come: see [`Stopped::next`].
    ///
    /// # Errors
    /// The instance has ended.
    fn forward(&mut self) -> anyhow::Result<()>;

    /// Returns what the instance forwards next.
    ///
    /// # Errors
    /// The instance forwards something that is no frame, or does not end.
    fn next(&mut self) -> anyhow::Result<Forwarded>;

    /// Has the instance forward the frames that wait now, and no more.
    ///
    /// # Errors
    /// The instance has ended.
    fn end(&mut self) -> anyhow::Result<()>;
}

/// Something that an instance that stands still forwards.
#[derive(Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// Whole frames: port, length and bytes of each.
    Frames(Vec<u8>),
    /// All frames that waited when forwarding began have been forwarded. Instances of older versions do not say so.
    AllThatWaited,
    /// No frame for a while.
    Nothing,
    /// No frame will come any more.
    End,
}

/// The rings of an instance that arrives.
pub trait Rings {
    /// Puts frames into the rings, in their order, as soon as there is room.
    ///
    /// # Errors
    /// The bytes are no frames.
    fn put(&self, frames: &[u8]) -> anyhow::Result<Taken>;
}
