//! Ports that are interfaces of the kernel's stack, in the network namespace of their instance.

use ipnet::IpNet;
use serde::Serialize;
use std::net::IpAddr;

/// Maximum number of addresses, or of routes, of an interface.
pub const ENTRIES_MAX: usize = 64;
/// Maximum number of name servers of an interface: the C library asks three.
pub const SERVERS_MAX: usize = 3;

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
    /// Name servers by way of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<IpAddr>,
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
