//! The Internet checksum: RFC 1071 sums, RFC 1624 incremental updates.
//!
//! A *sum* here is the folded ones' complement sum in host order, not complemented; a *checksum*
//! is what stands in a header, the complement. Sums of pieces are joined with [`combine`]; every
//! piece but the last must have an even length.
//!
//! A TCP or UDP checksum can be *partial*: see [`ChecksumState`]. IPv4 header checksums and ICMP checksums are always
//! complete. So there are two kinds of changes: [`Delta`], which the views of IPv4 and ICMP take, and
//! [`TransportDelta`], which the views of TCP and UDP take together with the state.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Folded ones' complement sum of `data` as 16-bit big-endian words; an odd last byte is padded
/// with zero. Slices up to 4 GiB.
#[inline]
#[must_use]
pub fn sum(data: &[u8]) -> u16 {
    let (words, tail) = data.as_chunks::<8>();
    // Native-endian halves into a wide accumulator: no carry to propagate, so that the compiler
    // vectorises it. RFC 1071 section 2(B): the byte order may be swapped once at the end.
    let mut total = 0_u64;
    for word in words {
        let word = u64::from_ne_bytes(*word);
        total += (word & 0xffff_ffff) + (word >> 32);
    }
    let (pairs, odd) = tail.as_chunks::<2>();
    for pair in pairs {
        total += u64::from(u16::from_ne_bytes(*pair));
    }
    if let [last] = *odd {
        total += u64::from(u16::from_ne_bytes([last, 0]));
    }
    u16::from_be(fold(total))
}

/// Joins sums of several pieces of one message.
#[inline]
#[must_use]
pub fn combine(sums: &[u16]) -> u16 {
    fold(sums.iter().map(|&sum| u64::from(sum)).sum())
}

/// Checksum of a whole message whose checksum field is zero.
#[inline]
#[must_use]
pub fn checksum(data: &[u8]) -> u16 {
    !sum(data)
}

/// Sum of the IPv4 pseudo-header (RFC 768, RFC 9293); `length` is that of the transport message.
#[inline]
#[must_use]
pub fn pseudo_header_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, length: u32) -> u16 {
    let total = u64::from(src.to_bits())
        + u64::from(dst.to_bits())
        + u64::from(protocol)
        + u64::from(length);
    fold(total)
}

/// Sum of the IPv6 pseudo-header (RFC 8200 section 8.1); `next_header` is that of the transport,
/// not of an extension header; `length` is that of the transport message.
#[inline]
#[must_use]
pub fn pseudo_header_v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, length: u32) -> u16 {
    let total =
        halves(src.to_bits()) + halves(dst.to_bits()) + u64::from(next_header) + u64::from(length);
    fold(total)
}

/// Sum of the pseudo-header of the addresses' version; 0 for addresses of different versions, between which no packet can be
/// sent.
#[inline]
#[must_use]
pub fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, length: u32) -> u16 {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo_header_v4(src, dst, protocol, length),
        (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo_header_v6(src, dst, protocol, length),
        _ => 0,
    }
}

/// The content of the checksum field of a TCP or UDP header.
///
/// Every function that computes, updates or verifies such a field takes this state. The metadata beside a received
/// frame says which state it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumState {
    /// The checksum of the pseudo-header and of the whole message.
    Complete,
    /// The folded sum of the pseudo-header, not complemented (Linux: `CHECKSUM_PARTIAL`). The sender on the wire
    /// computes the checksum. A change of an address changes this sum; a change of the message does not. No value
    /// means "no checksum", and nothing can be verified.
    Partial,
}

/// The difference that a change of some 16-bit aligned fields makes to a checksum
/// (RFC 1624 equation 3: `HC' = ~(~HC + ~m + m')`).
///
/// Collect all changes once and apply them to each checksum that covers them: a NAT's new address
/// goes into both the IPv4 header's and the transport's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta(u64);

impl Delta {
    /// No change.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// A 16-bit field changes from `old` to `new`, both in host order.
    #[inline]
    #[must_use]
    pub const fn replace_u16(self, old: u16, new: u16) -> Self {
        Self(self.0 + !old as u64 + new as u64)
    }

    /// A 32-bit field changes, for example an IPv4 address.
    #[inline]
    #[must_use]
    pub const fn replace_u32(self, old: u32, new: u32) -> Self {
        Self(self.0 + !old as u64 + new as u64)
    }

    /// A 128-bit field changes, for example an IPv6 address.
    #[inline]
    #[must_use]
    pub const fn replace_u128(self, old: u128, new: u128) -> Self {
        Self(self.0 + halves(!old) + halves(new))
    }

    /// A run of bytes at an even offset changes. The runs may differ in length (options added or
    /// removed) as long as both are even or the run ends the message; a length that is itself
    /// covered (pseudo-header, total length) is another change.
    #[inline]
    #[must_use]
    pub fn replace_slice(self, old: &[u8], new: &[u8]) -> Self {
        Self(self.0 + u64::from(!sum(old)) + u64::from(sum(new)))
    }

    /// Both changes together.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// A complete checksum after the change.
    #[inline]
    #[must_use]
    pub(crate) const fn apply(self, checksum: u16) -> u16 {
        // Folding first keeps the sum far from overflow however many changes were collected.
        !fold(!checksum as u64 + fold(self.0) as u64)
    }
}

impl Delta {
    /// A sum, not complemented, after the change. Apart, so that complete checksums cost no more for it.
    #[cold]
    #[must_use]
    const fn apply_to_sum(self, sum: u16) -> u16 {
        fold(sum as u64 + fold(self.0) as u64)
    }
}

/// The difference that a change makes to a TCP or UDP checksum. The addresses stand apart, since a partial checksum
/// covers nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportDelta {
    addresses: Delta,
    message: Delta,
}

impl TransportDelta {
    /// A change of the addresses of the pseudo-header, and one of the transport message: ports, payload.
    #[inline]
    #[must_use]
    pub const fn new(addresses: Delta, message: Delta) -> Self {
        Self { addresses, message }
    }

    /// A TCP checksum after the change.
    #[inline]
    #[must_use]
    pub(crate) const fn apply(self, checksum: u16, state: ChecksumState) -> u16 {
        match state {
            ChecksumState::Complete => self.addresses.and(self.message).apply(checksum),
            ChecksumState::Partial => self.addresses.apply_to_sum(checksum),
        }
    }

    /// A UDP checksum after the change. A complete one of 0 means "no checksum" and stays; a result of 0 is sent as
    /// 0xffff (RFC 768).
    #[inline]
    #[must_use]
    pub(crate) const fn apply_udp(self, checksum: u16, state: ChecksumState) -> u16 {
        if checksum == 0 && matches!(state, ChecksumState::Complete) {
            return 0;
        }
        // A partial one is no 0 afterwards: it has the sum of an address in it.
        never_zero(self.apply(checksum, state))
    }
}

/// A complete UDP checksum as it is sent: 0 would mean that there is none.
#[inline]
pub(crate) const fn never_zero(checksum: u16) -> u16 {
    match checksum {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// Four 32-bit words of an address, added without loss.
#[inline]
const fn halves(bits: u128) -> u64 {
    let high = (bits >> 64) as u64;
    let low = bits as u64;
    (high >> 32) + (high & 0xffff_ffff) + (low >> 32) + (low & 0xffff_ffff)
}

/// Ones' complement fold of a wide sum to 16 bits; zero only if the sum is zero.
#[inline]
const fn fold(total: u64) -> u16 {
    let total = (total >> 32) + (total & 0xffff_ffff);
    let total = (total >> 16) + (total & 0xffff);
    let total = (total >> 16) + (total & 0xffff);
    let total = (total >> 16) + (total & 0xffff);
    total as u16
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// RFC 1071 section 4.1, word for word: the reference for the fast sum.
    fn plain_sum(data: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in data.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// Replaces `new.len()` bytes from an even offset and returns old bytes and new message.
    fn changed(data: &[u8], word: usize, new: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let at = (word % (data.len() - new.len() + 1)) & !1;
        let mut message = data.to_vec();
        let old = message[at..at + new.len()].to_vec();
        message[at..at + new.len()].copy_from_slice(new);
        (old, message)
    }

    /// Zero has two forms in ones' complement. The forms differ only where all words are zero, which no message with
    /// a pseudo-header or an IPv4 header is.
    fn assert_same(updated: u16, message: &[u8]) {
        let full = checksum(message);
        let all_zero = message.iter().all(|&byte| byte == 0);
        assert!(
            updated == full || all_zero && updated == 0,
            "{updated:#06x} {full:#06x}"
        );
    }

    /// Words that hit the corner cases as often as the ordinary ones.
    fn word() -> impl Strategy<Value = u16> {
        prop_oneof![Just(0), Just(0xffff), any::<u16>()]
    }

    fn message() -> impl Strategy<Value = Vec<u8>> {
        vec(word(), 16..40).prop_map(|words| words.iter().flat_map(|w| w.to_be_bytes()).collect())
    }

    #[test]
    fn rfc_1071_example() {
        assert_eq!(
            sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            0xddf2
        );
        assert_eq!(sum(&[]), 0);
        assert_eq!(checksum(&[0xff, 0xff]), 0);
    }

    // promise: 9.3
    #[test]
    fn rfc_1624_example() {
        let delta = Delta::new().replace_u16(0x5555, 0x3285);
        assert_eq!(delta.apply(0xdd2f), 0x0000);
    }

    #[test]
    fn udp_without_checksum_stays_so_and_zero_is_sent_as_ones() {
        let port = Delta::new().replace_u16(0x5555, 0x3285);
        let delta = TransportDelta::new(Delta::new(), port);
        assert_eq!(delta.apply_udp(0, ChecksumState::Complete), 0);
        assert_eq!(delta.apply_udp(0xdd2f, ChecksumState::Complete), 0xffff);
        let none = TransportDelta::default();
        assert_eq!(none.apply_udp(0xdd2f, ChecksumState::Complete), 0xdd2f);
    }

    /// Catches: a partial sum that is complemented, that takes ports into account, or of which 0 is "no checksum".
    #[test]
    fn a_partial_checksum_changes_with_the_addresses_only() {
        let address = Delta::new().replace_u32(0x0a00_0001, 0xcb00_7107);
        let port = Delta::new().replace_u16(4000, 1024);
        let delta = TransportDelta::new(address, port);
        let addresses =
            |src| pseudo_header_v4(Ipv4Addr::from_bits(src), Ipv4Addr::LOCALHOST, 17, 9);
        let (before, after) = (addresses(0x0a00_0001), addresses(0xcb00_7107));
        assert_eq!(delta.apply(before, ChecksumState::Partial), after);
        assert_eq!(delta.apply_udp(before, ChecksumState::Partial), after);
        let grown = TransportDelta::new(Delta::new().replace_u16(1, 3), port);
        assert_eq!(grown.apply_udp(0, ChecksumState::Partial), 2);
    }

    proptest! {
        #[test]
        fn fast_sum_is_the_plain_sum(data in vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(sum(&data), plain_sum(&data));
        }

        #[test]
        fn sums_of_pieces_combine(data in vec(any::<u8>(), 0..200), at in 0..100_usize) {
            let (head, tail) = data.split_at((at * 2).min(data.len() & !1));
            prop_assert_eq!(combine(&[sum(head), sum(tail)]), sum(&data));
        }

        #[test]
        fn pseudo_headers_are_the_sum_of_their_bytes(
            v4 in any::<([u8; 4], [u8; 4])>(), v6 in any::<([u8; 16], [u8; 16])>(),
            protocol in any::<u8>(), length in any::<u32>(),
        ) {
            let [a, b, c, d] = length.to_be_bytes();
            let tail = [a, b, c, d, 0, 0, 0, protocol];
            let bytes = [&v4.0[..], &v4.1, &tail].concat();
            let sum = pseudo_header_v4(v4.0.into(), v4.1.into(), protocol, length);
            prop_assert_eq!(sum, plain_sum(&bytes));
            let bytes = [&v6.0[..], &v6.1, &tail].concat();
            let sum = pseudo_header_v6(v6.0.into(), v6.1.into(), protocol, length);
            prop_assert_eq!(sum, plain_sum(&bytes));
        }

        // promise: 9.3
        #[test]
        fn incremental_is_full(
            data in message(), at in any::<u16>(), a in word(), b in word(), rest in any::<[u8; 12]>(),
        ) {
            let before = checksum(&data);
            let at = usize::from(at);

            let (old, message) = changed(&data, at, &a.to_be_bytes());
            let old = u16::from_be_bytes([old[0], old[1]]);
            assert_same(Delta::new().replace_u16(old, a).apply(before), &message);

            let new = u32::from(a) << 16 | u32::from(b);
            let (old, message) = changed(&data, at, &new.to_be_bytes());
            let old = u32::from_be_bytes(*old.first_chunk().expect("4 bytes"));
            assert_same(Delta::new().replace_u32(old, new).apply(before), &message);

            let new: Vec<u8> = [&new.to_be_bytes()[..], &rest].concat();
            let (old, message) = changed(&data, at, &new);
            assert_same(Delta::new().replace_slice(&old, &new).apply(before), &message);
            let old = u128::from_be_bytes(*old.first_chunk().expect("16 bytes"));
            let new = u128::from_be_bytes(*new.first_chunk().expect("16 bytes"));
            assert_same(Delta::new().replace_u128(old, new).apply(before), &message);
        }

        // promise: 9.3
        #[test]
        fn a_partial_sum_follows_the_addresses(
            (a, b, c) in any::<(u32, u32, u32)>(), (d, e, f) in any::<(u128, u128, u128)>(),
            length in 0..65_536_u32, port in word(),
        ) {
            let port = Delta::new().replace_u16(port, 7);
            let v4 = |src: u32| pseudo_header_v4(src.into(), b.into(), 6, length);
            let delta = TransportDelta::new(Delta::new().replace_u32(a, c), port);
            prop_assert_eq!(delta.apply(v4(a), ChecksumState::Partial), v4(c));
            let v6 = |dst: u128| pseudo_header_v6(d.into(), dst.into(), 6, length);
            let delta = TransportDelta::new(Delta::new().replace_u128(e, f), port);
            prop_assert_eq!(delta.apply(v6(e), ChecksumState::Partial), v6(f));
        }

        #[test]
        fn many_changes_at_once(words in vec((word(), word()), 1..200)) {
            let message = |pick: fn(&(u16, u16)) -> u16| -> Vec<u8> {
                words.iter().flat_map(|pair| pick(pair).to_be_bytes()).collect()
            };
            let delta = words.iter().fold(Delta::new(), |delta, &(old, new)| {
                delta.replace_u16(old, new)
            });
            assert_same(delta.apply(checksum(&message(|pair| pair.0))), &message(|pair| pair.1));
        }
    }
}
