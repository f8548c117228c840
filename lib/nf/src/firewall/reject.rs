//! Answers to rejected packets: TCP RST and ICMP destination unreachable.
//!
//! The firewall has no address of its own, so it answers in the name of the packet's destination,
//! on the port where the packet came from. It does not answer what must not be answered
//! (RFC 1122 section 3.2.2, RFC 4443 section 2.4): ICMP errors, RSTs, fragments but the first,
//! multicast and broadcast.

use super::packet::{Packet, Transport};
use super::rule::{Answer, ICMP, ICMPV6, RST, Unreachable};
use crate::function::Nanos;
use core::net::{IpAddr, SocketAddr};
use nfluid_ring::{Frame, Outbox};
use nfluid_wire::build;
use nfluid_wire::ether::VlanStack;
use nfluid_wire::flow::Fragment;
use nfluid_wire::icmpv4::{self, Icmpv4Type};
use nfluid_wire::icmpv6::{self, Icmpv6Type};
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::{EthernetFrame, PacketMeta, TcpFlags};

/// Longest ICMP error as a whole packet: RFC 1812 section 4.3.2.3.
const ERROR_MAX_V4: usize = 576;
/// Longest ICMPv6 error as a whole packet: RFC 4443 section 2.4.
const ERROR_MAX_V6: usize = 1280;
/// A frame with such an error and two VLAN tags.
const FRAME_ROOM: usize = ERROR_MAX_V6 + 22;

/// How many answers may still be sent: a token bucket that holds one second's worth.
#[derive(Debug)]
pub struct Answers {
    interval_ns: Option<u64>,
    /// When the bucket would be full again.
    full_at: u64,
}

impl Answers {
    /// At most `rate` answers per second.
    pub fn per_second(rate: u32) -> Self {
        Answers {
            interval_ns: 1_000_000_000_u64.checked_div(u64::from(rate)),
            full_at: 0,
        }
    }

    fn take(&mut self, now: Nanos) -> bool {
        let Some(interval) = self.interval_ns else {
            return false;
        };
        let full_at = self.full_at.max(now.0).saturating_add(interval);
        let allowed = full_at - now.0 <= 1_000_000_000;
        if allowed {
            self.full_at = full_at;
        }
        allowed
    }
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is in the outbox.
    Yes,
    /// Nothing may be answered to such a packet.
    NotAnswerable,
    /// The rate is used up.
    RateLimited,
    /// The outbox is full.
    OutboxFull,
}

/// Answers the packet in `frame`, if that is allowed.
pub fn answer(
    answers: &mut Answers,
    now: Nanos,
    answer: Answer,
    frame: &Frame<'_>,
    outbox: &mut dyn Outbox,
) -> Sent {
    let mut buffer = [0; FRAME_ROOM];
    let Some(len) = build(answer, frame, &mut buffer) else {
        return Sent::NotAnswerable;
    };
    if !answers.take(now) {
        return Sent::RateLimited;
    }
    let answer = buffer.get(..len).unwrap_or_default();
    if outbox.emit(frame.in_port(), answer) {
        Sent::Yes
    } else {
        Sent::OutboxFull
    }
}

fn build(answer: Answer, frame: &Frame<'_>, buffer: &mut [u8]) -> Option<usize> {
    let bytes = frame.bytes();
    let meta = PacketMeta::parse(bytes).ok()?;
    let packet = Packet::new(&meta, frame.in_port())?;
    let ethernet = EthernetFrame::new_checked(bytes).ok()?;
    if !answerable(&packet) || ethernet.dst().0[0] & 1 != 0 || ethernet.src().0[0] & 1 != 0 {
        return None;
    }
    let stack = VlanStack::peek(bytes).ok()?;
    let envelope = |frame: build::Frame<'_>, payload: &[u8], buffer: &mut [u8]| {
        frame
            .vlans(stack.tags())
            .macs(ethernet.dst(), ethernet.src())
            .write(buffer, payload)
            .ok()
    };
    match (answer, packet.transport) {
        (Answer::Auto | Answer::Reset, Transport::Tcp { src, dst, flags }) => {
            let segment = bytes.get(usize::from(meta.l4_offset)..meta.l3_end())?;
            let from = SocketAddr::new(packet.addresses.dst(), dst);
            let to = SocketAddr::new(packet.addresses.src(), src);
            envelope(reset(from, to, flags, segment)?, &[], buffer)
        }
        (Answer::Reset, _) => None,
        (Answer::Auto, _) => {
            let quoted = bytes.get(usize::from(meta.l3_offset)..meta.l3_end())?;
            let (frame, quoted) = unreachable(Unreachable::Prohibited, &packet, quoted);
            envelope(frame, quoted, buffer)
        }
        (Answer::Unreachable(reason), _) => {
            let quoted = bytes.get(usize::from(meta.l3_offset)..meta.l3_end())?;
            let (frame, quoted) = unreachable(reason, &packet, quoted);
            envelope(frame, quoted, buffer)
        }
    }
}

fn answerable(packet: &Packet) -> bool {
    let one_host = |address| match address {
        IpAddr::V4(a) => !(a.is_multicast() || a.is_broadcast() || a.is_unspecified()),
        IpAddr::V6(a) => !(a.is_multicast() || a.is_unspecified()),
    };
    let is_error = match (packet.protocol, packet.transport) {
        (ICMP, Transport::Icmp { kind, .. }) => Icmpv4Type(kind).is_error(),
        (ICMPV6, Transport::Icmp { kind, .. }) => Icmpv6Type(kind).is_error(),
        _ => false,
    };
    !is_error
        && packet.fragment != Fragment::Later
        && one_host(packet.addresses.src())
        && one_host(packet.addresses.dst())
}

/// RST to a segment that no connection wants (RFC 9293 section 3.10.7.1).
fn reset(
    from: SocketAddr,
    to: SocketAddr,
    flags: u8,
    segment: &[u8],
) -> Option<build::Frame<'static>> {
    let flags = TcpFlags(flags);
    if flags.0 & RST != 0 {
        return None;
    }
    let tcp = TcpPacket::new_checked(segment).ok()?;
    if flags.contains(TcpFlags::ACK) {
        return Some(build::Frame::tcp(from, to, TcpFlags::RST).sequence(tcp.ack(), 0));
    }
    let phantom = [TcpFlags::SYN, TcpFlags::FIN]
        .into_iter()
        .filter(|flag| flags.contains(*flag))
        .count();
    let occupied = (tcp.payload().len() + phantom) as u32;
    let ack = tcp.seq().wrapping_add(occupied);
    Some(build::Frame::tcp(from, to, TcpFlags::RST | TcpFlags::ACK).sequence(0, ack))
}

/// ICMP destination unreachable, and as much of the packet as it may quote.
fn unreachable<'q>(
    reason: Unreachable,
    packet: &Packet,
    quoted: &'q [u8],
) -> (build::Frame<'static>, &'q [u8]) {
    use icmpv4::unreachable_code as v4;
    use icmpv6::unreachable_code as v6;
    let (from, to) = (packet.addresses.dst(), packet.addresses.src());
    let (msg_type, code, header, max) = match from {
        IpAddr::V4(_) => {
            let code = match reason {
                Unreachable::Net => v4::NET,
                Unreachable::Host => v4::HOST,
                Unreachable::Port => v4::PORT,
                Unreachable::Prohibited => v4::ADMIN_PROHIBITED,
            };
            (Icmpv4Type::DEST_UNREACHABLE.0, code, 28, ERROR_MAX_V4)
        }
        IpAddr::V6(_) => {
            let code = match reason {
                Unreachable::Net => v6::NO_ROUTE,
                Unreachable::Host => v6::ADDRESS,
                Unreachable::Port => v6::PORT,
                Unreachable::Prohibited => v6::ADMIN_PROHIBITED,
            };
            (Icmpv6Type::DEST_UNREACHABLE.0, code, 48, ERROR_MAX_V6)
        }
    };
    let quoted = &quoted[..quoted.len().min(max - header)];
    (build::Frame::icmp(from, to, msg_type, code, [0; 4]), quoted)
}
