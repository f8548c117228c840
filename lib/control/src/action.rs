//! The steps of a plan, each of which can be undone.

use crate::congestion::Congestion;
use crate::group::Group;
use crate::health::Health;
use crate::inventory::Ways;
use crate::io::{IoModel, IoSettings};
use crate::model::{PortRef, Restart, Switch};
use crate::pool::Pools;
use crate::spec::{InstanceSpec, Resources, UplinkSpec};
use crate::wake::{self, Wake};
use crate::wiring::Destination;
use serde_json::Value;
use std::fmt;

/// One step. It carries what was there before, so that it can be undone.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Makes a group of tenants, in a group that is there.
    CreateGroup {
        /// Its name.
        name: String,
        /// What to make.
        spec: Group,
    },
    /// Changes a group while its instances run, also which group it is in.
    ChangeGroup {
        /// Its name.
        name: String,
        /// As it is.
        old: Group,
        /// As it shall be.
        new: Group,
    },
    /// Removes a group that nothing is in any more.
    RemoveGroup {
        /// Its name.
        name: String,
        /// As it was.
        spec: Group,
    },
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
    /// Starts another instance on the ports of one, which hands them over: they stay wired, and no frame is lost.
    UpgradeInstance {
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
    /// Changes when a running instance that sleeps is woken.
    SetWake {
        /// The instance.
        name: String,
        /// As it is.
        old: Option<Wake>,
        /// As it shall be.
        new: Option<Wake>,
    },
    /// Changes how a running instance is looked after.
    SetHealth {
        /// The instance.
        name: String,
        /// As it is.
        old: Option<Health>,
        /// As it shall be.
        new: Option<Health>,
    },
    /// Changes the place of a fast path among those of its interfaces, between two packets.
    SetOrder {
        /// The instance.
        name: String,
        /// As it is.
        old: Option<u16>,
        /// As it shall be.
        new: Option<u16>,
    },
    /// Changes who executes the switch for a running instance: none of its frames is lost.
    SetIo {
        /// The instance.
        name: String,
        /// As it is.
        old: IoModel,
        /// As it shall be.
        new: IoModel,
    },
    /// Changes how I/O threads are, while they forward.
    SetIoSettings {
        /// As they are.
        old: IoSettings,
        /// As they shall be.
        new: IoSettings,
    },
    /// Changes who is told of congestion, and how.
    SetCongestion {
        /// As it is.
        old: Congestion,
        /// As it shall be.
        new: Congestion,
    },
    /// Changes which instances are one after the other in chains, for those who watch for congestion: a later one may hold up
    /// all before it.
    SetWays {
        /// As they are.
        old: Ways,
        /// As they shall be.
        new: Ways,
    },
    /// Changes which prepared instances are kept.
    SetPools {
        /// As they are.
        old: Pools,
        /// As they shall be.
        new: Pools,
    },
    /// Divides the flows of an instance among another number of its members, which all run: no frame is lost, and who gets
    /// a flow gets its state.
    Scale {
        /// The instance.
        name: String,
        /// Members that share its flows.
        old: u16,
        /// Members that shall share them.
        new: u16,
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
            CreateGroup { name, spec } => RemoveGroup { name, spec },
            RemoveGroup { name, spec } => CreateGroup { name, spec },
            ChangeGroup { name, old, new } => ChangeGroup {
                name,
                old: new,
                new: old,
            },
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
            UpgradeInstance { name, old, new } => UpgradeInstance {
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
            SetWake { name, old, new } => SetWake {
                name,
                old: new,
                new: old,
            },
            SetHealth { name, old, new } => SetHealth {
                name,
                old: new,
                new: old,
            },
            SetOrder { name, old, new } => SetOrder {
                name,
                old: new,
                new: old,
            },
            SetIo { name, old, new } => SetIo {
                name,
                old: new,
                new: old,
            },
            SetIoSettings { old, new } => SetIoSettings { old: new, new: old },
            SetCongestion { old, new } => SetCongestion { old: new, new: old },
            SetWays { old, new } => SetWays { old: new, new: old },
            SetPools { old, new } => SetPools { old: new, new: old },
            Scale { name, old, new } => Scale {
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
            Action::CreateGroup { name, .. } => write!(f, "create group {name}"),
            Action::ChangeGroup { name, .. } => write!(f, "change group {name}"),
            Action::RemoveGroup { name, .. } => write!(f, "remove group {name}"),
            Action::CreateSwitch { name, .. } => write!(f, "create switch {name}"),
            Action::UpdateSwitch { name, .. } => write!(f, "change switch {name}"),
            Action::RemoveSwitch { name, .. } => write!(f, "remove switch {name}"),
            Action::CreateUplink { name, spec } => {
                write!(f, "create uplink {name} on {}", spec.interface)
            }
            Action::RemoveUplink { name, .. } => write!(f, "remove uplink {name}"),
            Action::CreateInstance { name, .. } => write!(f, "create instance {name}"),
            Action::ReplaceInstance { name, .. } => write!(f, "replace instance {name}"),
            Action::UpgradeInstance { name, .. } => write!(f, "upgrade instance {name} in place"),
            Action::Reconfigure { name, .. } => write!(f, "reconfigure instance {name}"),
            Action::Resize { name, .. } => write!(f, "resize instance {name}"),
            Action::SetRestart { name, .. } => write!(f, "change restart policy of {name}"),
            Action::SetWake { name, new, .. } => {
                write!(f, "wake instance {name} {}", wake::told(*new))
            }
            Action::SetHealth {
                name,
                new: Some(health),
                ..
            } => write!(f, "look after instance {name} {health}"),
            Action::SetHealth { name, .. } => write!(f, "look after instance {name} no more"),
            Action::SetOrder {
                name,
                new: Some(order),
                ..
            } => write!(f, "move instance {name} to place {order} of its interfaces"),
            Action::SetOrder { name, .. } => {
                write!(f, "have instance {name} alone on its interfaces")
            }
            Action::SetIo { name, old, new } => {
                write!(f, "move I/O of instance {name} from {old} to {new}")
            }
            Action::SetIoSettings { .. } => f.write_str("change settings of I/O threads"),
            Action::SetCongestion { .. } => f.write_str("change congestion signals"),
            Action::SetWays { .. } => f.write_str("watch chains for congestion"),
            Action::SetPools { .. } => f.write_str("change the pools of shells"),
            Action::Scale { name, old, new } => {
                write!(
                    f,
                    "divide the flows of instance {name} among {new} instead of {old}"
                )
            }
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
