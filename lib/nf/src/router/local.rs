//! Packets for the router itself. The router answers echo requests and refuses all other packets with an error to the
//! sender: it runs no services. The router does not reassemble fragments.

use super::Router;
use super::config::is_link_local;
use super::extensions;
use super::forward::malformed_options;
use super::icmp::{Error, OWN_TTL, Offender};
use super::metrics::{DropReason, Made};
use super::options::{self, OptionError};
use super::slow::{Arrival, Verdict};
use crate::function::Nanos;
use core::net::{IpAddr, SocketAddr};
use nfluid_ring::{Frame, Outbox};
use nfluid_wire::icmpv4::{Icmpv4Packet, Icmpv4Type};
use nfluid_wire::icmpv6::{Icmpv6Packet, Icmpv6Type};
use nfluid_wire::ipv4::{self, Ipv4Packet};
use nfluid_wire::ipv6::{self, Ipv6Packet, UpperLayer};
use nfluid_wire::tcp::{self, TcpFlags, TcpPacket};
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{ChecksumState, IpProtocol, build, ether};

/// The answer to a transport message for the router.
enum Answer {
    Nothing(DropReason),
    Error(Error),
    Reset(Reset),
}

/// The two ends of an answer, and its traffic class.
struct Ends {
    from: IpAddr,
    to: IpAddr,
    traffic_class: u8,
}

/// Congestion notification, which an answer does not take over (RFC 3168 section 6.1.4).
const ECN: u8 = 3;

/// A TCP reset (RFC 9293 section 3.10.7.1).
struct Reset {
    from: SocketAddr,
    to: SocketAddr,
    traffic_class: u8,
    seq: u32,
    ack: u32,
    flags: TcpFlags,
}

impl Router {
    /// Takes a checked IPv4 packet to one of the router's addresses.
    pub(super) fn deliver_ipv4(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &mut Frame<'_>,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let packet = Ipv4Packet::new_unchecked(&frame.bytes()[ether::HEADER_LEN..]);
        if let Err((reason, error)) = check_options(packet.header()) {
            if let Some(error) = error {
                self.send_error(now, Offender::of(arrival, frame), error, outbox);
            }
            return Verdict::Drop(reason);
        }
        if packet.is_fragment() {
            return Verdict::Drop(DropReason::LocalFragment);
        }
        let between = Ends {
            from: packet.dst().into(),
            to: packet.src().into(),
            traffic_class: packet.tos(),
        };
        let checksum = (packet.pseudo_header(), frame.checksum_state());
        let answer = match packet.protocol() {
            IpProtocol::ICMPV4 => return self.receive_icmpv4(now, frame, outbox),
            IpProtocol::UDP => answer_udp(packet.payload(), checksum),
            IpProtocol::TCP => answer_tcp(packet.payload(), checksum, between),
            _ => Answer::Error(Error::ProtocolUnreachable { pointer: 0 }),
        };
        self.answer(now, arrival, frame, answer, outbox)
    }

    /// Takes a checked IPv6 packet to one of the router's addresses or groups.
    pub(super) fn deliver_ipv6(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &mut Frame<'_>,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let packet = Ipv6Packet::new_unchecked(&frame.bytes()[ether::HEADER_LEN..]);
        let Ok(layer) = packet.upper_layer() else {
            return Verdict::Drop(DropReason::LocalMalformed);
        };
        if layer.fragment.is_some_and(|fragment| !fragment.is_atomic()) {
            return Verdict::Drop(DropReason::LocalFragment);
        }
        let named_at = match extensions::check(&packet, &layer) {
            Ok(named_at) => named_at,
            Err(error) => {
                if let Some(error) = error {
                    self.send_error(now, Offender::of(arrival, frame), error, outbox);
                }
                return Verdict::Drop(DropReason::BadOptions);
            }
        };
        let between = Ends {
            from: packet.dst().into(),
            to: packet.src().into(),
            traffic_class: packet.traffic_class(),
        };
        let message = packet.payload().get(layer.offset..).unwrap_or_default();
        let checksum = (ipv6::pseudo_header(&packet, &layer), frame.checksum_state());
        let answer = match layer.protocol {
            IpProtocol::ICMPV6 => return self.receive_icmpv6(now, arrival, frame, &layer, outbox),
            IpProtocol::UDP => answer_udp(message, checksum),
            IpProtocol::TCP => answer_tcp(message, checksum, between),
            IpProtocol::IPV6_NO_NEXT => Answer::Nothing(DropReason::LocalUnused),
            _ => Answer::Error(Error::ProtocolUnreachable { pointer: named_at }),
        };
        self.answer(now, arrival, frame, answer, outbox)
    }

    fn answer(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &Frame<'_>,
        answer: Answer,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        match answer {
            Answer::Nothing(reason) => Verdict::Drop(reason),
            Answer::Error(error) => {
                self.send_error(now, Offender::of(arrival, frame), error, outbox);
                Verdict::Drop(DropReason::LocalUnused)
            }
            Answer::Reset(reset) => {
                if !arrival.to_many {
                    self.send_reset(now, arrival, &reset, outbox);
                }
                Verdict::Drop(DropReason::LocalUnused)
            }
        }
    }

    /// The port and next hop for an answer to `source`.
    fn way_back(&self, source: IpAddr, port: u8) -> Option<(u8, IpAddr)> {
        if is_link_local(source) {
            return Some((port, source));
        }
        self.way(self.fib.target(source), source).ok()
    }

    fn send_reset(&mut self, now: Nanos, arrival: Arrival, reset: &Reset, outbox: &mut dyn Outbox) {
        let Some(way) = self.way_back(reset.to.ip(), arrival.port) else {
            return;
        };
        if !self.icmp_budget[usize::from(arrival.port)].take(self.icmp_rate, now) {
            self.counters.icmp_limited += 1;
            return;
        }
        let transport = build::Transport::Tcp {
            src_port: reset.from.port(),
            dst_port: reset.to.port(),
            seq: reset.seq,
            ack: reset.ack,
            flags: reset.flags,
            window: 0,
            options: &[],
        };
        let frame = build::Frame::new(reset.from.ip(), reset.to.ip(), transport)
            .traffic_class(reset.traffic_class)
            .ident(self.next_ident())
            .ttl(OWN_TTL);
        let mut buffer = [0u8; ether::HEADER_LEN + ipv6::HEADER_LEN + tcp::HEADER_LEN];
        if let Ok(length) = frame.write(&mut buffer, &[]) {
            self.counters.made(Made::Reset);
            self.emit_packet(now, way, &mut buffer[..length], outbox);
        }
    }

    /// Answers an echo request in place. Of its options, record route and timestamp go back, with the router's own
    /// address in them (RFC 1122 section 3.2.2.6).
    fn receive_icmpv4(
        &mut self,
        now: Nanos,
        frame: &mut Frame<'_>,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let packet = Ipv4Packet::new_unchecked(&frame.bytes()[ether::HEADER_LEN..]);
        let Ok(message) = Icmpv4Packet::new_checked(packet.payload()) else {
            return Verdict::Drop(DropReason::LocalMalformed);
        };
        if !message.verify_checksum() {
            return Verdict::Drop(DropReason::LocalMalformed);
        }
        if message.msg_type() != Icmpv4Type::ECHO_REQUEST || message.code() != 0 {
            return Verdict::Drop(DropReason::LocalUnused);
        }
        let (source, own) = (packet.src(), packet.dst());
        let Some(way) = self.way_back(source.into(), 0) else {
            return Verdict::Drop(DropReason::NoRoute);
        };
        let (header_len, total_len) = (packet.header_len(), usize::from(packet.total_len()));
        let ident = self.next_ident();

        let bytes = &mut frame.bytes_mut()[ether::HEADER_LEN..];
        let options = &mut bytes[ipv4::HEADER_LEN..header_len];
        let start = if options::keep_records(options) {
            options::record(options, own, now);
            header_len
        } else {
            bytes.copy_within(header_len..total_len, ipv4::HEADER_LEN);
            ipv4::HEADER_LEN
        };
        let length = total_len - header_len + start;
        let mut reply = Ipv4Packet::new_unchecked(&mut *bytes);
        reply.set_version_and_header_len(start);
        reply.set_total_len(length as u16);
        reply.set_ident(ident);
        reply.set_fragmentation(false, false, 0);
        reply.set_ttl(OWN_TTL);
        reply.set_src(own);
        reply.set_dst(source);
        reply.fill_checksum();
        let mut message = Icmpv4Packet::new_unchecked(reply.payload_mut());
        message.set_msg_type(Icmpv4Type::ECHO_REPLY);
        message.fill_checksum();
        super::fast::trim(frame, length);
        self.counters.made(Made::EchoReply);
        reply_verdict(self.dispatch_ipv4(now, frame, way, outbox))
    }

    fn receive_icmpv6(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        frame: &mut Frame<'_>,
        layer: &UpperLayer,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let packet = Ipv6Packet::new_unchecked(&frame.bytes()[ether::HEADER_LEN..]);
        let (source, destination) = (packet.src(), packet.dst());
        let Ok(message) =
            Icmpv6Packet::new_checked(packet.payload().get(layer.offset..).unwrap_or_default())
        else {
            return Verdict::Drop(DropReason::LocalMalformed);
        };
        match message.msg_type() {
            // RFC 6980: neighbour discovery is never fragmented.
            Icmpv6Type::NEIGHBOR_SOLICIT | Icmpv6Type::NEIGHBOR_ADVERT
                if layer.fragment.is_none() =>
            {
                return self.receive_nd(now, arrival, frame.bytes(), layer.offset, outbox);
            }
            _ if !message.verify_checksum(source, destination) => {
                return Verdict::Drop(DropReason::LocalMalformed);
            }
            Icmpv6Type::MLD_QUERY => {
                let packet = &frame.bytes()[ether::HEADER_LEN..];
                return self.receive_query(now, arrival.port, packet, layer.offset);
            }
            Icmpv6Type::ECHO_REQUEST if message.code() == 0 && !source.is_unspecified() => {}
            _ => return Verdict::Drop(DropReason::LocalUnused),
        }
        let Some(way) = self.way_back(source.into(), arrival.port) else {
            return Verdict::Drop(DropReason::NoRoute);
        };
        let own = if !self.is_own(destination.into()) && !destination.is_unicast_link_local() {
            self.primary_ipv6(way.0, source)
        } else {
            Some(destination)
        };
        let Some(own) = own else {
            return Verdict::Drop(DropReason::LocalUnused);
        };
        let length = packet.payload().len() - layer.offset;
        if ipv6::HEADER_LEN + length > usize::from(self.ports[usize::from(way.0)].mtu) {
            return Verdict::Drop(DropReason::TooBig);
        }
        let bytes = &mut frame.bytes_mut()[ether::HEADER_LEN..];
        let start = ipv6::HEADER_LEN + layer.offset;
        bytes.copy_within(start..start + length, ipv6::HEADER_LEN);
        let mut reply = Ipv6Packet::new_unchecked(&mut *bytes);
        reply.set_payload_len(length as u16);
        reply.set_next_header(IpProtocol::ICMPV6);
        reply.set_hop_limit(OWN_TTL);
        reply.set_src(own);
        reply.set_dst(source);
        let mut message = Icmpv6Packet::new_unchecked(reply.payload_mut());
        message.set_msg_type(Icmpv6Type::ECHO_REPLY);
        message.fill_checksum(own, source);
        super::fast::trim(frame, ipv6::HEADER_LEN + length);
        self.counters.made(Made::EchoReply);
        reply_verdict(self.dispatch(now, frame, way, outbox))
    }
}

/// An answer was not forwarded.
fn reply_verdict(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Forward(port) => Verdict::Reply(port),
        Verdict::Waiting | Verdict::Copied => Verdict::Consumed,
        other => other,
    }
}

/// Returns the reason for which an IPv4 packet is not taken: a list that cannot be read, or a source route that leads
/// on, as the router is no hop of any.
fn check_options(header: &[u8]) -> Result<(), (DropReason, Option<Error>)> {
    match options::check(&header[ipv4::HEADER_LEN..]) {
        Ok(()) | Err(OptionError::SourceRoute { is_done: true }) => Ok(()),
        Err(OptionError::SourceRoute { is_done: false }) => {
            Err((DropReason::SourceRouted, Some(Error::SourceRouteFailed)))
        }
        Err(OptionError::Malformed { at }) => Err(malformed_options(at)),
    }
}

/// `checksum`: the pseudo-header's sum and the state.
fn answer_udp(message: &[u8], checksum: (u16, ChecksumState)) -> Answer {
    match UdpPacket::new_checked(message) {
        Ok(datagram) if datagram.verify_checksum(checksum.0, checksum.1) => {
            Answer::Error(Error::PortUnreachable)
        }
        _ => Answer::Nothing(DropReason::LocalMalformed),
    }
}

/// As for [`answer_udp`].
fn answer_tcp(message: &[u8], checksum: (u16, ChecksumState), between: Ends) -> Answer {
    let Ok(segment) = TcpPacket::new_checked(message) else {
        return Answer::Nothing(DropReason::LocalMalformed);
    };
    if !segment.verify_checksum(checksum.0, checksum.1) {
        return Answer::Nothing(DropReason::LocalMalformed);
    }
    let flags = segment.flags();
    if flags.contains(TcpFlags::RST) {
        return Answer::Nothing(DropReason::LocalUnused);
    }
    let (seq, ack, answer_flags) = if flags.contains(TcpFlags::ACK) {
        (segment.ack(), 0, TcpFlags::RST)
    } else {
        let controls = [TcpFlags::SYN, TcpFlags::FIN];
        let controls = controls
            .iter()
            .filter(|flag| flags.contains(**flag))
            .count();
        let length = segment.payload().len() + controls;
        let ack = segment.seq().wrapping_add(length as u32);
        (0, ack, TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0))
    };
    Answer::Reset(Reset {
        from: SocketAddr::new(between.from, segment.dst_port()),
        to: SocketAddr::new(between.to, segment.src_port()),
        traffic_class: between.traffic_class & !ECN,
        seq,
        ack,
        flags: answer_flags,
    })
}
