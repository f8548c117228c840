//! The addresses that the protected side calls its own, in ARP and in neighbour advertisements.

use super::Firewall;
use core::net::Ipv4Addr;
use nfluid_wire::arp::ArpRepr;
use nfluid_wire::icmpv6::Icmpv6Type;
use nfluid_wire::{EtherType, IpProtocol, L3, PacketMeta};

/// The port of the protected side.
const PROTECTED: u8 = 0;
/// Bytes of an ICMPv6 header before the target of a neighbour advertisement (RFC 4861 section 4.4).
const TARGET_OFFSET: usize = 8;

impl Firewall {
    /// Returns true if the frame tells others that somebody else's address is the protected side's. An ARP probe (RFC 5227), which has no
    /// sender's address, claims none.
    pub(super) fn claims_foreign_address(
        &self,
        in_port: u8,
        meta: &PacketMeta,
        bytes: &[u8],
    ) -> bool {
        let Some(own) = &self.own_addresses else {
            return false;
        };
        if in_port != PROTECTED {
            return false;
        }
        // What cannot be read could be read otherwise by whoever gets it.
        match meta.l3 {
            L3::Other if meta.ethertype == EtherType::ARP => {
                let packet = bytes.get(usize::from(meta.l3_offset)..).unwrap_or_default();
                let is_own = |sender: Ipv4Addr| {
                    let mut own = own.iter();
                    sender.is_unspecified() || own.any(|it| it.contains_v4(sender.to_bits()))
                };
                !ArpRepr::parse(packet).is_ok_and(|arp| is_own(arp.sender_ip))
            }
            L3::V6 { .. } if is_advertisement(meta) => {
                let at = usize::from(meta.l4_offset) + TARGET_OFFSET;
                let target = bytes.get(at..).and_then(|rest| rest.first_chunk());
                let is_own = |target| own.iter().any(|it| it.contains_v6(target));
                !target.is_some_and(|target| is_own(u128::from_be_bytes(*target)))
            }
            _ => false,
        }
    }
}

fn is_advertisement(meta: &PacketMeta) -> bool {
    meta.protocol == IpProtocol::ICMPV6 && meta.icmp_type == Icmpv6Type::NEIGHBOR_ADVERT.0
}
