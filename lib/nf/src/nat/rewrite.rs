//! New addresses and ports in a packet, with all checksums, by RFC 1624 increments.
//!
//! A checksum that was wrong before stays wrong: the receiver will notice. A UDP checksum of 0
//! (none) stays 0.

use super::endpoint::{Endpoint, Protocol};
use super::packet::Packet;
use core::net::Ipv4Addr;
use nfluid_ring::Frame;
use nfluid_wire::checksum::{ChecksumState, Delta, TransportDelta};
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
    ip.update_checksum(delta);
    delta
}

/// Gives one end of a parsed [`super::packet::Class::Translatable`] packet another end point.
#[inline]
pub(super) fn set_endpoint(frame: &mut Frame<'_>, packet: &Packet, end: End, new: Endpoint) {
    let state = frame.checksum_state();
    let frame = frame.bytes_mut();
    let old = match end {
        End::Source => packet.src,
        End::Destination => packet.dst,
    };
    let addresses = set_address(&mut frame[packet.l3..], end, old.address, new.address);
    let message = &mut frame[packet.l4..packet.end];
    let ports = PortChange {
        end,
        old: old.port,
        new: new.port,
    };
    set_port(message, packet.protocol, ports, addresses, state);
}

/// Another port of one end, or another identifier of a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortChange {
    pub(super) end: End,
    pub(super) old: u16,
    pub(super) new: u16,
}

/// Sets a port or a query's identifier. `message` may be cut off after 8 bytes, as in a quotation:
/// then a TCP checksum is not there to be updated. `addresses` is the change of the addresses.
#[inline]
pub(super) fn set_port(
    message: &mut [u8],
    protocol: Protocol,
    PortChange { end, old, new }: PortChange,
    addresses: Delta,
    state: ChecksumState,
) {
    let port = Delta::new().replace_u16(old, new);
    let change = TransportDelta::new(addresses, port);
    match protocol {
        Protocol::Tcp => {
            let quoted_checksum = message.len() >= tcp::HEADER_LEN;
            let mut segment = TcpPacket::new_unchecked(message);
            match end {
                End::Source => segment.set_src_port(new),
                End::Destination => segment.set_dst_port(new),
            }
            if quoted_checksum {
                segment.update_checksum(change, state);
            }
        }
        Protocol::Udp if message.len() >= udp::HEADER_LEN => {
            let mut datagram = UdpPacket::new_unchecked(message);
            match end {
                End::Source => datagram.set_src_port(new),
                End::Destination => datagram.set_dst_port(new),
            }
            datagram.update_checksum(change, state);
        }
        Protocol::Udp => {}
        // No pseudo-header: the addresses do not count. Both ends share an identifier.
        Protocol::Icmp => {
            let mut query = Icmpv4Packet::new_unchecked(message);
            query.set_echo_ident(new);
            query.update_checksum(port);
        }
    }
}
