//! Ports of instances, and the names of ports.

use super::{Attachment, check_name};
use crate::interface::Interface;
use crate::quantity::{Mac, ValueError, serialize_as_text};
use ipnet::IpNet;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Maximum number of ports of an instance.
pub const PORTS_MAX: usize = 64;
/// The ports of an instance that names none.
pub const DEFAULT_PORTS: [&str; 2] = ["in", "out"];

/// A port of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Port {
    /// MAC address; absent: derived from the names of instance and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Largest IP packet in bytes; absent: [`DEFAULT_MTU`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Queues among which received frames are spread by flow, 1 ..= [`QUEUES_MAX`]; absent: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
    /// The interface that the port is; absent: it is a pair of rings.
    #[serde(flatten)]
    pub interface: Option<Interface>,
    /// Attaches the port to a switch.
    #[serde(flatten)]
    pub attachment: Option<Attachment>,
    /// The security groups that the port is in; absent: everything passes. In none of them: nothing passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// Addresses that the instance may use at a port with security groups, beside those of its interface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_addresses: Vec<IpNet>,
}

impl Port {
    /// Returns the addresses that the port itself says its instance has.
    pub fn addresses(&self) -> impl Iterator<Item = IpNet> + '_ {
        let interface = self.interface.iter();
        let own = interface.flat_map(|interface| &interface.addresses);
        let own = own.map(|net| IpNet::from(net.addr()));
        own.chain(self.allowed_addresses.iter().copied())
    }
}

/// Maximum number of queues of a port.
pub const QUEUES_MAX: u16 = 8;

/// MTU of a port that names none.
pub const DEFAULT_MTU: u16 = 1500;

/// The beginning of the names of uplinks' doorbells: no instance's name begins with it.
pub const UPLINK_DOORBELL: char = '+';

/// A port by its name: `wan` (an uplink) or `fw1.out` (an instance's port).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortRef {
    /// An uplink.
    Uplink(String),
    /// A port of an instance.
    Instance {
        /// The instance.
        instance: String,
        /// The port's name within the instance.
        port: String,
    },
}

impl PortRef {
    /// Returns the reference to `port` of `instance`.
    pub fn instance(instance: impl Into<String>, port: impl Into<String>) -> Self {
        PortRef::Instance {
            instance: instance.into(),
            port: port.into(),
        }
    }

    /// Returns the name of the doorbell that wakes who takes the frames of the port: an instance's name, or an uplink's behind
    /// [`UPLINK_DOORBELL`].
    pub fn doorbell(&self) -> String {
        match self {
            PortRef::Uplink(name) => format!("{UPLINK_DOORBELL}{name}"),
            PortRef::Instance { instance, .. } => instance.clone(),
        }
    }

    /// Returns the instance that owns the port; `None` for an uplink.
    pub fn owner(&self) -> Option<&str> {
        match self {
            PortRef::Uplink(_) => None,
            PortRef::Instance { instance, .. } => Some(instance),
        }
    }
}

impl fmt::Display for PortRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortRef::Uplink(name) => f.write_str(name),
            PortRef::Instance { instance, port } => write!(f, "{instance}.{port}"),
        }
    }
}

impl FromStr for PortRef {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.split_once('.') {
            None => Ok(PortRef::Uplink(check_name(text)?.to_owned())),
            Some((instance, port)) => {
                Ok(PortRef::instance(check_name(instance)?, check_name(port)?))
            }
        }
    }
}

serialize_as_text!(PortRef);
