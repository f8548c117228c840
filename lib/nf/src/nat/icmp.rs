//! ICMP errors: the packet that they quote is translated back to what its sender sent, or on to
//! what its receiver got (RFC 5508 section 4).

use super::clock::Tenths;
use super::endpoint::{Endpoint, Protocol};
use super::metrics::DropReason;
use super::packet::Packet;
use super::rewrite::{self, End, PortChange};
use super::state::State;
use nfluid_wire::flow::Fragment;
use nfluid_wire::icmpv4::{self, Icmpv4Packet, Icmpv4Type};
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::{ChecksumState, FlowKey, IpProtocol, PacketMeta};

/// The packet that an error quotes.
struct Quoted {
    protocol: Protocol,
    src: Endpoint,
    dst: Endpoint,
    /// Offset of its transport header in the quotation.
    l4: usize,
}

impl Quoted {
    /// Checks the error's own checksum and the quoted header's, as RFC 5508 REQ-3 asks.
    fn read(message: &[u8]) -> Result<Quoted, DropReason> {
        let error = Icmpv4Packet::new_checked(message).map_err(|_| DropReason::Malformed)?;
        if !error.verify_checksum() {
            return Err(DropReason::IcmpBadChecksum);
        }
        let quotation = error.payload();
        let meta = PacketMeta::parse_quoted(quotation).map_err(|_| DropReason::IcmpUnmatched)?;
        let anonymous = meta.protocol == IpProtocol::ICMPV4 && !is_query(meta.icmp_type);
        if meta.fragment == Fragment::Later || anonymous {
            return Err(DropReason::IcmpUnmatched);
        }
        let (Some(FlowKey::V4(flow)), Some(protocol)) =
            (meta.flow_key(), Protocol::of(meta.protocol))
        else {
            return Err(DropReason::IcmpUnmatched);
        };
        if !Ipv4Packet::new_unchecked(quotation).verify_checksum() {
            return Err(DropReason::IcmpBadChecksum);
        }
        Ok(Quoted {
            protocol,
            src: Endpoint::new(flow.src, flow.src_port),
            dst: Endpoint::new(flow.dst, flow.dst_port),
            l4: usize::from(meta.l4_offset),
        })
    }

    /// Gives one end of the quoted packet another end point, and the error a new checksum.
    fn rewrite(&self, message: &mut [u8], end: End, new: Endpoint) {
        let old = match end {
            End::Source => self.src,
            End::Destination => self.dst,
        };
        let quotation = &mut message[icmpv4::HEADER_LEN..];
        let delta = rewrite::set_address(quotation, end, old.address, new.address);
        let mut transport = &mut quotation[self.l4..];
        // RFC 4884 pads a quotation with zeros, in which there is no checksum. No TCP header has a data offset of 0.
        const DATA_OFFSET: usize = 12;
        if self.protocol == Protocol::Tcp && transport.get(DATA_OFFSET) == Some(&0) {
            transport = &mut transport[..DATA_OFFSET];
        }
        let ports = PortChange {
            end,
            old: old.port,
            new: new.port,
        };
        // A quotation that has the checksum has it as the packet had it on a wire.
        let state = ChecksumState::Complete;
        rewrite::set_port(transport, self.protocol, ports, delta, state);
        Icmpv4Packet::new_unchecked(message).fill_checksum();
    }
}

fn is_query(icmp_type: u8) -> bool {
    Icmpv4Type(icmp_type).has_ident()
}

impl State {
    /// An error from outside about a packet that went out: its quotation gets the inside end point
    /// back, its destination becomes the inside host. Returns the mapping.
    pub(super) fn inbound_error(
        &self,
        now: Tenths,
        frame: &mut [u8],
        packet: &Packet,
    ) -> Result<u32, DropReason> {
        let message = &mut frame[packet.l4..packet.end];
        let quoted = Quoted::read(message)?;
        let hash = self
            .hasher
            .endpoint(quoted.protocol, packet.vlan, quoted.src);
        let index = self
            .find_outside(hash, quoted.protocol, packet.vlan, quoted.src)
            .filter(|&index| self.has_exchange(now, index, quoted.dst))
            .filter(|_| packet.dst.address == quoted.src.address)
            .ok_or(DropReason::IcmpUnmatched)?;
        let mapping = self.mappings.get(index).ok_or(DropReason::IcmpUnmatched)?;
        quoted.rewrite(message, End::Source, mapping.inside);
        let ip = &mut frame[packet.l3..];
        rewrite::set_address(
            ip,
            End::Destination,
            packet.dst.address,
            mapping.inside.address,
        );
        Ok(index)
    }

    /// Translates an error from inside about a packet that was let in: its quotation gets the external end point
    /// back, its source becomes the external address, whichever inside host sent it.
    pub(super) fn outbound_error(
        &self,
        now: Tenths,
        frame: &mut [u8],
        packet: &Packet,
    ) -> Result<(), DropReason> {
        let message = &mut frame[packet.l4..packet.end];
        let quoted = Quoted::read(message)?;
        let hash = self
            .hasher
            .endpoint(quoted.protocol, packet.vlan, quoted.dst);
        let index = self
            .find_inside(hash, quoted.protocol, packet.vlan, quoted.dst)
            .filter(|&index| self.has_exchange(now, index, quoted.src))
            .ok_or(DropReason::IcmpUnmatched)?;
        let mapping = self.mappings.get(index).ok_or(DropReason::IcmpUnmatched)?;
        quoted.rewrite(message, End::Destination, mapping.outside);
        let ip = &mut frame[packet.l3..];
        rewrite::set_address(ip, End::Source, packet.src.address, mapping.outside.address);
        Ok(())
    }
}
