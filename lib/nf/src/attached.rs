//! What an NF is told about ports that its host is attached to.

use crate::function::PortInfo;
use alloc::borrow::ToOwned;
use alloc::vec::Vec;
use nfluid_ring::port::Port;
use nfluid_wire::ether::MacAddr;

/// About each port, in the same order.
pub fn port_infos(ports: &[Port]) -> Vec<PortInfo> {
    let info = |port: &Port| {
        let entry = port.entry();
        PortInfo {
            name: entry.name().to_owned(),
            mac: MacAddr(entry.mac),
            mtu: entry.mtu,
        }
    };
    ports.iter().map(info).collect()
}
