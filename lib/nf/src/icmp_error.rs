//! ICMP errors: the packets that may have one, the quotation, and the path back (RFC 792, RFC 1122 section 3.2.2, RFC
//! 1812 section 4.3.2, RFC 4443 section 2.4).
//!
//! The firewall and the NAT have no neighbours: their answers go back to the Ethernet address and the port where the
//! packet came from. The router sends its errors by its own tables.

use crate::bucket::{Bucket, Rate};
use crate::function::Nanos;
use core::net::IpAddr;
use nfluid_ring::{Frame, Offload, Outbox};
use nfluid_wire::build;
use nfluid_wire::ether::VlanStack;
use nfluid_wire::flow::Fragment;
use nfluid_wire::icmpv4::Icmpv4Type;
use nfluid_wire::icmpv6::Icmpv6Type;
use nfluid_wire::{EthernetFrame, IpProtocol, PacketMeta, icmpv4, ipv4, ipv6};

/// Longest ICMP error in bytes, IP header included: RFC 1812 section 4.3.2.3.
const ERROR_MAX_V4: usize = 576;
/// Longest ICMPv6 error in bytes, IP header included: RFC 4443 section 2.4 (c).
const ERROR_MAX_V6: usize = 1280;
/// A frame with such an error and two VLAN tags.
const FRAME_ROOM: usize = ERROR_MAX_V6 + 22;
/// Precedence "internetwork control" of IPv4 errors (RFC 1812 section 4.3.2.5).
const CONTROL_PRECEDENCE: u8 = 0xc0;
/// Type of service bits that an error takes over from the packet it is about.
const TOS_BITS: u8 = 0x1e;

/// Number of answers that may still be sent.
#[derive(Debug)]
pub(crate) struct Limit {
    rate: Rate,
    bucket: Bucket,
}

impl Limit {
    pub(crate) fn new(rate: Rate) -> Limit {
        Limit {
            rate,
            bucket: Bucket::default(),
        }
    }
}

/// The result of answering a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The answer is in the outbox.
    Yes,
    /// Such a packet must not be answered.
    NotAnswerable,
    /// The rate is used up.
    RateLimited,
    /// The outbox is full.
    OutboxFull,
}

/// Names of the results in metrics, in the order of [`Sent`].
pub(crate) const RESULTS: [&str; 4] = ["sent", "not_answerable", "rate_limited", "outbox_full"];

/// Answers the packet in `frame` by what `write` writes, where that is allowed. `write` is given the packet and returns
/// the answer's length, or `None` if there is none.
pub(crate) fn answer(
    limit: &mut Limit,
    now: Nanos,
    frame: &Frame<'_>,
    outbox: &mut dyn Outbox,
    write: impl FnOnce(&PacketMeta, &mut [u8]) -> Option<usize>,
) -> Sent {
    let mut buffer = [0; FRAME_ROOM];
    let meta = PacketMeta::parse(frame.bytes());
    let meta = meta.ok().filter(|meta| is_answerable(frame.bytes(), meta));
    let Some(len) = meta.and_then(|meta| write(&meta, &mut buffer)) else {
        return Sent::NotAnswerable;
    };
    if !limit.bucket.take(limit.rate, now) {
        return Sent::RateLimited;
    }
    if outbox.emit(frame.in_port(), buffer.get(..len).unwrap_or_default()) {
        Sent::Yes
    } else {
        Sent::OutboxFull
    }
}

/// Returns true if the packet may be answered: to one host, from one host, no ICMP error, and no fragment but the
/// first.
fn is_answerable(frame: &[u8], meta: &PacketMeta) -> bool {
    let ethernet = EthernetFrame::new_unchecked(frame);
    let Some((src, dst)) = meta.addresses() else {
        return false;
    };
    let is_group = match dst {
        IpAddr::V4(a) => a.is_multicast() || a.is_broadcast() || a.is_unspecified(),
        IpAddr::V6(a) => a.is_multicast() || a.is_unspecified(),
    };
    let is_error = match meta.protocol {
        IpProtocol::ICMPV4 => Icmpv4Type(meta.icmp_type).is_error(),
        IpProtocol::ICMPV6 => {
            let kind = Icmpv6Type(meta.icmp_type);
            kind.is_error() || kind == Icmpv6Type::REDIRECT
        }
        _ => false,
    };
    let to_many = is_group || ethernet.dst().is_multicast();
    !(to_many || ethernet.src().is_multicast() || is_error)
        && meta.fragment != Fragment::Later
        && is_host(src)
}

/// Returns true if the address can be one host's (RFC 1812 section 4.3.2.7).
pub(crate) fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, ..] = address.octets();
            first != 0 && first != 127 && first < 224
        }
        IpAddr::V6(address) => !(address.is_multicast() || address.is_unspecified()),
    }
}

/// The type of service of an error about a packet with type of service `tos`.
pub(crate) fn control_class(tos: u8) -> u8 {
    tos & TOS_BITS | CONTROL_PRECEDENCE
}

/// Writes `error` with as much of `packet` as it may quote; returns the frame's length.
pub(crate) fn write(error: build::Frame<'_>, packet: &[u8], buffer: &mut [u8]) -> Option<usize> {
    let room = match error.src {
        IpAddr::V4(_) => ERROR_MAX_V4 - ipv4::HEADER_LEN - icmpv4::HEADER_LEN,
        IpAddr::V6(_) => ERROR_MAX_V6 - ipv6::HEADER_LEN - icmpv4::HEADER_LEN,
    };
    let quoted = packet.get(..packet.len().min(room))?;
    error.write(buffer, quoted).ok()
}

/// The start of the packet that an error is about, as the packet was on a wire, or would have been: of a super-frame the
/// first one, with its own lengths, and every checksum is complete. `None`: no packets can be made of the frame. `room`
/// is where the packet is put together if it is not in the frame as it is.
pub(crate) fn offender<'a>(
    frame: &'a [u8],
    offload: Offload,
    l3: usize,
    room: &'a mut OffenderRoom,
) -> Option<&'a [u8]> {
    if offload.is_none() {
        return without_padding(frame.get(l3..)?);
    }
    let mut packets = offload.packets_of(frame).ok()?;
    let header_len = packets.header_len();
    let payload = packets.next_parts(&mut room.0)?;
    let rest = room.0.get_mut(header_len..)?;
    let len = payload.len().min(rest.len());
    rest[..len].copy_from_slice(&payload[..len]);
    without_padding(room.0.get(l3..header_len + len)?)
}

/// The bytes of an IP packet, as far as they are there, without what follows the packet.
fn without_padding(packet: &[u8]) -> Option<&[u8]> {
    let &[first, _, a, b, c, d, ..] = packet else {
        return None;
    };
    let len = match first >> 4 {
        4 => usize::from(u16::from_be_bytes([a, b])),
        _ => ipv6::HEADER_LEN + usize::from(u16::from_be_bytes([c, d])),
    };
    packet.get(..len.min(packet.len()))
}

/// Room for the part of a packet that an error quotes, and for the frame's headers.
pub(crate) struct OffenderRoom([u8; FRAME_ROOM]);

impl OffenderRoom {
    pub(crate) const EMPTY: OffenderRoom = OffenderRoom([0; FRAME_ROOM]);
}

/// Gives `answer` the tags of `frame`, and its Ethernet addresses the other way round.
pub(crate) fn write_back(
    frame: &[u8],
    answer: build::Frame<'_>,
    quoted: &[u8],
    buffer: &mut [u8],
) -> Option<usize> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    let stack = VlanStack::peek(frame).ok()?;
    let answer = answer.macs(ethernet.dst(), ethernet.src());
    write(answer.vlans(stack.tags()), quoted, buffer)
}
