//! Which frames are copied.

use super::config::Direction;
use crate::prefix::Prefix;
use alloc::vec::Vec;
use nfluid_wire::{IpProtocol, L3, PacketMeta};

/// A simple match: an absent condition matches everything; all given conditions must hold.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) direction: Direction,
    /// Source or destination within one of them.
    pub(super) prefixes: Vec<Prefix>,
    /// TCP or UDP source or destination port.
    pub(super) ports: Vec<u16>,
    pub(super) protocol: Option<IpProtocol>,
}

impl Selection {
    /// True if a frame that arrived on port `from` is to be copied.
    pub(super) fn matches(&self, from: u8, frame: &[u8]) -> bool {
        let direction = match self.direction {
            Direction::Both => true,
            Direction::Forward => from == 0,
            Direction::Reverse => from == 1,
        };
        direction && (self.is_any() || self.matches_packet(frame))
    }

    fn is_any(&self) -> bool {
        self.prefixes.is_empty() && self.ports.is_empty() && self.protocol.is_none()
    }

    fn matches_packet(&self, frame: &[u8]) -> bool {
        let Ok(mut meta) = PacketMeta::parse_l3(frame) else {
            return false;
        };
        if !self.ports.is_empty() && meta.parse_l4(frame).is_err() {
            return false;
        }
        let has_ports = matches!(meta.protocol, IpProtocol::TCP | IpProtocol::UDP);
        let port = |port: u16| has_ports && self.ports.contains(&port);
        meta.l3 != L3::Other
            && (self.prefixes.is_empty() || self.prefixes.iter().any(|p| p.touches(meta.l3)))
            && (self.ports.is_empty() || port(meta.src_port) || port(meta.dst_port))
            && self
                .protocol
                .is_none_or(|protocol| protocol == meta.protocol)
    }
}
