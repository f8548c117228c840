//! ICMP errors: whether an error may be sent, its quotation, its source address (RFC 792, RFC 1122 section 3.2.2, RFC
//! 1191, RFC 1812 section 4.3.2, RFC 4443 section 2.4).

use super::Router;
use super::config::is_link_local;
use super::hops::Target;
use super::metrics::Made;
use super::slow::Arrival;
use crate::function::Nanos;
use crate::icmp_error::{self, OffenderRoom};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nfluid_ring::layout::SLOT_SIZE;
use nfluid_ring::{Frame, Offload, Outbox};
use nfluid_wire::icmpv4::{self, Icmpv4Type};
use nfluid_wire::icmpv6::Icmpv6Type;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::Ipv6Packet;
use nfluid_wire::{EtherType, EthernetFrame, IpProtocol, build, ether, icmpv6};

/// Time to live of packets that the router makes.
pub(super) const OWN_TTL: u8 = 64;

/// The kind of error, in the terms of both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Error {
    NoRoute,
    HostUnreachable,
    /// An `unreachable` route. IPv6 has a code of its own for it.
    RejectRoute,
    /// No such protocol; `pointer` is where its number stands in the packet.
    ProtocolUnreachable {
        pointer: u32,
    },
    PortUnreachable,
    /// Link-local source, IPv6 only.
    BeyondScope,
    TooBig {
        mtu: u16,
    },
    TimeExceeded,
    ParameterProblem {
        pointer: u32,
    },
    /// An IPv6 option that is to be reported; `even_to_many`: also where the packet was for a group.
    UnknownOption {
        pointer: u32,
        even_to_many: bool,
    },
    /// The router is no hop of source routes (IPv4 only).
    SourceRouteFailed,
    /// `gateway` is on the source's link and nearer (IPv4 only).
    Redirect {
        gateway: Ipv4Addr,
    },
}

impl Error {
    fn kind(self) -> Made {
        match self {
            Error::TooBig { .. } => Made::TooBig,
            Error::TimeExceeded => Made::TimeExceeded,
            Error::ParameterProblem { .. } | Error::UnknownOption { .. } => Made::ParameterProblem,
            Error::Redirect { .. } => Made::Redirect,
            _ => Made::Unreachable,
        }
    }

    /// Type, code and the four bytes after the checksum.
    fn icmpv4(self) -> (u8, u8, [u8; 4]) {
        use icmpv4::unreachable_code as code;
        let unreachable = |code| (Icmpv4Type::DEST_UNREACHABLE.0, code, [0; 4]);
        match self {
            Error::NoRoute => unreachable(code::NET),
            Error::HostUnreachable | Error::RejectRoute | Error::BeyondScope => {
                unreachable(code::HOST)
            }
            Error::ProtocolUnreachable { .. } => unreachable(code::PROTOCOL),
            Error::PortUnreachable => unreachable(code::PORT),
            Error::SourceRouteFailed => unreachable(code::SOURCE_ROUTE_FAILED),
            Error::TooBig { mtu } => {
                let [high, low] = mtu.to_be_bytes();
                let code = code::FRAGMENTATION_NEEDED;
                (Icmpv4Type::DEST_UNREACHABLE.0, code, [0, 0, high, low])
            }
            Error::Redirect { gateway } => {
                /// "Redirect for host": networks have lengths that a host does not know (RFC 1812 section 5.2.7.2).
                const HOST: u8 = 1;
                (Icmpv4Type::REDIRECT.0, HOST, gateway.octets())
            }
            Error::TimeExceeded => (Icmpv4Type::TIME_EXCEEDED.0, 0, [0; 4]),
            Error::ParameterProblem { pointer } | Error::UnknownOption { pointer, .. } => {
                (Icmpv4Type::PARAM_PROBLEM.0, 0, [pointer as u8, 0, 0, 0])
            }
        }
    }

    /// As [`Error::icmpv4`].
    fn icmpv6(self) -> (u8, u8, [u8; 4]) {
        use icmpv6::unreachable_code as code;
        /// "Reject route to destination", RFC 4443 section 3.1.
        const REJECT_ROUTE: u8 = 6;
        /// "Unrecognized next header type encountered", RFC 4443 section 3.4.
        const NEXT_HEADER: u8 = 1;
        /// "Unrecognized IPv6 option encountered", RFC 4443 section 3.4.
        const OPTION: u8 = 2;
        let unreachable = |code| (Icmpv6Type::DEST_UNREACHABLE.0, code, [0; 4]);
        match self {
            Error::NoRoute => unreachable(code::NO_ROUTE),
            Error::HostUnreachable | Error::Redirect { .. } => unreachable(code::ADDRESS),
            Error::RejectRoute | Error::SourceRouteFailed => unreachable(REJECT_ROUTE),
            Error::PortUnreachable => unreachable(code::PORT),
            Error::BeyondScope => unreachable(code::BEYOND_SCOPE),
            Error::ProtocolUnreachable { pointer } => (
                Icmpv6Type::PARAM_PROBLEM.0,
                NEXT_HEADER,
                pointer.to_be_bytes(),
            ),
            Error::TooBig { mtu } => (
                Icmpv6Type::PACKET_TOO_BIG.0,
                0,
                u32::from(mtu).to_be_bytes(),
            ),
            Error::TimeExceeded => (Icmpv6Type::TIME_EXCEEDED.0, 0, [0; 4]),
            Error::ParameterProblem { pointer } => {
                (Icmpv6Type::PARAM_PROBLEM.0, 0, pointer.to_be_bytes())
            }
            Error::UnknownOption { pointer, .. } => {
                (Icmpv6Type::PARAM_PROBLEM.0, OPTION, pointer.to_be_bytes())
            }
        }
    }
}

/// The packet that an error is about: a frame whose IP header has been checked. Of a super-frame, its first packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offender<'a> {
    pub arrival: Arrival,
    pub frame: &'a [u8],
    pub offload: Offload,
}

impl<'a> Offender<'a> {
    pub(super) fn of(arrival: Arrival, frame: &'a Frame<'_>) -> Self {
        Offender {
            arrival,
            frame: frame.bytes(),
            offload: frame.offload(),
        }
    }
}

impl Router {
    /// Sends an error about a packet to its source, where that is allowed and the rate permits.
    pub(super) fn send_error(
        &mut self,
        now: Nanos,
        about: Offender<'_>,
        error: Error,
        outbox: &mut dyn Outbox,
    ) {
        let packet = &about.frame[ether::HEADER_LEN..];
        let ethertype = EthernetFrame::new_unchecked(about.frame).ethertype();
        let addresses = match ethertype {
            EtherType::IPV4 => error_addresses_v4(packet, about.arrival),
            _ => error_addresses_v6(packet, about.arrival, error),
        };
        let Some((own, source)) = addresses else {
            return;
        };
        let target = self.fib.target(source);
        let way = if is_link_local(source) {
            Ok((about.arrival.port, source))
        } else {
            self.way(target, source)
        };
        let Ok(way) = way else {
            return;
        };
        let budget = &mut self.icmp_budget[usize::from(about.arrival.port)];
        if !budget.take(self.icmp_rate, now) {
            self.counters.icmp_limited += 1;
            return;
        }
        let from = match (own, source) {
            // The packet was for the router: the answer comes from where it was sent to.
            (Some(own), _) if self.is_own(own) => own,
            (_, IpAddr::V4(_)) => self.primary_ipv4(way.0, way.1).into(),
            (_, IpAddr::V6(source)) => match self.primary_ipv6(way.0, source) {
                Some(from) => from.into(),
                None => return,
            },
        };
        let mut buffer = [0u8; SLOT_SIZE];
        let mut offender = OffenderRoom::EMPTY;
        let offender =
            icmp_error::offender(about.frame, about.offload, ether::HEADER_LEN, &mut offender);
        let length = offender
            .and_then(|packet| self.write_error(&mut buffer, (from, source), packet, error));
        let Some(length) = length else {
            return;
        };
        self.counters.made(error.kind());
        self.emit_packet(now, way, &mut buffer[..length], outbox);
    }

    fn write_error(
        &mut self,
        buffer: &mut [u8],
        (from, to): (IpAddr, IpAddr),
        packet: &[u8],
        error: Error,
    ) -> Option<usize> {
        let (kind, code, rest) = match to {
            IpAddr::V4(_) => error.icmpv4(),
            IpAddr::V6(_) => error.icmpv6(),
        };
        let frame = build::Frame::icmp(from, to, kind, code, rest).ttl(OWN_TTL);
        let frame = match to {
            IpAddr::V4(_) => {
                let tos = Ipv4Packet::new_unchecked(packet).tos();
                let tos = icmp_error::control_class(tos);
                frame.traffic_class(tos).ident(self.next_ident())
            }
            IpAddr::V6(_) => frame,
        };
        icmp_error::write(frame, packet, buffer)
    }

    /// Identification of the next packet that the router makes.
    pub(super) fn next_ident(&mut self) -> u16 {
        self.ident = self.ident.wrapping_add(1);
        self.ident
    }

    /// Returns true if the router answers by this address: for an anycast address, another address of the router
    /// answers (RFC 4443 section 2.2).
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        match self.fib.target(address) {
            Target::Local { port } => self.ports[usize::from(port)].owns(address),
            _ => false,
        }
    }

    /// The source address towards `to`, after RFC 6724: of the same scope, on the port it leaves
    /// by, with the longest common prefix.
    pub(super) fn primary_ipv6(&self, port: u8, to: Ipv6Addr) -> Option<Ipv6Addr> {
        let on = &self.ports[usize::from(port)];
        if to.is_unicast_link_local() {
            return on.link_local;
        }
        let common = |own: &Ipv6Addr| (own.to_bits() ^ to.to_bits()).leading_zeros();
        let best_of = |port: &super::config::Port| {
            let all = port.v6.iter().rev().map(|own| own.0);
            all.max_by_key(common)
        };
        best_of(on)
            .or_else(|| self.ports.iter().find_map(best_of))
            .or(on.link_local)
    }
}

/// The offender's destination, where the router itself could be meant, and its source, to which the
/// error goes. `None`: no error may be sent.
type ErrorAddresses = Option<(Option<IpAddr>, IpAddr)>;

fn error_addresses_v4(packet: &[u8], arrival: Arrival) -> ErrorAddresses {
    let packet = Ipv4Packet::new_unchecked(packet);
    let (source, destination) = (packet.src(), packet.dst());
    let to_many = arrival.to_many || destination.is_multicast() || destination.is_broadcast();
    if to_many || packet.fragment_offset() != 0 || !icmp_error::is_host(source.into()) {
        return None;
    }
    if packet.protocol() == IpProtocol::ICMPV4 {
        let kind = packet.payload().first()?;
        if is_error_or_unknown(Icmpv4Type(*kind)) {
            return None;
        }
    }
    Some((Some(destination.into()), source.into()))
}

/// Types that are no query and no answer known since RFC 1122 may be errors.
fn is_error_or_unknown(kind: Icmpv4Type) -> bool {
    const ADDRESS_MASK_REPLY: u8 = 18;
    kind.is_error() || kind.0 > ADDRESS_MASK_REPLY
}

fn error_addresses_v6(packet: &[u8], arrival: Arrival, error: Error) -> ErrorAddresses {
    let packet = Ipv6Packet::new_unchecked(packet);
    let (source, destination) = (packet.src(), packet.dst());
    // RFC 4443 section 2.4 (e.3): path MTU discovery works for multicast too, and some options ask for it.
    let to_many = arrival.to_many || destination.is_multicast();
    let even_to_many = matches!(
        error,
        Error::TooBig { .. }
            | Error::UnknownOption {
                even_to_many: true,
                ..
            }
    );
    let allowed = !to_many || even_to_many;
    if !allowed || source.is_unspecified() || source.is_multicast() {
        return None;
    }
    let layer = packet.upper_layer().ok()?;
    if layer.fragment.is_some_and(|fragment| fragment.offset != 0) {
        return None;
    }
    if layer.protocol == IpProtocol::ICMPV6 {
        let kind = Icmpv6Type(*packet.payload().get(layer.offset)?);
        if kind.is_error() || kind == Icmpv6Type::REDIRECT {
            return None;
        }
    }
    let own = (!destination.is_multicast()).then_some(destination.into());
    Some((own, source.into()))
}
