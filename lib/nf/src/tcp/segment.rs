//! The fields of a TCP segment that matter for following its connection.

use nfluid_wire::tcp::{HEADER_LEN, TcpPacket, option_kind};
use nfluid_wire::{TcpFlags, TlvOptions};

/// Largest shift of a window (RFC 7323 section 2.3).
pub(super) const SCALE_MAX: u8 = 14;
/// The first bytes of the options of most segments, and their length: timestamps alone (RFC 7323 appendix A).
const TIMESTAMPS_ALONE: ([u8; 4], usize) = ([1, 1, option_kind::TIMESTAMPS, 10], 12);

/// True if sequence number `a` comes before `b` (RFC 9293 section 3.4).
#[inline]
pub(super) const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(super) flags: TcpFlags,
    pub(super) seq: u32,
    /// Meaningless without the flag ACK.
    pub(super) ack: u32,
    /// The sequence number behind the segment: SYN, payload and FIN count.
    pub(super) end: u32,
    /// The header field, unscaled.
    pub(super) window: u32,
    /// False for the first fragment of a packet: the length of the segment is not known yet.
    pub(super) whole: bool,
    options: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The segment in an IP payload. `whole`: the payload is not that of a fragment. Returns `None` if the header is
    /// truncated, which a parsed frame's is not.
    #[inline]
    pub(crate) fn read(payload: &'a [u8], whole: bool) -> Option<Segment<'a>> {
        let tcp = TcpPacket::new_checked(payload).ok()?;
        let (flags, header_len) = (tcp.flags(), tcp.header_len());
        let data = (payload.len() - header_len) as u32;
        let control =
            u32::from(flags.contains(TcpFlags::SYN)) + u32::from(flags.contains(TcpFlags::FIN));
        Some(Segment {
            flags,
            seq: tcp.seq(),
            ack: tcp.ack(),
            end: tcp.seq().wrapping_add(data + control),
            window: u32::from(tcp.window()),
            whole,
            options: payload.get(HEADER_LEN..header_len)?,
        })
    }

    /// True for a SYN that opens a connection: without ACK and RST.
    #[inline]
    pub(crate) fn opens(&self) -> bool {
        self.flags & (TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST) == TcpFlags::SYN
    }

    #[inline]
    pub(crate) fn has(&self, flag: TcpFlags) -> bool {
        self.flags.contains(flag)
    }

    /// The highest sequence number that is acknowledged, be it selectively (RFC 2018).
    #[inline]
    pub(super) fn highest_ack(&self) -> u32 {
        let (beginning, len) = TIMESTAMPS_ALONE;
        if self.options.is_empty()
            || self.options.len() == len && self.options.starts_with(&beginning)
        {
            return self.ack;
        }
        self.highest_selective_ack()
    }

    #[inline(never)]
    fn highest_selective_ack(&self) -> u32 {
        let selective =
            TlvOptions::new(self.options).filter(|option| option.kind == option_kind::SACK);
        let blocks = selective.flat_map(|option| option.data.as_chunks::<8>().0);
        let edges = blocks.map(|&[_, _, _, _, a, b, c, d]| u32::from_be_bytes([a, b, c, d]));
        edges.fold(
            self.ack,
            |highest, edge| if before(highest, edge) { edge } else { highest },
        )
    }

    /// The shift of the sender's windows, if its SYN offers one (RFC 7323).
    pub(super) fn window_scale(&self) -> Option<u8> {
        let offer = TlvOptions::new(self.options)
            .find(|option| option.kind == option_kind::WINDOW_SCALE)?;
        offer.data.first().map(|shift| (*shift).min(SCALE_MAX))
    }
}
