//! Neighbour discovery (RFC 4861). The router solicits, answers and keeps its table; it sends no
//! router advertisements (AdvSendAdvertisements is FALSE, the default of section 6.2.1) and no
//! redirects.

use super::Router;
use super::metrics::{DropReason, Made};
use super::neighbour::Evidence;
use super::slow::{Arrival, Verdict};
use crate::function::Nanos;
use core::net::Ipv6Addr;
use nfluid_ring::Outbox;
use nfluid_wire::icmpv6::Icmpv6Type;
use nfluid_wire::ipv6::Ipv6Packet;
use nfluid_wire::ndp::{self, AdvertFlags, NdpPacket, NdpRepr, option_type};
use nfluid_wire::{MacAddr, build, ether};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// A message with one option, in its frame.
const FRAME_LEN: usize = ether::HEADER_LEN + 40 + ndp::HEADER_LEN + ndp::LINK_LAYER_OPTION_LEN;

impl Router {
    /// Takes a neighbour solicitation or advertisement; `offset` is where the ICMPv6 message starts
    /// in the payload of the frame's packet.
    pub(super) fn receive_nd(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &[u8],
        offset: usize,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let bad = Verdict::Drop(DropReason::BadNeighbourMessage);
        let packet = Ipv6Packet::new_unchecked(&frame[ether::HEADER_LEN..]);
        let (source, destination) = (packet.src(), packet.dst());
        let Ok(message) = NdpPacket::new_checked(&packet.payload()[offset..]) else {
            return bad;
        };
        if !message.is_valid_from(source, destination, packet.hop_limit()) {
            return bad;
        }
        let on = &self.ports[usize::from(arrival.port)];
        let target = message.target();
        if message.msg_type() == Icmpv6Type::NEIGHBOR_ADVERT {
            if on.owns(target.into()) {
                self.counters.address_conflicts += 1;
                return Verdict::Consumed;
            }
            let mac = message.link_layer(option_type::TARGET_LINK_LAYER);
            if !mac.is_none_or(MacAddr::is_unicast) {
                return bad;
            }
            let flags = message.flags();
            let replaces = flags.override_entry;
            let evidence = match flags.solicited {
                true => Evidence::Answer { replaces },
                false => Evidence::Announcement { replaces },
            };
            self.learn(now, (arrival.port, target.into()), mac, evidence, outbox);
            return Verdict::Consumed;
        }
        if !on.owns(target.into()) && !on.anycasts().any(|own| own == target) {
            return Verdict::Consumed;
        }
        if on.owns(source.into()) {
            self.counters.address_conflicts += 1;
            return Verdict::Consumed;
        }
        let mac = message.link_layer(option_type::SOURCE_LINK_LAYER);
        if !mac.is_none_or(MacAddr::is_unicast) {
            return bad;
        }
        if !source.is_unspecified() {
            if !self.is_neighbourly(arrival.port, source.into()) {
                return bad;
            }
            let key = (arrival.port, source.into());
            self.learn(now, key, mac, Evidence::Question, outbox);
        }
        self.answer_solicitation(now, arrival.port, source, target, outbox);
        Verdict::Consumed
    }

    /// RFC 4861 section 7.2.4.
    fn answer_solicitation(
        &mut self,
        now: Nanos,
        port: u8,
        source: Ipv6Addr,
        target: Ipv6Addr,
        outbox: &mut dyn Outbox,
    ) {
        let on = &self.ports[usize::from(port)];
        let solicited = !source.is_unspecified();
        // Section 7.2.7: among the owners of an anycast address, the first to answer is as good as any.
        let is_anycast = !on.owns(target.into());
        let own = if is_anycast {
            on.link_local
        } else {
            Some(target)
        };
        let Some(own) = own else {
            return;
        };
        let answer = NdpRepr::Advert {
            target,
            flags: AdvertFlags {
                router: true,
                solicited,
                override_entry: !is_anycast,
            },
            target_link_layer: Some(on.mac),
        };
        let destination = if solicited { source } else { ALL_NODES };
        let mut frame = [0u8; FRAME_LEN];
        let macs = (on.mac, ndp::multicast_mac(ALL_NODES));
        let Ok(length) = build::ndp(&mut frame, macs, (own, destination), &[], &answer) else {
            return;
        };
        self.counters.made(Made::Advertisement);
        if solicited {
            let way = (port, destination.into());
            self.emit_packet(now, way, &mut frame[..length], outbox);
        } else {
            self.emit(port, &frame[..length], outbox);
        }
    }

    /// Asks which host has `target`: its solicited-node group, or the host believed to have it at `to`.
    pub(super) fn solicit_neighbour(
        &mut self,
        port: u8,
        target: Ipv6Addr,
        to: Option<MacAddr>,
        outbox: &mut dyn Outbox,
    ) {
        let on = &self.ports[usize::from(port)];
        let Some(source) = on.link_local else {
            return;
        };
        let question = NdpRepr::Solicit {
            target,
            source_link_layer: Some(on.mac),
        };
        let group = ndp::solicited_node(target);
        let (destination, mac) = match to {
            Some(mac) => (target, mac),
            None => (group, ndp::multicast_mac(group)),
        };
        self.emit_nd(port, (source, destination), mac, &question, outbox);
    }

    /// Announces to all hosts on the link that `own` is here (RFC 4861 section 7.2.6).
    pub(super) fn announce_nd(&mut self, port: u8, own: Ipv6Addr, outbox: &mut dyn Outbox) {
        self.counters.made(Made::Advertisement);
        let announcement = NdpRepr::Advert {
            target: own,
            flags: AdvertFlags {
                router: true,
                solicited: false,
                override_entry: true,
            },
            target_link_layer: Some(self.ports[usize::from(port)].mac),
        };
        let mac = ndp::multicast_mac(ALL_NODES);
        self.emit_nd(port, (own, ALL_NODES), mac, &announcement, outbox);
    }

    fn emit_nd(
        &mut self,
        port: u8,
        addresses: (Ipv6Addr, Ipv6Addr),
        mac: MacAddr,
        message: &NdpRepr,
        outbox: &mut dyn Outbox,
    ) {
        let own = self.ports[usize::from(port)].mac;
        let mut frame = [0u8; FRAME_LEN];
        if let Ok(length) = build::ndp(&mut frame, (own, mac), addresses, &[], message) {
            self.emit(port, &frame[..length], outbox);
        }
    }

    /// Announces the router's addresses to all links, so that neighbours and switches drop their entries of a
    /// predecessor.
    pub(super) fn announce_addresses(&mut self, outbox: &mut dyn Outbox) {
        for port in 0..self.ports.len() {
            let on = &self.ports[port];
            let v4: alloc::vec::Vec<_> = on.v4.iter().map(|own| own.0).collect();
            let v6: alloc::vec::Vec<_> =
                on.v6.iter().map(|own| own.0).chain(on.link_local).collect();
            for own in v4 {
                self.announce_arp(port as u8, own, outbox);
            }
            for own in v6 {
                self.announce_nd(port as u8, own, outbox);
            }
        }
    }
}
