//! Ports that are interfaces of the kernel's stack, in the network namespace of their instance; and what a program there
//! may use beside them.

use ipnet::IpNet;
use serde::Serialize;
use std::net::IpAddr;

/// The capabilities that an instance may ask for: they concern its network namespace alone (capabilities(7)).
pub const CAPABILITIES: [&str; 3] = ["NET_BIND_SERVICE", "NET_RAW", "NET_ADMIN"];
/// Maximum number of addresses, or of routes, of an interface.
pub const ENTRIES_MAX: usize = 64;
/// Maximum number of volumes of an instance.
pub const VOLUMES_MAX: usize = 16;
/// Directories that an instance has alone, in which it may write.
pub const SCRATCH: [&str; 3] = ["/tmp", "/run", "/var/tmp"];

/// The settings of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename = "interface")]
pub struct Interface {
    /// Its addresses, each with the length of its network's prefix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpNet>,
    /// Routes by way of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// The destinations.
    pub to: IpNet,
    /// The next router; absent: the destinations are on the interface's segment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
}

/// The volumes and capabilities of a program on a network stack of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Directories of the host that it sees at the same paths, read-only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Capabilities in its network namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
}
