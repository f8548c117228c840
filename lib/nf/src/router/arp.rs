//! ARP (RFC 826, RFC 5227).

use super::Router;
use super::metrics::{DropReason, Made};
use super::neighbour::{Evidence, State};
use super::slow::{Arrival, Verdict};
use crate::function::Nanos;
use core::net::{IpAddr, Ipv4Addr};
use nfluid_ring::{Offload, Outbox};
use nfluid_wire::arp::{ArpRepr, Operation};
use nfluid_wire::{MacAddr, build, ether};

/// An ARP frame without padding.
const FRAME_LEN: usize = ether::HEADER_LEN + nfluid_wire::arp::PACKET_LEN;

impl Router {
    /// Takes an ARP packet. The packet may change an existing entry; only a question to the router makes a new entry
    /// (RFC 826, "Packet Reception").
    pub(super) fn receive_arp(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &[u8],
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let Ok(packet) = ArpRepr::parse(&frame[ether::HEADER_LEN..]) else {
            return Verdict::Drop(DropReason::BadArp);
        };
        let on = &self.ports[usize::from(arrival.port)];
        let known_operation = matches!(packet.operation, Operation::REQUEST | Operation::REPLY);
        if !known_operation || !packet.sender_mac.is_unicast() {
            return Verdict::Drop(DropReason::BadArp);
        }
        let sender = IpAddr::V4(packet.sender_ip);
        if on.owns(sender) {
            self.counters.address_conflicts += 1;
            return Verdict::Consumed;
        }
        let for_us = on.owns(packet.target_ip.into());
        let question = packet.operation == Operation::REQUEST && for_us;
        if packet.sender_ip.is_unspecified() {
            // A host probes before it takes an address (RFC 5227 section 2.1.1).
            if question {
                self.answer_arp(arrival.port, &packet, outbox);
            }
            return Verdict::Consumed;
        }
        if !self.is_neighbourly(arrival.port, sender) {
            return Verdict::Drop(DropReason::BadArp);
        }
        let key = (arrival.port, sender);
        let asked = self
            .neighbours
            .get(key.0, key.1)
            .is_some_and(|n| matches!(n.state, State::Incomplete | State::Probe));
        let evidence = match packet.operation {
            Operation::REPLY if asked && for_us => Evidence::Answer { replaces: true },
            _ if question => Evidence::Question,
            _ => Evidence::Announcement { replaces: true },
        };
        self.learn(now, key, Some(packet.sender_mac), evidence, outbox);
        if question {
            self.answer_arp(arrival.port, &packet, outbox);
        }
        Verdict::Consumed
    }

    fn answer_arp(&mut self, port: u8, request: &ArpRepr, outbox: &mut dyn Outbox) {
        self.counters.made(Made::Advertisement);
        let own = self.ports[usize::from(port)].mac;
        self.emit_arp(port, &request.reply_from(own), None, outbox);
    }

    /// Asks which host has `target`: by broadcast, or the host believed to have it at `to`.
    pub(super) fn request_arp(
        &mut self,
        port: u8,
        target: Ipv4Addr,
        to: Option<MacAddr>,
        outbox: &mut dyn Outbox,
    ) {
        let own = self.primary_ipv4(port, target.into());
        let request = ArpRepr::request(self.ports[usize::from(port)].mac, own, target);
        self.emit_arp(port, &request, to, outbox);
    }

    /// Announces to all hosts on the link that `own` is here (RFC 5227 section 2.3).
    pub(super) fn announce_arp(&mut self, port: u8, own: Ipv4Addr, outbox: &mut dyn Outbox) {
        self.counters.made(Made::Advertisement);
        let announcement = ArpRepr::request(self.ports[usize::from(port)].mac, own, own);
        self.emit_arp(port, &announcement, None, outbox);
    }

    fn emit_arp(
        &mut self,
        port: u8,
        packet: &ArpRepr,
        to: Option<MacAddr>,
        outbox: &mut dyn Outbox,
    ) {
        let mut frame = [0u8; FRAME_LEN];
        if build::arp(&mut frame, &[], packet).is_err() {
            return;
        }
        match to {
            Some(mac) => self.emit_to((port, mac), &mut frame, Offload::NONE, outbox),
            None => self.emit(port, &frame, outbox),
        }
    }
}
