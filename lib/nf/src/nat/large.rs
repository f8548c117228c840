//! Packets that are too large for the port by which they leave: ICMP "fragmentation needed" to their sender, or, without
//! "don't fragment", fragments in order (RFC 4787 REQ-13, RFC 1812 sections 4.2.2.7 and 4.3.3.3). Both ways. Of a
//! super-frame, the packets count, not the frame.

use super::Nat;
use super::clock::Tenths;
use super::metrics::{DropReason, Made};
use super::packet::Packet;
use super::process::Work;
use crate::fragmentation::{Cut, Large};
use crate::function::PortInfo;
use crate::traffic::OnWire;
use alloc::vec;
use alloc::vec::Vec;
use nfluid_ring::{Frame, Offload, Outbox};
use nfluid_wire::ether;
use nfluid_wire::icmpv4::unreachable_code;
use nfluid_wire::ipv4::Ipv4Packet;

/// Bytes at the start of a frame that a translation can change: up to the end of the packet that an ICMP error quotes,
/// as far as ports and checksum are there.
const TRANSLATED_MAX: usize = 256;

/// Longest link header: with as many tags as there can be before an IPv4 header that is looked at.
const LINK_MAX: usize = ether::HEADER_LEN + ether::MAX_VLAN_TAGS * ether::VLAN_TAG_LEN;

/// Smallest MTU of a link that carries IPv4 (RFC 791). A port that has less does not know its own.
const MTU_MIN: u16 = 68;

/// The largest packet that each port carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mtus {
    of: [usize; 2],
    /// The smaller MTU: the destination of a packet that is not larger does not matter.
    least: usize,
}

impl Mtus {
    /// Of the inside and the outside port.
    pub(super) fn new(inside: &PortInfo, outside: &PortInfo) -> Mtus {
        let of = [inside, outside].map(|port| match port.mtu {
            ..MTU_MIN => usize::MAX,
            mtu => usize::from(mtu),
        });
        let least = of[0].min(of[1]);
        Mtus { of, least }
    }

    fn of_port(&self, port: u8) -> usize {
        self.of[usize::from(port & 1)]
    }

    /// Returns true for an IPv4 packet that does not fit both ports. Of a super-frame, the packets may fit.
    #[inline]
    pub(super) fn is_large(&self, packet: &Packet) -> bool {
        packet.end.saturating_sub(packet.l3) > self.least
    }

    /// Room for a frame with a packet of the largest known MTU.
    pub(super) fn room(&self) -> Vec<u8> {
        let known = self.of.iter().filter(|mtu| **mtu != usize::MAX);
        let largest = known.max().copied().unwrap_or_default();
        vec![0; LINK_MAX + largest]
    }
}

impl Nat {
    /// Decides about a packet that may be too large for the port by which it leaves, and carries it out. Returns true if it passes.
    #[cold]
    pub(super) fn take_large(
        &mut self,
        now: Tenths,
        frame: &mut Frame<'_>,
        work: &Work,
        outbox: &mut dyn Outbox,
    ) -> bool {
        let packet = &work.packet;
        let from = frame.in_port();
        // An error quotes the packet as it arrived, and only one that may pass is answered by one.
        let mut arrived = [0; TRANSLATED_MAX];
        let arrived = &mut arrived[..frame.len().min(TRANSLATED_MAX)];
        arrived.copy_from_slice(&frame.bytes()[..arrived.len()]);
        let verdict = self.decide(now, frame, work, outbox);
        let in_fragments = match verdict {
            // A packet that goes back has come by the same port.
            Ok(port) if port != from => {
                let translated = (frame.bytes(), frame.offload());
                self.send_in_fragments(port, translated, packet, outbox)
            }
            _ => None,
        };
        let reason = match (in_fragments, verdict) {
            (None, Ok(port)) => {
                self.counters.forwarded.count(from, OnWire::of(frame));
                frame.send(port);
                return true;
            }
            (Some(Ok(())), _) => {
                self.counters.forwarded.count(from, OnWire::of(frame));
                frame.discard();
                return true;
            }
            (Some(Err(reason)), _) | (None, Err(reason)) => reason,
        };
        if let (DropReason::TooBig, Ok(port)) = (reason, verdict) {
            frame.bytes_mut()[..arrived.len()].copy_from_slice(arrived);
            let [high, low] = (self.mtus.of_port(port) as u16).to_be_bytes();
            let code = unreachable_code::FRAGMENTATION_NEEDED;
            let error = (Made::TooBig, code, [0, 0, high, low]);
            self.send_error(now, frame, packet, error, outbox);
        }
        self.stop(now, frame, work, reason, outbox);
        false
    }

    /// Sends the translated packets of a frame in fragments. `None`: they fit the port as they are.
    pub(super) fn send_in_fragments(
        &mut self,
        port: u8,
        (frame, offload): (&[u8], Offload),
        packet: &Packet,
        outbox: &mut dyn Outbox,
    ) -> Option<Result<(), DropReason>> {
        let mtu = self.mtus.of_port(port);
        if packet.size(frame.len(), offload) <= mtu {
            return None;
        }
        let whole = Ipv4Packet::new_unchecked(&frame[packet.l3..]);
        if whole.dont_fragment() {
            return Some(Err(DropReason::TooBig));
        }
        // Fragments get checksums of their own: they would make a broken header good.
        if !whole.verify_checksum() {
            return Some(Err(DropReason::Malformed));
        }
        let large = Large {
            frame,
            offload,
            l3: packet.l3,
            mtu: mtu as u16,
        };
        let (mut fragmented, mut was_later) = (0, false);
        let cut = large.send(&mut self.room, |part, is_later| {
            fragmented += u64::from(is_later && !was_later);
            was_later = is_later;
            outbox.emit(port, part)
        });
        if cut != Cut::Done {
            return Some(Err(DropReason::NoRoom));
        }
        self.counters.fragmented += fragmented;
        Some(Ok(()))
    }
}
