//! Answers to rejected packets: TCP RST and ICMP destination unreachable.
//!
//! The firewall has no address of its own, so it answers in the name of the packet's destination, on the port where
//! the packet came from. The firewall does not answer packets that must not be answered (RFC 1122 section 3.2.2, RFC
//! 4443 section 2.4): ICMP errors, RSTs, fragments but the first, multicast and broadcast.

use super::packet::{Packet, Transport};
use super::rule::{Answer, RST, Unreachable};
use crate::function::Nanos;
use crate::icmp_error::{self, Limit, OffenderRoom, Sent};
use core::net::{IpAddr, SocketAddr};
use nfluid_ring::{Frame, Outbox};
use nfluid_wire::build;
use nfluid_wire::icmpv4::{self, Icmpv4Type};
use nfluid_wire::icmpv6::{self, Icmpv6Type};
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::{PacketMeta, TcpFlags};

/// Answers the packet in `frame`, if that is allowed.
pub fn answer(
    limit: &mut Limit,
    now: Nanos,
    answer: Answer,
    frame: &Frame<'_>,
    outbox: &mut dyn Outbox,
) -> Sent {
    icmp_error::answer(limit, now, frame, outbox, |meta, buffer| {
        build(answer, meta, frame, buffer)
    })
}

fn build(answer: Answer, meta: &PacketMeta, frame: &Frame<'_>, buffer: &mut [u8]) -> Option<usize> {
    let bytes = frame.bytes();
    let packet = Packet::new(meta, frame.in_port())?;
    let mut room = OffenderRoom::EMPTY;
    let l3 = usize::from(meta.l3_offset);
    let offender = icmp_error::offender(bytes, frame.offload(), l3, &mut room)?;
    let (answer, quoted) = match (answer, packet.transport) {
        (Answer::Auto | Answer::Reset, Transport::Tcp { src, dst, flags }) => {
            // Of a super-frame, all of it: the answer acknowledges all segments at once.
            let segment = bytes.get(usize::from(meta.l4_offset)..meta.l3_end())?;
            let from = SocketAddr::new(packet.addresses.dst(), dst);
            let to = SocketAddr::new(packet.addresses.src(), src);
            (reset(from, to, flags, segment)?, &[][..])
        }
        (Answer::Reset, _) => return None,
        (Answer::Auto, _) => (unreachable(Unreachable::Prohibited, &packet), offender),
        (Answer::Unreachable(reason), _) => (unreachable(reason, &packet), offender),
    };
    icmp_error::write_back(bytes, answer, quoted, buffer)
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

/// ICMP destination unreachable.
fn unreachable(reason: Unreachable, packet: &Packet) -> build::Frame<'static> {
    use icmpv4::unreachable_code as v4;
    use icmpv6::unreachable_code as v6;
    let (from, to) = (packet.addresses.dst(), packet.addresses.src());
    let (msg_type, code) = match from {
        IpAddr::V4(_) => {
            let code = match reason {
                Unreachable::Net => v4::NET,
                Unreachable::Host => v4::HOST,
                Unreachable::Port => v4::PORT,
                Unreachable::Prohibited => v4::ADMIN_PROHIBITED,
            };
            (Icmpv4Type::DEST_UNREACHABLE.0, code)
        }
        IpAddr::V6(_) => {
            let code = match reason {
                Unreachable::Net => v6::NO_ROUTE,
                Unreachable::Host => v6::ADDRESS,
                Unreachable::Port => v6::PORT,
                Unreachable::Prohibited => v6::ADMIN_PROHIBITED,
            };
            (Icmpv6Type::DEST_UNREACHABLE.0, code)
        }
    };
    build::Frame::icmp(from, to, msg_type, code, [0; 4])
}
