//! IPv4 fragmentation (RFC 791 section 3.2), also of the packets of a super-frame.
//!
//! Options whose copied flag is not set become "no operation" in all fragments but the first, instead of being taken
//! out: the header keeps its length, as with Linux. A fragment other than the first that is cut further keeps its
//! options: the host that cut it first has chosen them.
//!
//! A super-frame is never fragmented: its packets are, each by itself and only if it is too large, as by Linux
//! (`ip_finish_output_gso`).

use crate::ipv4_options::{self, NO_OPERATION};
use nfluid_ring::Offload;
use nfluid_ring::offload::HEADERS_MAX;
use nfluid_wire::ipv4::{self, Ipv4Packet};

/// Copied flag of an option type.
const COPIED: u8 = 0x80;
/// Room for the headers of each packet of a frame with metadata: up to the end of the checksum's field.
const HEADERS_ROOM: usize = HEADERS_MAX + 32;

/// A frame with a checked IPv4 packet that is too large for a link, or of which the packets may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Large<'a> {
    pub(crate) frame: &'a [u8],
    pub(crate) offload: Offload,
    /// Start of the IPv4 header.
    pub(crate) l3: usize,
    /// The largest packet that the link carries.
    pub(crate) mtu: u16,
}

/// How [`Large::send`] has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// All parts were written.
    Done,
    /// `send` has refused a part, and the parts behind were not written.
    Stopped,
    /// No parts can be made of the rest: a header alone fills the MTU, the buffer is too short, or the metadata are
    /// not the frame's.
    Impossible,
}

impl Large<'_> {
    /// Writes the frame's packets, each in fragments if it is too large, to the start of `buffer`, one after the
    /// other and in order, each behind a copy of the link header. Hands each part to `send`, and true if the part is a
    /// fragment but the first of its packet; `send` returns false to stop. `buffer` has room for the link header and
    /// the MTU.
    pub(crate) fn send(
        self,
        buffer: &mut [u8],
        mut send: impl FnMut(&mut [u8], bool) -> bool,
    ) -> Cut {
        let Ok(mut packets) = self.offload.packets_of(self.frame) else {
            return Cut::Impossible;
        };
        let Some(link) = self.frame.get(..self.l3) else {
            return Cut::Impossible;
        };
        let mut headers = [0; HEADERS_ROOM];
        while packets.remaining() > 0 {
            let header_len = packets.header_len();
            let Some(payload) = packets.next_parts(&mut headers) else {
                return Cut::Impossible;
            };
            // A frame without metadata is all payload.
            let packet = match header_len {
                0 => [&payload[self.l3..], &[]],
                len => [&headers[self.l3..len], payload],
            };
            let mut fragments = Fragments::new(packet, self.mtu);
            while let is_later = fragments.is_begun
                && let Some((room, rest)) = buffer.split_at_mut_checked(link.len())
                && let Some(length) = fragments.write_next(rest)
            {
                room.copy_from_slice(link);
                if !send(&mut buffer[..link.len() + length], is_later) {
                    return Cut::Stopped;
                }
            }
            if !fragments.is_done() {
                return Cut::Impossible;
            }
        }
        Cut::Done
    }
}

/// The fragments of one packet; the packet itself if it fits.
#[derive(Debug)]
struct Fragments<'a> {
    header: &'a [u8],
    /// The data in two pieces.
    data: [&'a [u8]; 2],
    /// Bytes of data of the packet: what follows is padding.
    data_len: usize,
    /// Bytes of data in every fragment but the last.
    step: usize,
    /// Bytes of data done.
    done: usize,
    is_begun: bool,
}

impl<'a> Fragments<'a> {
    /// Cuts a checked packet, in two pieces of which the first has the whole IPv4 header, into fragments of at most
    /// `mtu` bytes.
    fn new([first, second]: [&'a [u8]; 2], mtu: u16) -> Self {
        let view = Ipv4Packet::new_unchecked(first);
        let (header_len, total_len) = (view.header_len(), usize::from(view.total_len()));
        let (header, first) = first.split_at(header_len);
        let step = match total_len <= usize::from(mtu) {
            true => total_len,
            false => usize::from(mtu).saturating_sub(header_len) & !7,
        };
        Fragments {
            header,
            data: [first, second],
            data_len: total_len - header_len,
            step,
            done: 0,
            is_begun: false,
        }
    }

    fn is_done(&self) -> bool {
        self.is_begun && self.done == self.data_len
    }

    /// Writes the next fragment and returns its length in bytes. `None`: there is none, the header
    /// alone fills the MTU, or the buffer is too short.
    fn write_next(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if self.is_done() || self.step == 0 {
            return None;
        }
        let len = (self.data_len - self.done).min(self.step);
        let header_len = self.header.len();
        let out = buffer.get_mut(..header_len + len)?;
        let (header, data) = out.split_at_mut(header_len);
        header.copy_from_slice(self.header);
        self.copy_data(data);
        let whole = Ipv4Packet::new_unchecked(self.header);
        let is_last = self.done + len == self.data_len;
        if self.done == 0 && is_last {
            (self.done, self.is_begun) = (len, true);
            return Some(out.len());
        }
        if whole.fragment_offset() == 0 && self.done > 0 {
            blank_uncopied(&mut header[ipv4::HEADER_LEN..]);
        }
        let offset = usize::from(whole.fragment_offset()) + self.done;
        let length = out.len();
        let mut fragment = Ipv4Packet::new_unchecked(out);
        fragment.set_total_len(length as u16);
        fragment.set_fragmentation(false, !is_last || whole.more_fragments(), offset as u16);
        fragment.fill_checksum();
        (self.done, self.is_begun) = (self.done + len, true);
        Some(length)
    }

    /// Fills `out` with the next data.
    fn copy_data(&self, out: &mut [u8]) {
        let [first, second] = self.data;
        let of_first = first.get(self.done..).unwrap_or_default();
        let (a, b) = out.split_at_mut(of_first.len().min(out.len()));
        a.copy_from_slice(&of_first[..a.len()]);
        let start = (self.done + a.len()).saturating_sub(first.len());
        let of_second = second.get(start..start + b.len()).unwrap_or_default();
        b[..of_second.len()].copy_from_slice(of_second);
    }
}

/// Blanks the options that belong into the first fragment only. The list has been checked.
fn blank_uncopied(options: &mut [u8]) {
    ipv4_options::for_each(options, |option| {
        if option[0] & COPIED == 0 {
            option.fill(NO_OPERATION);
        }
    });
}
