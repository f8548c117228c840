//! Hardware addresses: the NAT answers for its pool, and finds the inside host behind it.
//!
//! A NAT here is a bump in the wire: it changes no hardware address of a frame that is not addressed to itself. But a
//! neighbour outside that asks for a pool address needs an answer. With `proxy_arp` the NAT answers, with the address
//! of the port on which the question arrived. Frames that then come to that address are handed to the inside host's
//! own address. The NAT knows that address from the host's last frame, or (a forward to a host that has sent nothing
//! yet) asks for it with an RFC 5227 probe: the NAT needs no IP address of its own.

use super::Nat;
use super::clock::Tenths;
use super::config::NonIpv4;
use super::endpoint::Vlan;
use super::metrics::DropReason;
use super::packet::Packet;
use super::process::{INSIDE, Verdict};
use core::net::Ipv4Addr;
use nfluid_ring::{Frame, Outbox};
use nfluid_wire::MacAddr;
use nfluid_wire::arp::{ArpRepr, Operation};
use nfluid_wire::build;
use nfluid_wire::ether::{EthernetFrame, VlanStack};

/// Seconds between two questions for the same host.
const PROBE_INTERVAL_SECS: u32 = 1;
/// Longest frame of ours: Ethernet, two tags, ARP, padded to Ethernet's minimum.
const ARP_FRAME_MAX: usize = 64;

impl Nat {
    /// An ARP packet: learned from, answered if it asks for a pool address, else passed on.
    pub(super) fn arp(&mut self, frame: &mut Frame<'_>, packet: &Packet) -> Verdict {
        if let Ok(arp) = ArpRepr::parse(&frame.bytes()[packet.l3..]) {
            if frame.in_port() == INSIDE {
                self.learn(packet.vlan, &arp);
                if arp.operation == Operation::REPLY
                    && arp.target_mac == self.macs[usize::from(INSIDE)]
                {
                    return Err(DropReason::OwnArp);
                }
            }
            if self.state.config.proxy_arp && self.is_for_pool(&arp) {
                self.answer(frame, packet, &arp);
                return Ok(frame.in_port());
            }
        }
        match self.state.config.non_ipv4 {
            NonIpv4::Pass | NonIpv4::ArpOnly => Ok(self.untouched(frame)),
            NonIpv4::Drop => Err(DropReason::NotIpv4),
        }
    }

    /// A question for an external address of ours. Not an announcement or a probe of it: then a
    /// neighbour owns the address, and it is not ours to claim.
    fn is_for_pool(&self, arp: &ArpRepr) -> bool {
        arp.operation == Operation::REQUEST
            && !arp.sender_ip.is_unspecified()
            && arp.sender_ip != arp.target_ip
            && self.state.is_external(arp.target_ip.to_bits())
    }

    /// Turns the question into its answer, in place: tags and padding stay.
    fn answer(&mut self, frame: &mut Frame<'_>, packet: &Packet, question: &ArpRepr) {
        let own = self.macs[usize::from(frame.in_port() & 1)];
        let answer = question.reply_from(own).to_bytes();
        let bytes = frame.bytes_mut();
        bytes[packet.l3..packet.l3 + answer.len()].copy_from_slice(&answer);
        let mut ethernet = EthernetFrame::new_unchecked(bytes);
        ethernet.set_dst(question.sender_mac);
        ethernet.set_src(own);
        self.counters.arp_answered += 1;
    }

    /// Notes the hardware address of a host that has mappings or forwards.
    fn learn(&mut self, vlan: Vlan, arp: &ArpRepr) {
        let host = self.state.find_host(vlan, arp.sender_ip.to_bits());
        let host = host.and_then(|host| self.state.hosts.get_mut(host));
        if let Some(host) = host
            && arp.sender_mac.is_unicast()
        {
            host.mac = arp.sender_mac;
        }
    }

    /// Addresses a frame to the inside host of a mapping, or asks who that is.
    pub(super) fn deliver(
        &mut self,
        now: Tenths,
        frame: &mut Frame<'_>,
        mapping: u32,
        outbox: &mut dyn Outbox,
    ) -> Result<(), DropReason> {
        let mapping = self.state.mappings.get(mapping);
        let host = mapping.and_then(|mapping| self.state.hosts.get_mut(mapping.host));
        let host = host.ok_or(DropReason::NoMapping)?;
        if host.mac.is_unicast() {
            EthernetFrame::new_unchecked(frame.bytes_mut()).set_dst(host.mac);
            return Ok(());
        }
        if now >= host.probe_again {
            host.probe_again = now.plus_secs(PROBE_INTERVAL_SECS);
            let address = Ipv4Addr::from_bits(host.address);
            self.ask(frame.bytes(), address, outbox);
        }
        Err(DropReason::InsideUnresolved)
    }

    /// Asks inside, in the VLAN of `occasion`, which host has `address`.
    fn ask(&mut self, occasion: &[u8], address: Ipv4Addr, outbox: &mut dyn Outbox) {
        let own: MacAddr = self.macs[usize::from(INSIDE)];
        let probe = ArpRepr::request(own, Ipv4Addr::UNSPECIFIED, address);
        let tags = VlanStack::peek(occasion);
        let tags = tags.as_ref().map_or(&[][..], VlanStack::tags);
        let mut buffer = [0; ARP_FRAME_MAX];
        let sent = build::arp(&mut buffer, tags, &probe).is_ok()
            && outbox.emit(INSIDE, &buffer[..ARP_FRAME_MAX - 4]);
        if sent {
            self.counters.arp_asked += 1;
        } else {
            self.counters.arp_unsent += 1;
        }
    }
}
