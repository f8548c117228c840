//! Description of the ports that a host is attached to, for its NF.

use crate::function::PortInfo;
use alloc::borrow::ToOwned;
use nfluid_ring::table::PortEntry;
use nfluid_wire::ether::MacAddr;

/// Returns the description of a port for an NF.
pub fn port_info(entry: &PortEntry) -> PortInfo {
    PortInfo {
        name: entry.name().to_owned(),
        mac: MacAddr(entry.mac),
        mtu: entry.mtu,
    }
}
