//! Forwarding of packets that the fast path cannot: options, no time to live, too large, or a next
//! hop whose Ethernet address is not known yet.

use super::Router;
use super::config::SourceRouted;
use super::fast::largest_packet;
use super::icmp::{Error, Offender};
use super::metrics::{DropReason, Made};
use super::options::{self, OptionError};
use super::slow::{Arrival, Verdict};
use crate::fragmentation::{Cut, Large};
use crate::function::Nanos;
use crate::traffic::OnWire;
use core::net::{IpAddr, Ipv4Addr};
use nfluid_ring::{Frame, Offload, Outbox};
use nfluid_wire::ipv4::{self, Ipv4Packet};
use nfluid_wire::ipv6::{self, Ipv6Packet};
use nfluid_wire::{EthernetFrame, MacAddr, ether};

/// Returns the drop reason and the sender's error for an option list that cannot be read on from its byte `at`.
pub(super) fn malformed_options(at: usize) -> (DropReason, Option<Error>) {
    let pointer = (ipv4::HEADER_LEN + at) as u32;
    (
        DropReason::BadOptions,
        Some(Error::ParameterProblem { pointer }),
    )
}

impl Router {
    /// Forwards a checked IPv4 packet to a neighbour (RFC 1812 section 5.3).
    pub(super) fn forward_ipv4(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &mut Frame<'_>,
        way: (u8, IpAddr),
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let mtu = self.ports[usize::from(way.0)].mtu;
        let packet = Ipv4Packet::new_unchecked(&frame.bytes()[ether::HEADER_LEN..]);
        let has_options = packet.header_len() > ipv4::HEADER_LEN;
        let refused = if has_options && let Err(error) = self.check_options(packet.header()) {
            Some(error)
        } else if packet.ttl() <= 1 {
            Some((DropReason::TtlExceeded, Some(Error::TimeExceeded)))
        } else if packet.dont_fragment() && !fits(frame, packet.total_len().into(), mtu) {
            Some((DropReason::TooBig, Some(Error::TooBig { mtu })))
        } else {
            None
        };
        if let Some((reason, error)) = refused {
            if let Some(error) = error {
                self.send_error(now, Offender::of(arrival, frame), error, outbox);
            }
            return Verdict::Drop(reason);
        }
        if let (true, IpAddr::V4(next_hop)) = (self.redirects && way.0 == arrival.port, way.1) {
            self.redirect(now, arrival, frame, next_hop, outbox);
        }
        let own = self.primary_ipv4(way.0, way.1);
        let mut packet = Ipv4Packet::new_unchecked(&mut frame.bytes_mut()[ether::HEADER_LEN..]);
        packet.decrement_ttl();
        if has_options {
            let header_len = packet.header_len();
            let bytes = &mut packet.into_inner()[..header_len];
            options::record(&mut bytes[ipv4::HEADER_LEN..], own, now);
            Ipv4Packet::new_unchecked(bytes).fill_checksum();
        }
        self.dispatch_ipv4(now, frame, way, outbox)
    }

    fn check_options(&self, header: &[u8]) -> Result<(), (DropReason, Option<Error>)> {
        match options::check(&header[ipv4::HEADER_LEN..]) {
            Ok(()) => Ok(()),
            Err(OptionError::SourceRoute { .. }) if self.source_routed == SourceRouted::Forward => {
                Ok(())
            }
            Err(OptionError::SourceRoute { .. }) => {
                Err((DropReason::SourceRouted, Some(Error::SourceRouteFailed)))
            }
            Err(OptionError::Malformed { at }) => Err(malformed_options(at)),
        }
    }

    /// Sends a finished IPv4 packet on its way, in fragments if it must be.
    pub(super) fn dispatch_ipv4(
        &mut self,
        now: Nanos,
        frame: &mut Frame<'_>,
        way: (u8, IpAddr),
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let mtu = self.ports[usize::from(way.0)].mtu;
        let packet = Ipv4Packet::new_unchecked(&frame.bytes()[ether::HEADER_LEN..]);
        if fits(frame, packet.total_len().into(), mtu) {
            return self.dispatch(now, frame, way, outbox);
        }
        // All parts leave as copies: a frame that leaves in place leaves behind the frames that were made of it.
        let large = Large {
            frame: frame.bytes(),
            offload: frame.offload(),
            l3: ether::HEADER_LEN,
            mtu,
        };
        let mut room = core::mem::take(&mut self.room);
        let mut first = None;
        let cut = large.send(&mut room, |made, is_later| {
            if is_later {
                self.counters.made(Made::Fragment);
            }
            if first.is_some() {
                self.emit_packet(now, way, made, outbox);
                return true;
            }
            let verdict = self.send_copy(now, way, made, outbox);
            first = Some(verdict);
            !matches!(verdict, Verdict::Drop(_))
        });
        self.room = room;
        match (cut, first) {
            (Cut::Done | Cut::Stopped, Some(verdict)) => verdict,
            _ => Verdict::Drop(DropReason::TooBig),
        }
    }

    /// Forwards a checked IPv6 packet to a neighbour (RFC 8200, RFC 4443 section 3).
    pub(super) fn forward_ipv6(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &mut Frame<'_>,
        way: (u8, IpAddr),
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let mtu = self.ports[usize::from(way.0)].mtu;
        let packet = Ipv6Packet::new_unchecked(&frame.bytes()[ether::HEADER_LEN..]);
        let length = ipv6::HEADER_LEN + usize::from(packet.payload_len());
        let refused = if packet.hop_limit() <= 1 {
            Some((DropReason::TtlExceeded, Error::TimeExceeded))
        } else if packet.src().is_unicast_link_local() {
            // RFC 4291 section 2.5.6.
            Some((DropReason::LinkLocal, Error::BeyondScope))
        } else if !fits(frame, length, mtu) {
            Some((DropReason::TooBig, Error::TooBig { mtu }))
        } else {
            None
        };
        if let Some((reason, error)) = refused {
            self.send_error(now, Offender::of(arrival, frame), error, outbox);
            return Verdict::Drop(reason);
        }
        Ipv6Packet::new_unchecked(&mut frame.bytes_mut()[ether::HEADER_LEN..])
            .decrement_hop_limit();
        self.dispatch(now, frame, way, outbox)
    }

    /// Sends a frame, in place, to a neighbour; a copy waits if its address is not known.
    pub(super) fn dispatch(
        &mut self,
        now: Nanos,
        frame: &mut Frame<'_>,
        (port, next_hop): (u8, IpAddr),
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let own = self.ports[usize::from(port)].mac;
        EthernetFrame::new_unchecked(frame.bytes_mut()).set_src(own);
        let waits = (frame.bytes(), frame.offload());
        match self.resolve(now, (port, next_hop), waits, outbox) {
            Ok(Some(mac)) => {
                EthernetFrame::new_unchecked(frame.bytes_mut()).set_dst(mac);
                Verdict::Forward(port)
            }
            Ok(None) => Verdict::Waiting,
            Err(reason) => Verdict::Drop(reason),
        }
    }

    /// Sends a frame that the router made, ethertype and packet in place, to a neighbour.
    pub(super) fn emit_packet(
        &mut self,
        now: Nanos,
        (port, next_hop): (u8, IpAddr),
        frame: &mut [u8],
        outbox: &mut dyn Outbox,
    ) {
        let verdict = self.send_copy(now, (port, next_hop), frame, outbox);
        if matches!(verdict, Verdict::Drop(_)) {
            self.counters.waiting_lost += 1;
        }
    }

    /// Sends a copy, and returns the verdict about it.
    fn send_copy(
        &mut self,
        now: Nanos,
        (port, next_hop): (u8, IpAddr),
        frame: &mut [u8],
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let own = self.ports[usize::from(port)].mac;
        EthernetFrame::new_unchecked(&mut *frame).set_src(own);
        match self.resolve(now, (port, next_hop), (frame, Offload::NONE), outbox) {
            Ok(Some(mac)) => {
                self.emit_to((port, mac), frame, Offload::NONE, outbox);
                Verdict::Copied
            }
            Ok(None) => Verdict::Waiting,
            Err(reason) => Verdict::Drop(reason),
        }
    }

    /// Sends a frame that is complete but for its destination.
    pub(super) fn emit_to(
        &mut self,
        (port, mac): (u8, MacAddr),
        frame: &mut [u8],
        offload: Offload,
        outbox: &mut dyn Outbox,
    ) {
        EthernetFrame::new_unchecked(&mut *frame).set_dst(mac);
        if !outbox.emit_offload(port, frame, offload) {
            self.counters.no_room += OnWire::of_bytes(frame.len(), offload).packets();
        }
    }

    /// Sends a frame as it is.
    pub(super) fn emit(&mut self, port: u8, frame: &[u8], outbox: &mut dyn Outbox) {
        if !outbox.emit(port, frame) {
            self.counters.no_room += 1;
        }
    }

    /// The address for which the router is known on the link to a next hop: the one in the next
    /// hop's network, else the port's first, else the router's first (RFC 1812 section 4.3.2.4).
    pub(super) fn primary_ipv4(&self, port: u8, next_hop: IpAddr) -> Ipv4Addr {
        let on = &self.ports[usize::from(port)];
        if let Some(IpAddr::V4(own)) = on.network_of(next_hop) {
            return own;
        }
        let first_of = |port: &super::config::Port| port.v4.first().map(|own| own.0);
        first_of(on)
            .or_else(|| self.ports.iter().find_map(first_of))
            .unwrap_or(Ipv4Addr::UNSPECIFIED)
    }
}

/// Returns true if no packet that the frame becomes is larger than the MTU. `total_len` are the bytes of a frame that is
/// one packet.
fn fits(frame: &Frame<'_>, total_len: usize, mtu: u16) -> bool {
    largest_packet(frame, total_len) <= usize::from(mtu)
}
