//! The facts about instances and switches that the wiring needs.

use nfluid_control::model::{PortRef, Switch};
use nfluid_control::quantity::Mac;
use std::ops::Range;

/// The ports and switches that are there.
pub trait Ports {
    /// The numbers of a port's queues; `None`: there is no such port.
    fn queues(&self, port: &PortRef) -> Option<Range<u32>>;

    /// The names of an instance's ports; `None`: there is no such instance.
    fn names(&self, instance: &str) -> Option<Vec<&str>>;

    /// The address of an instance's port.
    fn address(&self, port: &PortRef) -> Option<Mac>;

    /// The instance whose doorbell the owner of a port was given for that port.
    fn rings(&self, port: &PortRef) -> Option<&str>;

    /// Returns true if an instance is one of several members among which flows are divided.
    fn is_member(&self, instance: &str) -> bool;

    /// Returns true if the NIC of an uplink is to classify.
    fn steers(&self, uplink: &str) -> bool;

    /// The number and limits of a switch; `None`: there is no such switch.
    fn switch(&self, name: &str) -> Option<(u32, Switch)>;

    /// The number of a port's first queue.
    fn number(&self, port: &PortRef) -> Option<u32> {
        self.queues(port).map(|queues| queues.start)
    }
}
