//! ICMP "communication administratively prohibited" to the sender of a packet that cannot pass.
//!
//! RFC 5508 REQ-8 asks for an error where no session can be made for a new flow, for want of room or by the
//! configuration. Only hosts inside get the error: hosts outside learn nothing (RFC 5508 REQ-9, RFC 5382 REQ-4), and
//! their packets make the NAT send no packets.

use super::Nat;
use super::clock::Tenths;
use super::metrics::{DropReason, Made};
use super::packet::Packet;
use super::process::INSIDE;
use crate::icmp_error::{self, OffenderRoom};
use core::net::Ipv4Addr;
use nfluid_ring::{Frame, Outbox};
use nfluid_wire::icmpv4::{Icmpv4Type, unreachable_code};
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::{IpProtocol, build};

impl DropReason {
    /// Returns true if the packet would have begun a flow, and the flow is refused.
    fn is_refusal(self) -> bool {
        matches!(
            self,
            DropReason::OtherProtocol
                | DropReason::Untranslated
                | DropReason::SessionsFull
                | DropReason::HostsFull
                | DropReason::HostQuota
                | DropReason::PortsExhausted
                | DropReason::HairpinOff
        )
    }
}

impl Nat {
    /// Notifies the sender of a dropped packet that its flow is refused, if it is.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        now: Tenths,
        frame: &Frame<'_>,
        packet: &Packet,
        reason: DropReason,
        outbox: &mut dyn Outbox,
    ) {
        if frame.in_port() != INSIDE || !reason.is_refusal() {
            return;
        }
        // A packet that has turned back has another source by now, and is one from outside.
        let source = Ipv4Packet::new_unchecked(&frame.bytes()[packet.l3..]).src();
        if source.to_bits() == packet.src.address {
            let code = unreachable_code::ADMIN_PROHIBITED;
            self.send_error(now, frame, packet, (Made::Prohibited, code, [0; 4]), outbox);
        }
    }

    /// Sends "destination unreachable" about a packet as it arrived; `rest` are the four bytes after the checksum.
    pub(super) fn send_error(
        &mut self,
        now: Tenths,
        frame: &Frame<'_>,
        packet: &Packet,
        (kind, code, rest): (Made, u8, [u8; 4]),
        outbox: &mut dyn Outbox,
    ) {
        let from = self.own_address(packet.dst.address);
        let to = Ipv4Addr::from_bits(packet.src.address);
        let bytes = frame.bytes();
        let ends = (from.to_bits(), to.to_bits());
        let (idents, hasher) = (&mut self.idents, self.state.hasher);
        let limit = &mut self.error_limits[usize::from(frame.in_port() & 1)];
        let sent = icmp_error::answer(limit, now.nanos(), frame, outbox, |_, buffer| {
            let mut room = OffenderRoom::EMPTY;
            let quoted = icmp_error::offender(bytes, frame.offload(), packet.l3, &mut room)?;
            let tos = Ipv4Packet::new_unchecked(quoted).tos();
            let unreachable = Icmpv4Type::DEST_UNREACHABLE.0;
            let error = build::Frame::icmp(from.into(), to.into(), unreachable, code, rest)
                .traffic_class(icmp_error::control_class(tos))
                .ident(idents.take(hasher, ends, IpProtocol::ICMPV4));
            icmp_error::write_back(bytes, error, quoted, buffer)
        });
        self.counters.made(kind, sent);
    }

    /// The external address by which the NAT answers a packet to `destination`: that one if it is external.
    fn own_address(&self, destination: u32) -> Ipv4Addr {
        let pool = &self.state.pool;
        let meant = pool.iter().find(|&&address| address == destination);
        let own = meant.or(pool.first()).copied();
        Ipv4Addr::from_bits(own.unwrap_or_default())
    }
}
