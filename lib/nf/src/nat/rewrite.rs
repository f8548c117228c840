//! New addresses and ports in a packet, with all checksums, by RFC 1624 increments.
//!
//! A checksum that was wrong before stays wrong: the receiver will notice. A UDP checksum of 0
//! (none) stays 0.

use super::endpoint::{Endpoint, Protocol};
use super::packet::Packet;
use core::net::Ipv4Addr;
use nfluid_wire::checksum::Delta;
use nfluid_wire::icmpv4::Icmpv4Packet;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::tcp::{self, TcpPacket};
use nfluid_wire::udp::{self, UdpPacket};

/// Which end of a packet changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Destination,
}

/// Sets one address of an IPv4 packet; returns the change for the transport's checksum.
#[inline]
pub(super) fn set_address(packet: &mut [u8], end: End, old: u32, new: u32) -> Delta {
    let delta = Delta::new().replace_u32(old, new);
    let mut ip = Ipv4Packet::new_unchecked(packet);
    match end {
        End::Source => ip.set_src(Ipv4Addr::from_bits(new)),
        End::Destination => ip.set_dst(Ipv4Addr::from_bits(new)),
    }
    let checksum = delta.apply(ip.checksum());
    ip.set_checksum(checksum);
    delta
}

/// Gives one end of a parsed [`super::packet::Class::Translatable`] packet another end point.
#[inline]
pub(super) fn set_endpoint(frame: &mut [u8], packet: &Packet, end: End, new: Endpoint) {
    let old = match end {
        End::Source => packet.src,
        End::Destination => packet.dst,
    };
    let delta = set_address(&mut frame[packet.l3..], end, old.address, new.address);
    let message = &mut frame[packet.l4..packet.end];
    set_port(message, packet.protocol, end, old.port, new.port, delta);
}

/// Sets a port or a query's identifier. `message` may be cut off after 8 bytes, as in a quotation:
/// then a TCP checksum is not there to be updated. `delta` is the change of the addresses.
#[inline]
pub(super) fn set_port(
    message: &mut [u8],
    protocol: Protocol,
    end: End,
    old: u16,
    new: u16,
    delta: Delta,
) {
    let with_port = delta.replace_u16(old, new);
    match protocol {
        Protocol::Tcp => {
            let quoted_checksum = message.len() >= tcp::HEADER_LEN;
            let mut segment = TcpPacket::new_unchecked(message);
            match end {
                End::Source => segment.set_src_port(new),
                End::Destination => segment.set_dst_port(new),
            }
            if quoted_checksum {
                segment.set_checksum(with_port.apply(segment.checksum()));
            }
        }
        Protocol::Udp if message.len() >= udp::HEADER_LEN => {
            let mut datagram = UdpPacket::new_unchecked(message);
            match end {
                End::Source => datagram.set_src_port(new),
                End::Destination => datagram.set_dst_port(new),
            }
            datagram.set_checksum(with_port.apply_udp(datagram.checksum()));
        }
        Protocol::Udp => {}
        // No pseudo-header: the addresses do not count. Both ends share an identifier.
        Protocol::Icmp => {
            let mut query = Icmpv4Packet::new_unchecked(message);
            query.set_echo_ident(new);
            let delta = Delta::new().replace_u16(old, new);
            query.set_checksum(delta.apply(query.checksum()));
        }
    }
}
