//! The steps of a plan, each of which can be undone.

use crate::diff::Diff;
use crate::group::Group;
use crate::model::{PortRef, Switch};
use crate::setting::{PlatformSetting, Setting};
use crate::spec::{InstanceSpec, UplinkSpec};
use crate::wiring::Destination;
use std::fmt;

/// A step of a plan. A step carries the former value as well, so that it can be undone.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Changes a group of tenants while its instances run, including the group that it is in. The parent of a new
    /// group exists already; a group that is removed is empty.
    Group(Diff<Group>),
    /// Changes a switch while frames pass. A switch that is removed has no ports.
    Switch(Diff<Switch>),
    /// Creates an uplink without a destination, or removes one without incoming frames. An uplink is never changed.
    Uplink(Diff<UplinkSpec>),
    /// Creates an instance whose ports have no destination yet; removes an instance to which no frames go; or
    /// replaces an instance, while its ports have no destination.
    Instance(Diff<Box<InstanceSpec>>),
    /// Starts another instance on the ports of one that hands them over. The ports stay wired, and no frame is lost.
    Upgrade {
        /// The instance.
        name: String,
        /// As it was.
        old: Box<InstanceSpec>,
        /// As it shall be.
        new: Box<InstanceSpec>,
    },
    /// Changes a setting of a running instance.
    Set {
        /// The instance.
        name: String,
        /// As it is.
        old: Setting,
        /// As it shall be.
        new: Setting,
    },
    /// Changes the place of a fast path among those of its interfaces, between two packets.
    Order {
        /// The instance.
        name: String,
        /// As it is.
        old: Option<u16>,
        /// As it shall be.
        new: Option<u16>,
    },
    /// Changes a setting of the platform.
    Platform {
        /// As it is.
        old: PlatformSetting,
        /// As it shall be.
        new: PlatformSetting,
    },
    /// Divides the flows of an instance among another number of its members, which all run. No frame is lost, and a
    /// member that gains a flow gets its state.
    Scale {
        /// The instance.
        name: String,
        /// Members that share its flows.
        old: u16,
        /// Members that shall share them.
        new: u16,
    },
    /// Waits until instances have passed on the frames that were sent to them: they get no others, and lose their ports next.
    Drain {
        /// The instances.
        instances: Vec<String>,
    },
    /// Changes the destination of a port's frames, in one step: no frame is lost.
    Wire {
        /// The port.
        port: PortRef,
        /// The present destination; absent: none.
        old: Option<Destination>,
        /// The new destination; absent: none.
        new: Option<Destination>,
    },
}

impl Action {
    /// Returns the step that creates an instance.
    pub fn create_instance(name: impl Into<String>, spec: InstanceSpec) -> Self {
        Action::Instance(Diff::create(name, Box::new(spec)))
    }

    /// Removes an instance.
    pub fn remove_instance(name: impl Into<String>, spec: InstanceSpec) -> Self {
        Action::Instance(Diff::remove(name, Box::new(spec)))
    }

    /// Returns the instance that this step creates, with its specification.
    pub fn created(&self) -> Option<(&str, &InstanceSpec)> {
        match self {
            Action::Instance(Diff {
                name,
                old: None,
                new: Some(spec),
            }) => Some((name, spec)),
            _ => None,
        }
    }

    /// Returns the instance that this step puts in place of another one, with its specification.
    pub fn replaced(&self) -> Option<(&str, &InstanceSpec)> {
        match self {
            Action::Instance(Diff {
                name,
                old: Some(_),
                new: Some(spec),
            }) => Some((name, spec)),
            _ => None,
        }
    }

    /// Returns the step that undoes this one.
    #[must_use]
    pub fn inverse(&self) -> Action {
        use Action::*;
        match self.clone() {
            Group(diff) => Group(diff.inverse()),
            Switch(diff) => Switch(diff.inverse()),
            Uplink(diff) => Uplink(diff.inverse()),
            Instance(diff) => Instance(diff.inverse()),
            Upgrade { name, old, new } => Upgrade {
                name,
                old: new,
                new: old,
            },
            Set { name, old, new } => Set {
                name,
                old: new,
                new: old,
            },
            Order { name, old, new } => Order {
                name,
                old: new,
                new: old,
            },
            Platform { old, new } => Platform { old: new, new: old },
            Scale { name, old, new } => Scale {
                name,
                old: new,
                new: old,
            },
            Drain { instances } => Drain { instances },
            Wire { port, old, new } => Wire {
                port,
                old: new,
                new: old,
            },
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Group(diff) => write!(f, "{} group {}", diff.verb("change"), diff.name),
            Action::Switch(diff) => write!(f, "{} switch {}", diff.verb("change"), diff.name),
            Action::Uplink(Diff {
                name,
                old: None,
                new: Some(spec),
            }) => write!(f, "create uplink {name} on {}", spec.interface),
            Action::Uplink(diff) => write!(f, "{} uplink {}", diff.verb("change"), diff.name),
            Action::Instance(diff) => {
                write!(f, "{} instance {}", diff.verb("replace"), diff.name)
            }
            Action::Upgrade { name, .. } => write!(f, "upgrade instance {name} in place"),
            Action::Set { name, old, new } => new.describe(f, name, old),
            Action::Order {
                name,
                new: Some(order),
                ..
            } => write!(f, "move instance {name} to place {order} of its interfaces"),
            Action::Order { name, .. } => {
                write!(f, "have instance {name} alone on its interfaces")
            }
            Action::Platform { new, .. } => new.fmt(f),
            Action::Scale { name, old, new } => {
                write!(
                    f,
                    "divide the flows of instance {name} among {new} instead of {old}"
                )
            }
            Action::Drain { instances } => {
                write!(f, "wait for frames in {}", instances.join(", "))
            }
            Action::Wire {
                port,
                new: Some(to),
                ..
            } => write!(f, "connect port {port} to {to}"),
            Action::Wire { port, .. } => write!(f, "disconnect port {port}"),
        }
    }
}
