//! Packets that are too large for the port by which they leave: ICMP "fragmentation needed" to their sender, or, without
//! "don't fragment", fragments in order (RFC 4787 REQ-13, RFC 1812 sections 4.2.2.7 and 4.3.3.3). Both ways.

use super::Nat;
use super::clock::Tenths;
use super::metrics::{DropReason, Made};
use super::packet::Packet;
use super::process::Work;
use crate::fragmentation::{Cut, Large};
use crate::function::PortInfo;
use crate::traffic::OnWire;
use nfluid_ring::layout::SLOT_SIZE;
use nfluid_ring::{Frame, Offload, Outbox};
use nfluid_wire::icmpv4::unreachable_code;
use nfluid_wire::ipv4::Ipv4Packet;

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

    /// Returns true for an IPv4 packet that does not fit both ports.
    #[inline]
    pub(super) fn is_large(&self, packet: &Packet) -> bool {
        packet.end.saturating_sub(packet.l3) > self.least
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
        let mut arrived = [0; SLOT_SIZE];
        let arrived = &mut arrived[..frame.len()];
        arrived.copy_from_slice(frame.bytes());
        let verdict = self.decide(now, frame, work, outbox);
        let in_fragments = match verdict {
            // A packet that goes back has come by the same port.
            Ok(port) if port != from => self.send_in_fragments(port, frame.bytes(), packet, outbox),
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
            frame.bytes_mut().copy_from_slice(arrived);
            let [high, low] = (self.mtus.of_port(port) as u16).to_be_bytes();
            let code = unreachable_code::FRAGMENTATION_NEEDED;
            let error = (Made::TooBig, code, [0, 0, high, low]);
            self.send_error(now, frame, packet, error, outbox);
        }
        self.stop(now, frame, work, reason, outbox);
        false
    }

    /// Sends a translated packet in fragments. `None`: the packet fits the port as it is.
    pub(super) fn send_in_fragments(
        &mut self,
        port: u8,
        frame: &[u8],
        packet: &Packet,
        outbox: &mut dyn Outbox,
    ) -> Option<Result<(), DropReason>> {
        let mtu = self.mtus.of_port(port);
        if packet.end - packet.l3 <= mtu {
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
        let mut buffer = [0; SLOT_SIZE];
        let large = Large {
            frame,
            offload: Offload::NONE,
            l3: packet.l3,
            mtu: mtu as u16,
        };
        if large.send(&mut buffer, |part, _| outbox.emit(port, part)) != Cut::Done {
            return Some(Err(DropReason::NoRoom));
        }
        self.counters.fragmented += 1;
        Some(Ok(()))
    }
}
