//! What the life of instances needs of the daemon around it.

use crate::runtime::Runtime;
use crate::scaling::FlowTables;
use crate::table::Instances;
use nfluid_api::types::EventKind;
use nfluid_control::apply::PlatformError;
use nfluid_control::events::Events;
use nfluid_control::group::Groups;
use nfluid_control::io::IoModel;
use nfluid_control::model::PortRef;
use nfluid_control::spec::InstanceSpec;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The daemon, as the life of an instance sees it: the other instances, wires, I/O threads, limits and events.
pub trait Services {
    /// The host's instances.
    fn instances(&self) -> &Instances;

    /// The host's instances, to be changed.
    fn instances_mut(&mut self) -> &mut Instances;

    /// Groups of tenants.
    fn groups(&self) -> &Groups;

    /// The runtime that makes instances as `spec` has them isolated.
    ///
    /// # Errors
    /// This daemon has none.
    fn runtime(&self, spec: &InstanceSpec) -> Result<Arc<dyn Runtime>, PlatformError>;

    /// Where events are reported.
    fn events(&self) -> Arc<dyn Events>;

    /// The instances at the other ends of the links of an instance, by port.
    fn link_peers(&self, name: &str, spec: &InstanceSpec) -> Vec<Option<String>>;

    /// Checks that frames can be led past an instance.
    ///
    /// # Errors
    /// They cannot, with the reason.
    fn check_bypass(&self, name: &str) -> Result<(), PlatformError>;

    /// Leads frames past an instance.
    ///
    /// # Errors
    /// Frames go as before.
    fn begin_bypass(&mut self, name: &str) -> Result<(), PlatformError>;

    /// Leads frames to an instance again.
    ///
    /// # Errors
    /// The first operation that was refused. The others are done.
    fn end_bypass(&mut self, name: &str) -> Result<(), PlatformError>;

    /// Has the switch, or all senders, wake an instance: its senders may be others than before.
    fn choose_doorbells_of(&self, name: &str);

    /// The same for the peers of an instance: it may have been given other doorbells.
    fn choose_doorbells_of_peers(&self, name: &str);

    /// Ports of instances that send to a port; absent: not known yet.
    fn senders_to(&self, port: &PortRef) -> Option<Vec<u32>>;

    /// The tables by which the switch divides flows.
    fn flow_tables(&self) -> Arc<dyn FlowTables>;

    /// File in which the division of an instance's flows is written down while it is under way.
    fn scaling_note(&self, name: &str) -> PathBuf;

    /// Instances of which such a file is there.
    fn scaling_notes(&self) -> Vec<String>;

    /// Returns true if an instance is a member of one that has several, or has further members.
    fn is_one_of_several(&self, name: &str) -> bool;

    /// Has an I/O thread make the calls of an instance.
    ///
    /// # Errors
    /// The instance makes them itself, or who made them before goes on.
    fn entrust(&mut self, name: &str, model: IoModel) -> anyhow::Result<()>;

    /// Takes an instance that has ended from its I/O thread.
    fn release(&mut self, name: &str);

    /// Ends that frames of a client go to an instance that was made for the client.
    fn dismiss(&mut self, name: &str);

    /// Forgets what the wiring knows of an instance that goes, and leaves its counts to the first of its members.
    fn forget_wires(&mut self, name: &str);

    /// Gives I/O threads the weight of the instances for which they work.
    fn weigh_io(&self);
}

/// Reports an event of an instance.
pub(crate) fn report(
    services: &dyn Services,
    kind: EventKind,
    name: &str,
    message: impl Into<String>,
) {
    services.events().of_instance(kind, name, message.into());
}

/// Locks the daemon. A thread that panicked while it held the lock has left tables that are whole: they change in single steps.
pub fn lock<C>(host: &Mutex<C>) -> MutexGuard<'_, C> {
    host.lock().unwrap_or_else(PoisonError::into_inner)
}
