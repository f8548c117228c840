//! The services that the life of instances needs from the daemon.

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

    /// Returns the runtime for the isolation that `spec` asks for.
    ///
    /// # Errors
    /// This daemon has no such runtime.
    fn runtime(&self, spec: &InstanceSpec) -> Result<Arc<dyn Runtime>, PlatformError>;

    /// Returns the recipient of events.
    fn events(&self) -> Arc<dyn Events>;

    /// Returns the instances at the other ends of an instance's links, by port.
    fn link_peers(&self, name: &str, spec: &InstanceSpec) -> Vec<Option<String>>;

    /// Checks that frames can be led past an instance.
    ///
    /// # Errors
    /// Returns the reason why they cannot.
    fn check_bypass(&self, name: &str) -> Result<(), PlatformError>;

    /// Leads frames past an instance.
    ///
    /// # Errors
    /// Frames go as before.
    fn begin_bypass(&mut self, name: &str) -> Result<(), PlatformError>;

    /// Leads frames to an instance again.
    ///
    /// # Errors
    /// Returns the error of the first operation that was refused. The other operations are done.
    fn end_bypass(&mut self, name: &str) -> Result<(), PlatformError>;

    /// Makes the switch, or all senders, wake an instance, after its senders may have changed.
    fn choose_doorbells_of(&self, name: &str);

    /// Does the same for the peers of an instance, which may hold other doorbells than before.
    fn choose_doorbells_of_peers(&self, name: &str);

    /// Returns the ports of instances that send to a port. `None`: not known yet.
    fn senders_to(&self, port: &PortRef) -> Option<Vec<u32>>;

    /// Returns the tables by which the switch divides flows.
    fn flow_tables(&self) -> Arc<dyn FlowTables>;

    /// Returns the file that records a division of an instance's flows while the division is under way.
    fn scaling_note(&self, name: &str) -> PathBuf;

    /// Returns the instances for which such a file exists.
    fn scaling_notes(&self) -> Vec<String>;

    /// Returns true if an instance is one of several members, or has further members.
    fn is_one_of_several(&self, name: &str) -> bool;

    /// Makes an I/O thread do the system calls of an instance.
    ///
    /// # Errors
    /// The instance makes its calls itself, or the previous I/O thread goes on.
    fn assign_io(&mut self, name: &str, model: IoModel) -> anyhow::Result<()>;

    /// Takes an instance that has ended away from its I/O thread.
    fn release(&mut self, name: &str);

    /// Stops leading a client's frames to the instance that was created for the client.
    fn dismiss(&mut self, name: &str);

    /// Removes an instance from the wiring, and adds its counts to the first member.
    fn forget_wires(&mut self, name: &str);

    /// Gives I/O threads the CPU weight of the instances that they work for.
    fn set_io_weights(&self);
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

/// Locks a table, or the daemon with all its tables. A thread that panicked while it held the lock has left consistent
/// tables: they change in single steps.
pub fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
