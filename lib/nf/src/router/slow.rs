//! The slow path: one frame at a time, each check by itself, so that every drop has its reason.

use super::Router;
use super::fast;
use super::hops::Target;
use super::icmp::{Error, Offender};
use super::metrics::DropReason;
use crate::function::Nanos;
use crate::traffic::OnWire;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nfluid_ring::{Frame, Outbox};
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::Ipv6Packet;
use nfluid_wire::{EtherType, EthernetFrame, ParseError, ether};

/// Arrival of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// The port.
    pub port: u8,
    /// In a broadcast or multicast frame.
    pub to_many: bool,
}

/// The treatment of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The frame leaves, in place, on this port.
    Forward(u8),
    /// The frame has left in fragments.
    Copied,
    /// The answer leaves, in the frame's place, on this port.
    Reply(u8),
    /// The frame was for the router; all its answers have been sent.
    Consumed,
    /// A copy waits for the next hop's Ethernet address.
    Waiting,
    Drop(DropReason),
}

impl Router {
    /// Handles a frame that the fast path left alone.
    pub(super) fn handle(&mut self, now: Nanos, frame: &mut Frame<'_>, outbox: &mut dyn Outbox) {
        let packets = OnWire::of(frame).packets();
        let verdict = match frame.settle() {
            Ok(()) => self.decide(now, frame, outbox),
            Err(_) => Verdict::Drop(DropReason::BadOffload),
        };
        match verdict {
            Verdict::Forward(port) => {
                self.counters.forward(frame.in_port(), OnWire::of(frame));
                frame.send(port);
            }
            Verdict::Copied => {
                self.counters.forward(frame.in_port(), OnWire::of(frame));
                frame.discard();
            }
            Verdict::Reply(port) => {
                self.counters.consumed += packets;
                frame.send(port);
            }
            Verdict::Consumed => {
                self.counters.consumed += packets;
                frame.discard();
            }
            Verdict::Waiting => {
                self.counters.waited += packets;
                frame.discard();
            }
            Verdict::Drop(reason) => {
                self.counters.drop(reason, packets);
                frame.discard();
            }
        }
    }

    fn decide(&mut self, now: Nanos, frame: &mut Frame<'_>, outbox: &mut dyn Outbox) -> Verdict {
        if EthernetFrame::new_unchecked(frame.bytes())
            .ethertype()
            .is_vlan()
        {
            take_priority_tag(frame);
        }
        let link = EthernetFrame::new_unchecked(frame.bytes());
        let (destination, ethertype) = (link.dst(), link.ethertype());
        let arrival = Arrival {
            port: frame.in_port(),
            to_many: destination.is_multicast(),
        };
        let Some(port) = self.ports.get(usize::from(arrival.port)) else {
            return Verdict::Drop(DropReason::NotForUs);
        };
        if !arrival.to_many && destination != port.mac {
            return Verdict::Drop(DropReason::NotForUs);
        }
        match ethertype {
            EtherType::ARP => self.receive_arp(now, arrival, frame.bytes(), outbox),
            EtherType::IPV4 => self.receive_ipv4(now, arrival, frame, outbox),
            EtherType::IPV6 => self.receive_ipv6(now, arrival, frame, outbox),
            tag if tag.is_vlan() => Verdict::Drop(DropReason::VlanTagged),
            _ => Verdict::Drop(DropReason::UnknownEthertype),
        }
    }

    fn receive_ipv4(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &mut Frame<'_>,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let (source, destination) = match self.check_ipv4(arrival, frame.bytes()) {
            Ok(addresses) => addresses,
            Err(reason) => return Verdict::Drop(reason),
        };
        let total_len = Ipv4Packet::new_unchecked(&frame.bytes()[ether::HEADER_LEN..]).total_len();
        fast::trim(frame, usize::from(total_len));
        let target = self.fib.target(destination.into());
        if matches!(target, Target::Local { .. }) {
            return self.deliver_ipv4(now, arrival, frame, outbox);
        }
        if source.is_link_local() || destination.is_link_local() {
            return Verdict::Drop(DropReason::LinkLocal);
        }
        match self.way(target, destination.into()) {
            Ok((port, next_hop)) => {
                self.forward_ipv4(now, arrival, frame, (port, next_hop), outbox)
            }
            Err(reason) => self.refuse(now, arrival, frame, reason, outbox),
        }
    }

    /// The checks of RFC 1812 sections 5.2.2, 5.3.4 and 5.3.7.
    fn check_ipv4(
        &self,
        arrival: Arrival,
        frame: &[u8],
    ) -> Result<(Ipv4Addr, Ipv4Addr), DropReason> {
        let packet = Ipv4Packet::new_checked(&frame[ether::HEADER_LEN..]).map_err(malformed)?;
        if !packet.verify_checksum() {
            return Err(DropReason::BadChecksum);
        }
        let (source, destination) = (packet.src(), packet.dst());
        let [first, ..] = source.octets();
        // RFC 1812 section 5.3.7: no broadcast address is a source.
        let own = || {
            let target = self.fib.target(source.into());
            matches!(target, Target::Local { .. } | Target::Broadcast)
        };
        if first == 0 || first == 127 || first >= 224 || own() {
            return Err(DropReason::MartianSource);
        }
        let [first, ..] = destination.octets();
        match first {
            _ if destination.is_broadcast() => Err(DropReason::Broadcast),
            0 | 127 | 240.. => Err(DropReason::MartianDestination),
            224..=239 => Err(DropReason::Multicast),
            // RFC 1122 section 3.3.6.
            _ if arrival.to_many => Err(match self.fib.target(destination.into()) {
                Target::Broadcast => DropReason::Broadcast,
                _ => DropReason::LinkBroadcast,
            }),
            _ => Ok((source, destination)),
        }
    }

    fn receive_ipv6(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &mut Frame<'_>,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let packet = match Ipv6Packet::new_checked(&frame.bytes()[ether::HEADER_LEN..]) {
            Ok(packet) => packet,
            Err(error) => return Verdict::Drop(malformed(error)),
        };
        let (source, destination) = (packet.src(), packet.dst());
        let length = packet.payload().len() + nfluid_wire::ipv6::HEADER_LEN;
        fast::trim(frame, length);
        if source.is_multicast() || source.is_loopback() || is_mapped(source) {
            return Verdict::Drop(DropReason::MartianSource);
        }
        if destination.is_unspecified() || destination.is_loopback() || is_mapped(destination) {
            return Verdict::Drop(DropReason::MartianDestination);
        }
        if self.is_for_port(destination, arrival.port) {
            return self.deliver_ipv6(now, arrival, frame, outbox);
        }
        if destination.is_multicast() {
            return Verdict::Drop(DropReason::Multicast);
        }
        if arrival.to_many {
            return Verdict::Drop(DropReason::LinkBroadcast);
        }
        let target = self.fib.target(destination.into());
        if matches!(target, Target::Local { .. }) {
            return self.deliver_ipv6(now, arrival, frame, outbox);
        }
        if source.is_unspecified() {
            return Verdict::Drop(DropReason::MartianSource);
        }
        if destination.is_unicast_link_local() {
            return Verdict::Drop(DropReason::LinkLocal);
        }
        match self.way(target, destination.into()) {
            Ok((port, next_hop)) => {
                self.forward_ipv6(now, arrival, frame, (port, next_hop), outbox)
            }
            Err(reason) => self.refuse(now, arrival, frame, reason, outbox),
        }
    }

    /// The port and the neighbour for packets to `destination`, or why there is none.
    pub(super) fn way(
        &self,
        target: Target,
        destination: IpAddr,
    ) -> Result<(u8, IpAddr), DropReason> {
        match target {
            Target::Neighbour { port, address } => Ok((port, address)),
            Target::Connected { port } => Ok((port, destination)),
            Target::None => Err(DropReason::NoRoute),
            Target::Blackhole => Err(DropReason::Blackhole),
            Target::Unreachable => Err(DropReason::Unreachable),
            Target::Broadcast => Err(DropReason::Broadcast),
            Target::Local { .. } => Err(DropReason::LocalUnused),
        }
    }

    /// Drops a packet that has no way on, with the ICMP error that the reason asks for.
    fn refuse(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &Frame<'_>,
        reason: DropReason,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let error = match reason {
            DropReason::NoRoute => Some(Error::NoRoute),
            DropReason::Unreachable => Some(Error::RejectRoute),
            _ => None,
        };
        if let Some(error) = error {
            self.send_error(now, Offender::of(arrival, frame), error, outbox);
        }
        Verdict::Drop(reason)
    }

    /// Addresses that belong to a port and not to the router as a whole: link-local and multicast.
    fn is_for_port(&self, destination: Ipv6Addr, port: u8) -> bool {
        const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
        let Some(port) = self.ports.get(usize::from(port)) else {
            return false;
        };
        let Some(link_local) = port.link_local else {
            return false;
        };
        let solicited = |own: Ipv6Addr| destination == nfluid_wire::ndp::solicited_node(own);
        let mut anycasts = port.anycasts();
        destination == link_local
            || destination == ALL_NODES
            || destination == ALL_ROUTERS
            || solicited(link_local)
            || port.v6.iter().any(|(own, _)| solicited(*own))
            || anycasts.any(|own| destination == own || solicited(own))
    }
}

/// Takes out a tag that only carries a priority: with VLAN 0 a frame belongs to no VLAN (IEEE 802.1Q section 6.9.1).
/// Such a tag behind another tag stays: it is in that tag's VLAN.
fn take_priority_tag(frame: &mut Frame<'_>) {
    const TAG: usize = 4;
    const AFTER_MACS: usize = 12;
    let Some(&[high, low]) = frame.bytes().get(AFTER_MACS + 2..AFTER_MACS + TAG) else {
        return;
    };
    let len = frame.len() - TAG;
    if u16::from_be_bytes([high, low]) & 0x0fff == 0
        && len >= ether::HEADER_LEN
        && let Some(moved) = frame.offload().moved(-(TAG as isize))
    {
        frame.set_offload(moved);
        frame
            .bytes_mut()
            .copy_within(AFTER_MACS + TAG.., AFTER_MACS);
        // Shorter than it was, so it fits.
        let _ = frame.resize(len);
    }
}

fn is_mapped(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

fn malformed(error: ParseError) -> DropReason {
    match error {
        ParseError::Ipv4BadVersion | ParseError::Ipv6BadVersion => DropReason::BadVersion,
        ParseError::Ipv4BadHeaderLength => DropReason::BadHeaderLength,
        _ => DropReason::BadLength,
    }
}
