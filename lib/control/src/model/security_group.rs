//! Security groups: rules for what passes the ports that are in a group.

use super::Owned;
use crate::matching::{PortRange, Protocol};
use crate::quantity::{ValueError, serialize_as_text};
use ipnet::IpNet;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Rules that permit traffic. What no rule of a port's groups permits does not pass the port; answers to what was permitted do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SecurityGroup {
    /// The rules; their order means nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<SecurityRule>,
    /// Addresses that each port in the group may use, beside its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_addresses: Vec<IpNet>,
    /// Addresses that rules mean by the group's name, beside those of its ports: ports on other hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<IpNet>,
    /// The owner of the group, as of an instance; absent: the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

impl Owned for SecurityGroup {
    fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }
}

/// A rule: permits the packets that every present condition holds for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SecurityRule {
    /// Which way the connection is opened.
    pub direction: Direction,
    /// The version of IP; absent: both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// IP protocol; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Destination ports of TCP, UDP or SCTP; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortRange>,
    /// Source ports; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<PortRange>,
    /// Type of ICMP messages, and their code; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp: Option<IcmpKind>,
    /// Addresses of the other side.
    #[serde(flatten)]
    pub remote: Remote,
}

/// The other side of a rule's traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Remote {
    /// Everybody.
    Anybody {},
    /// A prefix.
    Prefix {
        /// The prefix.
        remote: IpNet,
    },
    /// The addresses of the ports in a group.
    Group {
        /// The group.
        remote_group: String,
    },
}

/// Which way a connection is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Towards the instance; OpenStack's ingress.
    In,
    /// From the instance; OpenStack's egress.
    Out,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Returns the family of a prefix.
    pub fn of(net: &IpNet) -> Self {
        match net {
            IpNet::V4(_) => Family::Ipv4,
            IpNet::V6(_) => Family::Ipv6,
        }
    }
}

/// Type and code of an ICMP message: `8`, `3/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpKind {
    /// The type.
    pub kind: u8,
    /// The code; absent: all.
    pub code: Option<u8>,
}

impl fmt::Display for IcmpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "{}/{code}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

impl FromStr for IcmpKind {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = |text: &str| {
            text.parse().map_err(|_| {
                ValueError::new(
                    format!("'{text}' is no type of an ICMP message"),
                    "write its number, or number and code, for example 8 or 3/4",
                )
            })
        };
        let (kind, code) = match text.split_once('/') {
            Some((kind, code)) => (kind, Some(number(code)?)),
            None => (text, None),
        };
        Ok(IcmpKind {
            kind: number(kind)?,
            code,
        })
    }
}

serialize_as_text!(IcmpKind);
