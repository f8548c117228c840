//! Messages with samples and results: a UDP payload, framed as eCPRI's messages of type 0 (IQ data) and 1 (bit sequence) are
//! (eCPRI Specification V2.0, sections 3.1.3 and 3.2.4).
//!
//! ```text
//!  0       1       2               4               6               8       9                       12
//! +-------+-------+---------------+---------------+---------------+-------+-----------------------+-----------
//! | 0x10  | type  | payload bytes | PC_ID: slice  | SEQ_ID:       | phase | samples: place        | payload
//! |       |       | from here on  |               | interval      |       | results: number       |
//! +-------+-------+---------------+---------------+---------------+-------+-----------------------+-----------
//! ```
//!
//! Numbers are big-endian. The last four bytes of the header are ours: eCPRI leaves the order of samples to the vendor.

/// Bytes of the header.
pub const HEADER_BYTES: usize = 12;
/// Bytes of eCPRI's common header, which the length does not count.
const COMMON_BYTES: usize = 4;
/// Revision 1, no message behind this one.
const REVISION: u8 = 0x10;

/// Largest place or number.
pub const AT_MAX: u32 = (1 << 24) - 1;

/// What a message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A piece of an interval's input.
    Samples,
    /// A result of an interval.
    Result,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it carries.
    pub kind: Kind,
    /// Number of the slice.
    pub slice: u16,
    /// Number of the interval, modulo 2^16.
    pub interval: u16,
    /// What the graph is told of the interval, such as a subframe's number. That of the piece that makes the input whole counts.
    pub phase: u8,
    /// Of samples: place of the piece in the interval's input, in bytes. Of a result: its number in the interval. Of 24 bits.
    pub at: u32,
    /// The piece, or the result.
    pub payload: &'a [u8],
}

/// A datagram is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl<'a> Message<'a> {
    /// Reads a datagram's payload. Bytes behind the message are ignored, as eCPRI's padding is.
    ///
    /// # Errors
    /// [`Malformed`]: too short, another revision or type, a message behind this one, or a length that is not there.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = datagram
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(Malformed)?;
        let &[revision, kind, l0, l1, s0, s1, i0, i1, phase, a0, a1, a2] = header;
        let kind = match (revision, kind) {
            (REVISION, 0) => Kind::Samples,
            (REVISION, 1) => Kind::Result,
            _ => return Err(Malformed),
        };
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let payload = length.checked_sub(HEADER_BYTES - COMMON_BYTES);
        Ok(Message {
            kind,
            slice: u16::from_be_bytes([s0, s1]),
            interval: u16::from_be_bytes([i0, i1]),
            phase,
            at: u32::from_be_bytes([0, a0, a1, a2]),
            payload: payload
                .and_then(|bytes| rest.get(..bytes))
                .ok_or(Malformed)?,
        })
    }

    /// Appends the message to a datagram's payload. A payload of more than 64 KiB is cut off.
    pub fn write(&self, datagram: &mut Vec<u8>) {
        let most = usize::from(u16::MAX) - (HEADER_BYTES - COMMON_BYTES);
        let payload = &self.payload[..self.payload.len().min(most)];
        let length = (payload.len() + HEADER_BYTES - COMMON_BYTES) as u16;
        datagram.extend([REVISION, self.kind as u8]);
        datagram.extend(length.to_be_bytes());
        datagram.extend(self.slice.to_be_bytes());
        datagram.extend(self.interval.to_be_bytes());
        datagram.extend((u32::from(self.phase) << 24 | self.at & AT_MAX).to_be_bytes());
        datagram.extend(payload);
    }
}
