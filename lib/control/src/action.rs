//! The steps of a plan, each of which can be undone.

use crate::model::{PortRef, Restart, Switch};
use crate::spec::{InstanceSpec, Resources, UplinkSpec};
use crate::wiring::Destination;
use serde_json::Value;
use std::fmt;

/// One step. It carries what was there before, so that it can be undone.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Makes a switch.
    CreateSwitch {
        /// Its name.
        name: String,
        /// What to make.
        spec: Switch,
    },
    /// Changes a switch while frames pass.
    UpdateSwitch {
        /// Its name.
        name: String,
        /// As it is.
        old: Switch,
        /// As it shall be.
        new: Switch,
    },
    /// Removes a switch; no port is on it any more.
    RemoveSwitch {
        /// Its name.
        name: String,
        /// As it was.
        spec: Switch,
    },
    /// Makes an uplink, with no destination yet.
    CreateUplink {
        /// Its name.
        name: String,
        /// What to make.
        spec: UplinkSpec,
    },
    /// Removes an uplink; no frames go to it any more.
    RemoveUplink {
        /// Its name.
        name: String,
        /// As it was.
        spec: UplinkSpec,
    },
    /// Makes and starts an instance, its ports with no destination yet.
    CreateInstance {
        /// Its name.
        name: String,
        /// What to make.
        spec: Box<InstanceSpec>,
    },
    /// Stops an instance and starts another in its place; its ports have no destination meanwhile.
    ReplaceInstance {
        /// Its name.
        name: String,
        /// As it was.
        old: Box<InstanceSpec>,
        /// As it shall be.
        new: Box<InstanceSpec>,
    },
    /// Hands a running NF a new configuration.
    Reconfigure {
        /// The instance.
        name: String,
        /// The configuration in force.
        old: Value,
        /// The configuration to come.
        new: Value,
    },
    /// Changes what a running instance may use.
    Resize {
        /// The instance.
        name: String,
        /// As it is.
        old: Resources,
        /// As it shall be.
        new: Resources,
    },
    /// Changes what happens when an instance ends.
    SetRestart {
        /// The instance.
        name: String,
        /// As it is.
        old: Restart,
        /// As it shall be.
        new: Restart,
    },
    /// Stops and removes an instance; no frames go to it any more.
    RemoveInstance {
        /// Its name.
        name: String,
        /// As it was.
        spec: Box<InstanceSpec>,
    },
    /// Changes where a port's frames go, in one step: no frame is lost on the way.
    Wire {
        /// The port.
        port: PortRef,
        /// Where they go; absent: nowhere.
        old: Option<Destination>,
        /// Where they shall go; absent: nowhere.
        new: Option<Destination>,
    },
}

impl Action {
    /// The step that undoes this one.
    #[must_use]
    pub fn inverse(&self) -> Action {
        use Action::*;
        match self.clone() {
            CreateSwitch { name, spec } => RemoveSwitch { name, spec },
            RemoveSwitch { name, spec } => CreateSwitch { name, spec },
            CreateUplink { name, spec } => RemoveUplink { name, spec },
            RemoveUplink { name, spec } => CreateUplink { name, spec },
            CreateInstance { name, spec } => RemoveInstance { name, spec },
            RemoveInstance { name, spec } => CreateInstance { name, spec },
            UpdateSwitch { name, old, new } => UpdateSwitch {
                name,
                old: new,
                new: old,
            },
            ReplaceInstance { name, old, new } => ReplaceInstance {
                name,
                old: new,
                new: old,
            },
            Reconfigure { name, old, new } => Reconfigure {
                name,
                old: new,
                new: old,
            },
            Resize { name, old, new } => Resize {
                name,
                old: new,
                new: old,
            },
            SetRestart { name, old, new } => SetRestart {
                name,
                old: new,
                new: old,
            },
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
            Action::CreateSwitch { name, .. } => write!(f, "create switch {name}"),
            Action::UpdateSwitch { name, .. } => write!(f, "change switch {name}"),
            Action::RemoveSwitch { name, .. } => write!(f, "remove switch {name}"),
            Action::CreateUplink { name, spec } => {
                write!(f, "create uplink {name} on {}", spec.interface)
            }
            Action::RemoveUplink { name, .. } => write!(f, "remove uplink {name}"),
            Action::CreateInstance { name, .. } => write!(f, "create instance {name}"),
            Action::ReplaceInstance { name, .. } => write!(f, "replace instance {name}"),
            Action::Reconfigure { name, .. } => write!(f, "reconfigure instance {name}"),
            Action::Resize { name, .. } => write!(f, "resize instance {name}"),
            Action::SetRestart { name, .. } => write!(f, "change restart policy of {name}"),
            Action::RemoveInstance { name, .. } => write!(f, "remove instance {name}"),
            Action::Wire {
                port,
                new: Some(to),
                ..
            } => write!(f, "connect port {port} to {to}"),
            Action::Wire { port, .. } => write!(f, "disconnect port {port}"),
        }
    }
}
