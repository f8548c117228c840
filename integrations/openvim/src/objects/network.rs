//! Networks and ports.

use super::{Object, Told, yes};
use nfluid_control::quantity::Mac;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The kind of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkKind {
    /// For management.
    #[default]
    BridgeMan,
    /// For traffic that is not much.
    BridgeData,
    /// For traffic.
    Data,
    /// Between two ports.
    Ptp,
}

impl NetworkKind {
    /// Returns the most ports that it has.
    pub const fn ports_max(self) -> usize {
        match self {
            NetworkKind::Ptp => 2,
            _ => usize::MAX,
        }
    }
}

/// The connection of a network on each of its hosts with the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Physical<'a> {
    /// Nothing: it is within one host.
    Nothing,
    /// An interface of this name.
    Interface(&'a str),
}

/// The part of a network on a host: its switch, and the tunnel to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leg {
    /// False while it is made or removed.
    pub is_made: bool,
    /// The number of the tunnel to the hub; `None`: this is the hub, or no tunnel is needed.
    pub vni: Option<u32>,
}

/// A network: a switch on each host that has servers on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Network {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its kind.
    #[serde(rename = "type", default)]
    pub kind: NetworkKind,
    /// True if all tenants may use it.
    #[serde(default)]
    pub shared: bool,
    /// The tenant that owns it; absent: all tenants use it.
    pub tenant_id: Option<Uuid>,
    /// False: its ports are on no switch.
    #[serde(default = "yes")]
    pub admin_state_up: bool,
    /// The interface on each host that joins it: `macvtap:INTERFACE`.
    #[serde(rename = "provider:physical")]
    pub physical: Option<String>,
    /// A VLAN; see [`Network::check`].
    #[serde(rename = "provider:vlan")]
    pub vlan: Option<u16>,
    /// Its addresses, in the client's words.
    pub cidr: Option<String>,
    /// True if addresses are given on it.
    #[serde(default)]
    pub enable_dhcp: bool,
    /// The last error of a host; absent: the network is as desired.
    pub last_error: Option<String>,
    /// The hosts on which it has something.
    #[serde(default)]
    pub hosts: BTreeMap<Uuid, Leg>,
}

impl Network {
    /// Returns what it is joined to.
    ///
    /// # Errors
    /// A network cannot be joined in this way.
    pub fn physical(&self) -> Result<Physical<'_>, String> {
        let Some(physical) = &self.physical else {
            return Ok(Physical::Nothing);
        };
        match physical.split_once(':') {
            None if physical == "default" => Ok(Physical::Nothing),
            Some(("macvtap", interface)) if !interface.is_empty() => {
                Ok(Physical::Interface(interface))
            }
            _ => Err(format!(
                "provider:physical: macvtap:INTERFACE is expected, not '{physical}': the switches of nfluid are no bridges of the kernel and have no OpenFlow controller"
            )),
        }
    }

    /// Returns the host from which tunnels lead to the others; `None`: it has no host yet, or needs no tunnels.
    pub fn hub(&self) -> Option<Uuid> {
        if self.physical() != Ok(Physical::Nothing) {
            return None;
        }
        let mut hosts = self.hosts.iter();
        hosts.find(|(_, leg)| leg.vni.is_none()).map(|(id, _)| *id)
    }

    /// Returns true if a tenant may use it.
    pub fn is_for(&self, tenant: Uuid) -> bool {
        self.shared || self.tenant_id.is_none_or(|owner| owner == tenant)
    }
}

impl Object for Network {
    const WORD: &'static str = "network";
    const PLURAL: &'static str = "networks";
    const LISTED: &'static [&'static str] = &[
        "id",
        "name",
        "tenant_id",
        "type",
        "shared",
        "provider:vlan",
        "status",
        "last_error",
        "admin_state_up",
        "provider:physical",
    ];
    const GIVEN: &'static [&'static str] = &[
        "id",
        "name",
        "type",
        "shared",
        "tenant_id",
        "admin_state_up",
        "provider:vlan",
        "provider:physical",
        "cidr",
        "enable_dhcp",
    ];
    const CHANGEABLE: &'static [&'static str] = &[
        "name",
        "type",
        "shared",
        "tenant_id",
        "admin_state_up",
        "provider:vlan",
        "provider:physical",
        "cidr",
        "enable_dhcp",
    ];
    const HIDDEN: &'static [&'static str] = &["hosts"];

    fn id(&self) -> Uuid {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        self.physical()?;
        if self.vlan.is_some() {
            return Err(
                "provider:vlan: switches of nfluid pass tags unchanged; make an interface of the VLAN on the hosts, and name it in provider:physical".to_owned(),
            );
        }
        if self.enable_dhcp {
            return Err(
                "enable_dhcp: nobody gives addresses here; connect a DHCP server to the network"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// The kind of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortKind {
    /// A server's, on a network for management.
    #[serde(rename = "instance:bridge")]
    Bridge,
    /// A server's, on a network for traffic.
    #[serde(rename = "instance:data")]
    Data,
    /// An interface of a host.
    #[default]
    #[serde(rename = "external")]
    External,
}

/// A port of a server, or an interface of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Port {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The network that it is on.
    pub network_id: Option<Uuid>,
    /// The tenant that owns it.
    pub tenant_id: Option<Uuid>,
    /// Its address.
    pub mac_address: Option<String>,
    /// False: it is on no switch.
    #[serde(default = "yes")]
    pub admin_state_up: bool,
    /// The bandwidth that its user wants. No limit enforces it.
    pub bandwidth: Option<String>,
    /// The interface, of an external port: `INTERFACE`, or `HOST:INTERFACE`.
    #[serde(rename = "binding:switch_port")]
    pub interface: Option<String>,
    /// See [`Port::check`].
    #[serde(rename = "binding:vlan")]
    pub vlan: Option<u16>,
    /// Its kind.
    #[serde(rename = "device_owner", default)]
    pub kind: PortKind,
    /// The server that it is of.
    pub device_id: Option<Uuid>,
    /// A PCI address, in the client's words: a port is at none.
    pub vpci: Option<String>,
    /// A model of a NIC, in the client's words: a port is none.
    pub model: Option<String>,
    /// The host of an external port.
    pub host: Option<Uuid>,
    /// The host of an external port has been told of it, or not. A server's ports are told with the server.
    #[serde(default)]
    pub told: Told,
}

impl Port {
    /// Returns the host, if the client has named one, and the interface of an external port.
    pub fn binding(&self) -> Option<(Option<&str>, &str)> {
        let binding = self.interface.as_deref()?;
        Some(match binding.rsplit_once(':') {
            Some((host, interface)) => (Some(host), interface),
            None => (None, binding),
        })
    }
}

impl Object for Port {
    const WORD: &'static str = "port";
    const PLURAL: &'static str = "ports";
    const LISTED: &'static [&'static str] = &[
        "id",
        "name",
        "tenant_id",
        "network_id",
        "vpci",
        "mac_address",
        "device_owner",
        "device_id",
        "binding:switch_port",
        "binding:vlan",
        "bandwidth",
        "status",
        "admin_state_up",
    ];
    const GIVEN: &'static [&'static str] = &[
        "id",
        "name",
        "network_id",
        "tenant_id",
        "mac_address",
        "admin_state_up",
        "bandwidth",
        "binding:switch_port",
        "binding:vlan",
    ];
    const CHANGEABLE: &'static [&'static str] = &["name", "network_id", "admin_state_up"];
    const HIDDEN: &'static [&'static str] = &["host", "told"];

    fn id(&self) -> Uuid {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        if self.vlan.is_some() {
            return Err(
                "binding:vlan: make an interface of the VLAN on the host, and name it in binding:switch_port".to_owned(),
            );
        }
        if let Some(mac) = &self.mac_address {
            let read = mac.parse::<Mac>();
            read.map_err(|error| format!("mac_address: {error}"))?;
        }
        if self.kind == PortKind::External && self.interface.as_deref().is_none_or(str::is_empty) {
            return Err("binding:switch_port: the name of an interface is expected".to_owned());
        }
        Ok(())
    }
}
