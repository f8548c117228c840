//! What an NF is told about ports that its host is attached to.

use crate::function::PortInfo;
use alloc::borrow::ToOwned;
use nfluid_ring::attach::PortEntry;
use nfluid_wire::ether::MacAddr;

/// What an NF is told about a port.
pub fn port_info(entry: &PortEntry) -> PortInfo {
    PortInfo {
        name: entry.name().to_owned(),
        mac: MacAddr(entry.mac),
        mtu: entry.mtu,
    }
}
