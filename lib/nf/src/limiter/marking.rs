//! The differentiated services code point of a packet (RFC 2474), its ECN bits untouched.

use nfluid_wire::checksum::Delta;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::{L3, PacketMeta};

/// Sets the code point (0 to 63) of an IPv4 or IPv6 packet that `meta` was parsed from, with the
/// IPv4 checksum (RFC 1624). `false`: it is not IP.
pub(super) fn set_dscp(frame: &mut [u8], meta: &PacketMeta, dscp: u8) -> bool {
    let l3 = usize::from(meta.l3_offset);
    let class = dscp << 2 | meta.traffic_class & 3;
    let Some(first) = frame
        .get_mut(l3..)
        .and_then(|packet| packet.first_chunk_mut::<2>())
    else {
        return false;
    };
    let old = u16::from_be_bytes(*first);
    match meta.l3 {
        L3::V4 { .. } => {
            let new = old & 0xff00 | u16::from(class);
            *first = new.to_be_bytes();
            Ipv4Packet::new_unchecked(&mut frame[l3..])
                .update_checksum(Delta::new().replace_u16(old, new));
            true
        }
        L3::V6 { .. } => {
            // Version in the upper four bits, the class in the next eight.
            *first = (old & 0xf00f | u16::from(class) << 4).to_be_bytes();
            true
        }
        L3::Other => false,
    }
}
