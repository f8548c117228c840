//! Packets to the NAT itself: echo requests to its external addresses, which an operator who looks for a fault will
//! send.

use super::Nat;
use super::endpoint::Protocol;
use super::ident;
use super::packet::{Class, Packet};
use super::process::Work;
use nfluid_ring::Frame;
use nfluid_wire::checksum::Delta;
use nfluid_wire::ether::EthernetFrame;
use nfluid_wire::icmpv4::{Icmpv4Packet, Icmpv4Type};
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::{IpProtocol, MacAddr};

/// Time to live of an answer (RFC 1700).
const TTL: u8 = 64;

impl Nat {
    /// Returns true for a whole echo request to an external address that no mapping has the identifier of, from a host that
    /// can be answered.
    #[inline]
    pub(super) fn is_for_itself(&self, frame: &Frame<'_>, work: &Work) -> bool {
        let packet = &work.packet;
        packet.protocol == Protocol::Icmp && packet.opens && self.is_ping(frame, packet)
    }

    #[inline(never)]
    fn is_ping(&self, frame: &Frame<'_>, packet: &Packet) -> bool {
        let (protocol, vlan, dst) = (packet.protocol, packet.vlan, packet.dst);
        let hash = self.state.hasher.endpoint(protocol, vlan, dst);
        let ethernet = EthernetFrame::new_unchecked(frame.bytes());
        self.state.config.answer_pings
            && packet.class == Class::Translatable
            && !packet.first_fragment
            && frame.bytes()[packet.l4] == Icmpv4Type::ECHO_REQUEST.0
            && super::process::is_routable(packet.src.address)
            && ethernet.src().is_unicast()
            && ethernet.dst().is_unicast()
            && self.state.find_outside(hash, protocol, vlan, dst).is_none()
    }

    /// Turns an echo request into its reply, in place; returns the port.
    #[cold]
    pub(super) fn answer_ping(&mut self, frame: &mut Frame<'_>, packet: &Packet) -> u8 {
        let port = frame.in_port();
        let mut ethernet = EthernetFrame::new_unchecked(frame.bytes_mut());
        let (src, dst): (MacAddr, MacAddr) = (ethernet.src(), ethernet.dst());
        ethernet.set_src(dst);
        ethernet.set_dst(src);
        let mut ip = Ipv4Packet::new_unchecked(&mut frame.bytes_mut()[packet.l3..]);
        let (src, dst) = (ip.src(), ip.dst());
        ip.set_src(dst);
        ip.set_dst(src);
        ip.set_ttl(TTL);
        let ends = (ip.src().to_bits(), ip.dst().to_bits());
        if ident::is_meant(ip.as_ref()) {
            let ident = self
                .idents
                .take(self.state.hasher, ends, IpProtocol::ICMPV4);
            ip.set_ident(ident);
        }
        ip.fill_checksum();
        let message = &mut frame.bytes_mut()[packet.l4..packet.end];
        let mut echo = Icmpv4Packet::new_unchecked(message);
        let kind = |kind: Icmpv4Type| u16::from(kind.0) << 8;
        let delta =
            Delta::new().replace_u16(kind(Icmpv4Type::ECHO_REQUEST), kind(Icmpv4Type::ECHO_REPLY));
        echo.set_msg_type(Icmpv4Type::ECHO_REPLY);
        echo.update_checksum(delta);
        self.counters.pings += 1;
        port
    }
}
