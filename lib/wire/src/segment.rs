//! From a frame of a kernel to the packets on a wire: missing checksums, and segments of super-frames.
//!
//! A *super-frame* has the headers of one packet and the payload of many. [`Segments`] cuts the frame as Linux does
//! (`tcp_gso_segment`, `__udp_gso_segment`, `inet_gso_segment`, `ipv6_gso_segment` of Linux 6.18):
//! - each packet has the frame's headers, VLAN tags, IPv4 options and IPv6 extension headers included, with lengths
//!   and checksums of its own;
//! - IPv4 identifications count up from the frame's, with "don't fragment" too;
//! - TCP sequence numbers count up by the payload; FIN and PSH stay on the last packet only, CWR on the first only;
//! - each UDP packet is a datagram of its own.
//!
//! The frame's checksum field is trusted: each packet's checksum is made of that sum. So a packet of a frame with a
//! wrong sum has a wrong checksum, and its receiver drops the packet.
//!
//! [`check`] says which headers a super-frame can have. Lengths in the headers have to be those of the frame: a frame
//! with others is refused. (Linux writes new lengths without a look at the old ones.)

use crate::checksum::{combine, never_zero, sum};
use crate::flow::Fragment;
use crate::ipv4::Ipv4Packet;
use crate::ipv6::{self, Ipv6Packet};
use crate::tcp::{self, TcpFlags, TcpPacket};
use crate::udp::{self, UdpPacket};
use crate::{IpProtocol, L3, PacketMeta, ParseError, be};

/// A checksum to be computed: over the bytes from `start` to the end of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Start of the transport header in bytes from the start of the frame.
    pub start: usize,
    /// Where the checksum is, in bytes from `start`: [`tcp::CHECKSUM_OFFSET`] or [`udp::CHECKSUM_OFFSET`].
    pub offset: usize,
}

/// The protocol of a super-frame's segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either: each segment is a datagram of its own (UDP_SEGMENT, udp(7)).
    Udp,
}

/// How a super-frame is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// The protocol.
    pub kind: SegmentKind,
    /// Bytes of the headers that each segment has, from the Ethernet header to the end of the transport header.
    pub header_len: usize,
    /// Bytes of payload of each segment but the last.
    pub payload_len: usize,
    /// The sender takes part in congestion notification (RFC 3168): the TCP flag CWR, if it is set, belongs to the
    /// first segment. Linux clears the flag in all others in any case.
    pub is_ecn: bool,
}

/// Parses a frame and checks that the metadata is about the packet's own TCP or UDP header. `cut` is there if the frame
/// is a super-frame.
///
/// Metadata of a sender that wants to deceive can place the checksum anywhere, for example over an address that a
/// firewall has looked at. Nothing of the sort passes this check.
///
/// # Errors
/// The headers are malformed. [`ParseError::OffloadMismatch`]: no TCP or UDP, a fragment, another place of the header
/// or its checksum; of a super-frame also another length of the headers, the packet or the datagram.
pub fn check(
    frame: &[u8],
    checksum: PartialChecksum,
    cut: Option<Segmentation>,
) -> Result<PacketMeta, ParseError> {
    let meta = PacketMeta::parse(frame)?;
    let offset = match meta.protocol {
        IpProtocol::TCP => tcp::CHECKSUM_OFFSET,
        IpProtocol::UDP => udp::CHECKSUM_OFFSET,
        _ => return Err(ParseError::OffloadMismatch),
    };
    let is_of_packet = meta.l3 != L3::Other
        && meta.fragment == Fragment::None
        && checksum.start == usize::from(meta.l4_offset)
        && checksum.offset == offset;
    if is_of_packet && cut.is_none_or(|cut| is_cut_right(frame, &meta, cut)) {
        Ok(meta)
    } else {
        Err(ParseError::OffloadMismatch)
    }
}

fn is_cut_right(frame: &[u8], meta: &PacketMeta, cut: Segmentation) -> bool {
    let is_tcp = meta.protocol == IpProtocol::TCP;
    let is_kind = match cut.kind {
        SegmentKind::TcpV4 => meta.is_ipv4() && is_tcp,
        SegmentKind::TcpV6 => meta.is_ipv6() && is_tcp,
        SegmentKind::Udp => !is_tcp,
    };
    let is_whole = || {
        let message = &frame[usize::from(meta.l4_offset)..];
        is_tcp || usize::from(UdpPacket::new_unchecked(message).length()) == message.len()
    };
    is_kind
        && cut.payload_len > 0
        && cut.header_len == usize::from(meta.payload_offset)
        && meta.l3_end() == frame.len()
        && is_whole()
}

/// Computes a partial checksum in place. Returns false, and changes nothing, if the field is not within the frame, or
/// at an odd offset.
///
/// A UDP checksum of 0 is sent as 0xffff. A TCP checksum of 0 stays: Linux sends 0xffff there too
/// (`skb_checksum_help`), which is the same number in ones' complement.
#[must_use]
pub fn finish(frame: &mut [u8], checksum: PartialChecksum) -> bool {
    let Some(message) = frame.get_mut(checksum.start..) else {
        return false;
    };
    complete(message, &[], checksum.offset)
}

/// Computes the checksum at `offset` of a message in two parts, the first of an even length.
fn complete(message: &mut [u8], payload: &[u8], offset: usize) -> bool {
    let field = offset..offset.saturating_add(2);
    if !offset.is_multiple_of(2) || message.get(field.clone()).is_none() {
        return false;
    }
    let total = !combine(&[sum(message), sum(payload)]);
    let is_udp = offset == udp::CHECKSUM_OFFSET;
    be::set_u16(
        message,
        field,
        if is_udp { never_zero(total) } else { total },
    );
    true
}

/// The packets that a frame becomes on a wire, one after the other. Each has a complete checksum.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    headers: &'a [u8],
    payload: &'a [u8],
    /// Bytes of payload of each packet but the last; at least 1.
    step: usize,
    /// Number of the next packet.
    next: usize,
    packets: usize,
    work: Work,
}

/// The changes to the headers of each packet.
#[derive(Clone, Copy, Debug)]
enum Work {
    Nothing,
    Checksum(PartialChecksum),
    Cut(Cut),
}

/// The fields of the frame's headers from which those of a packet are made.
#[derive(Clone, Copy, Debug)]
struct Cut {
    l3: usize,
    start: usize,
    is_ipv4: bool,
    is_tcp: bool,
    /// Sum of the pseudo-header without the length.
    addresses: u16,
}

impl<'a> Segments<'a> {
    /// A frame with nothing to be done: one packet.
    #[must_use]
    pub const fn plain(frame: &'a [u8]) -> Self {
        Self::whole(&[], frame, Work::Nothing)
    }

    /// A frame with a partial checksum: one packet.
    ///
    /// # Errors
    /// [`ParseError::OffloadMismatch`]: the field is not within the frame, or at an odd offset.
    pub fn with_checksum(frame: &'a [u8], checksum: PartialChecksum) -> Result<Self, ParseError> {
        let end = checksum
            .start
            .saturating_add(checksum.offset)
            .saturating_add(2);
        match frame.split_at_checked(end) {
            Some((headers, payload)) if checksum.offset.is_multiple_of(2) => {
                Ok(Self::whole(headers, payload, Work::Checksum(checksum)))
            }
            _ => Err(ParseError::OffloadMismatch),
        }
    }

    /// A super-frame with a transport header at `start`.
    ///
    /// # Errors
    /// The headers are malformed, or [`check`] refuses them.
    pub fn cut(frame: &'a [u8], start: usize, cut: Segmentation) -> Result<Self, ParseError> {
        let is_tcp = cut.kind != SegmentKind::Udp;
        let offset = if is_tcp {
            tcp::CHECKSUM_OFFSET
        } else {
            udp::CHECKSUM_OFFSET
        };
        let meta = check(frame, PartialChecksum { start, offset }, Some(cut))?;
        let (headers, payload) = frame.split_at(cut.header_len);
        let field = be::get_u16(headers, start + offset..start + offset + 2);
        let len = (frame.len() - start) as u16;
        let work = Work::Cut(Cut {
            l3: usize::from(meta.l3_offset),
            start,
            is_ipv4: meta.is_ipv4(),
            is_tcp,
            addresses: combine(&[field, !len]),
        });
        Ok(Segments {
            step: cut.payload_len,
            packets: payload.len().div_ceil(cut.payload_len).max(1),
            ..Self::whole(headers, payload, work)
        })
    }

    const fn whole(headers: &'a [u8], payload: &'a [u8], work: Work) -> Self {
        Self {
            headers,
            payload,
            step: if payload.is_empty() { 1 } else { payload.len() },
            next: 0,
            packets: 1,
            work,
        }
    }

    /// The number of packets that have not been written.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.packets - self.next
    }

    /// Bytes of the longest packet of all.
    #[must_use]
    pub fn packet_len(&self) -> usize {
        self.headers.len() + self.payload.len().min(self.step)
    }

    /// Bytes of the headers that [`Segments::next_parts`] writes.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.headers.len()
    }

    /// The payload of the next packet.
    fn next_payload(&self) -> &'a [u8] {
        let rest = self.payload.get(self.next * self.step..);
        let rest = rest.unwrap_or_default();
        &rest[..rest.len().min(self.step)]
    }

    /// Writes the next packet to the start of `buffer` and returns the packet's length in bytes. `None`: all packets
    /// have been written, or the buffer is too short for the next one; [`Segments::packet_len`] is enough for each.
    pub fn write_next(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let len = self.headers.len() + self.next_payload().len();
        let (headers, rest) = buffer.get_mut(..len)?.split_at_mut(self.headers.len());
        let payload = self.next_parts(headers)?;
        rest.copy_from_slice(payload);
        Some(len)
    }

    /// As [`Segments::write_next`], without copying the payload: writes the packet's headers, of
    /// [`Segments::header_len`] bytes, and returns the payload behind them. The parts are those of the packet as a
    /// whole: a frame that is one packet may have headers of 0 bytes here.
    pub fn next_parts(&mut self, headers: &mut [u8]) -> Option<&'a [u8]> {
        if self.next == self.packets {
            return None;
        }
        let headers = headers.get_mut(..self.headers.len())?;
        headers.copy_from_slice(self.headers);
        let payload = self.next_payload();
        match self.work {
            Work::Nothing => {}
            Work::Checksum(PartialChecksum { start, offset }) => {
                complete(&mut headers[start..], payload, offset);
            }
            Work::Cut(cut) => {
                let place = Place {
                    number: self.next,
                    done: self.next * self.step,
                    is_last: self.next + 1 == self.packets,
                };
                cut.write(headers, payload, place);
            }
        }
        self.next += 1;
        Some(payload)
    }
}

/// The place of a packet in its super-frame.
struct Place {
    number: usize,
    /// Bytes of payload in the packets before.
    done: usize,
    is_last: bool,
}

impl Cut {
    /// Makes the headers of a packet of a copy of the frame's headers.
    fn write(&self, headers: &mut [u8], payload: &[u8], place: Place) {
        let len = headers.len() + payload.len();
        let network = &mut headers[self.l3..];
        if self.is_ipv4 {
            let mut packet = Ipv4Packet::new_unchecked(network);
            packet.set_total_len((len - self.l3) as u16);
            packet.set_ident(packet.ident().wrapping_add(place.number as u16));
            packet.fill_checksum();
        } else {
            let payload_len = len - self.l3 - ipv6::HEADER_LEN;
            Ipv6Packet::new_unchecked(network).set_payload_len(payload_len as u16);
        }
        let message_len = (len - self.start) as u16;
        let partial = combine(&[self.addresses, message_len]);
        let message = &mut headers[self.start..];
        if self.is_tcp {
            let mut segment = TcpPacket::new_unchecked(&mut *message);
            segment.set_seq(segment.seq().wrapping_add(place.done as u32));
            segment.set_flags(segment.flags() & !place.flags_of_others());
            segment.set_checksum(partial);
            complete(message, payload, tcp::CHECKSUM_OFFSET);
        } else {
            let mut datagram = UdpPacket::new_unchecked(&mut *message);
            datagram.set_length(message_len);
            datagram.set_checksum(partial);
            complete(message, payload, udp::CHECKSUM_OFFSET);
        }
    }
}

impl Place {
    /// The TCP flags that belong to other packets of the super-frame.
    fn flags_of_others(&self) -> TcpFlags {
        let of_the_last = match self.is_last {
            true => TcpFlags::NONE,
            false => TcpFlags::FIN | TcpFlags::PSH,
        };
        let of_the_first = match self.number {
            0 => TcpFlags::NONE,
            _ => TcpFlags::CWR,
        };
        of_the_last | of_the_first
    }
}
