//! IPv4 fragmentation (RFC 791 section 3.2).
//!
//! Options whose copied flag is not set become "no operation" in all fragments but the first, instead of being taken
//! out: the header keeps its length, as with Linux. A fragment other than the first that is cut further keeps its
//! options: the host that cut it first has chosen them.

use crate::ipv4_options::{self, NO_OPERATION};
use nfluid_wire::ipv4::{self, Ipv4Packet};

/// Copied flag of an option type.
const COPIED: u8 = 0x80;

/// The fragments of one packet.
#[derive(Debug)]
pub(crate) struct Fragments<'a> {
    packet: &'a [u8],
    header_len: usize,
    /// Bytes of data in every fragment but the last.
    step: usize,
    /// Bytes of data done.
    done: usize,
}

impl<'a> Fragments<'a> {
    /// Cuts a checked packet, larger than `mtu`, into fragments of at most `mtu` bytes.
    pub(crate) fn new(packet: &'a [u8], mtu: u16) -> Self {
        let view = Ipv4Packet::new_unchecked(packet);
        let header_len = view.header_len();
        let packet = &packet[..usize::from(view.total_len())];
        let step = usize::from(mtu).saturating_sub(header_len) & !7;
        Fragments {
            packet,
            header_len,
            step,
            done: 0,
        }
    }

    /// Writes the next fragment and returns its length in bytes. `None`: there is none, or the header
    /// alone fills the MTU.
    pub(crate) fn write_next(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let (header, data) = self.packet.split_at(self.header_len);
        let rest = data
            .get(self.done..)
            .filter(|rest| !rest.is_empty() && self.step > 0)?;
        let rest = &rest[..rest.len().min(self.step)];
        let length = self.header_len + rest.len();
        let out = buffer.get_mut(..length)?;
        out[..self.header_len].copy_from_slice(header);
        out[self.header_len..].copy_from_slice(rest);
        let whole = Ipv4Packet::new_unchecked(header);
        if whole.fragment_offset() == 0 && self.done > 0 {
            blank_uncopied(&mut out[ipv4::HEADER_LEN..self.header_len]);
        }
        let last = self.done + rest.len() == data.len();
        let offset = usize::from(whole.fragment_offset()) + self.done;
        let mut fragment = Ipv4Packet::new_unchecked(out);
        fragment.set_total_len(length as u16);
        fragment.set_fragmentation(false, !last || whole.more_fragments(), offset as u16);
        fragment.fill_checksum();
        self.done += rest.len();
        Some(length)
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
