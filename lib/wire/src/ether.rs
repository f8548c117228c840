//! Ethernet II frames and 802.1Q / 802.1ad tags.
//!
//! A frame is what a port sees: no preamble, no frame check sequence. The payload may end in
//! padding; only the protocol inside knows where it ends.

use core::fmt;
use core::str::FromStr;

use crate::ParseError;
use crate::be;
use crate::view::view;

/// Bytes of an untagged Ethernet header.
pub const HEADER_LEN: usize = 14;
/// Bytes of one VLAN tag.
pub const VLAN_TAG_LEN: usize = 4;
/// Tags that this crate looks behind; a frame with more is "not IP" to it.
pub const MAX_VLAN_TAGS: usize = 2;

mod field {
    use core::ops::Range;
    pub const DST: Range<usize> = 0..6;
    pub const SRC: Range<usize> = 6..12;
    pub const ETHERTYPE: Range<usize> = 12..14;
    /// Where a tag goes: between source address and ethertype.
    pub const TAG: usize = 12;
}

/// A 48-bit hardware address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All stations, `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// No address, `00:00:00:00:00:00`.
    pub const ZERO: Self = Self([0; 6]);

    /// Group address (this includes broadcast).
    #[inline]
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The address of all stations.
    #[inline]
    #[must_use]
    pub const fn is_broadcast(self) -> bool {
        self.to_bits() == Self::BROADCAST.to_bits()
    }

    /// Returns true if the address is a single station's: neither a group nor zero. Only such an address is valid as
    /// a source.
    #[inline]
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && self.to_bits() != 0
    }

    /// Assigned by an administrator, not by a vendor.
    #[inline]
    #[must_use]
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }

    /// The 48 bits as an integer, first byte most significant: a hash table key.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// Reverse of [`MacAddr::to_bits`]; the upper 16 bits are ignored.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text is not a MAC address: six two-digit hexadecimal bytes joined by `:` or by `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacAddrError;

impl fmt::Display for MacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed MAC address: write six hexadecimal bytes like 02:00:5e:10:00:01")
    }
}

impl core::error::Error for MacAddrError {}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    fn from_str(text: &str) -> Result<Self, MacAddrError> {
        let text = text.as_bytes();
        let separator = *text.get(2).ok_or(MacAddrError)?;
        if text.len() != 17 || !matches!(separator, b':' | b'-') {
            return Err(MacAddrError);
        }
        let mut address = [0; 6];
        for (byte, group) in address.iter_mut().zip(text.chunks(3)) {
            if group.get(2).is_some_and(|&c| c != separator) {
                return Err(MacAddrError);
            }
            *byte = hex_digit(group[0])? << 4 | hex_digit(group[1])?;
        }
        Ok(Self(address))
    }
}

fn hex_digit(digit: u8) -> Result<u8, MacAddrError> {
    let value = char::from(digit).to_digit(16).ok_or(MacAddrError)?;
    Ok(value as u8)
}

/// Ethertype, from IANA's "IEEE 802 Numbers". Values below 0x600 are 802.3 lengths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// 802.1Q customer tag.
    pub const VLAN: Self = Self(0x8100);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// 802.3x pause and other MAC control.
    pub const FLOW_CONTROL: Self = Self(0x8808);
    /// MPLS unicast.
    pub const MPLS: Self = Self(0x8847);
    /// PPPoE session.
    pub const PPPOE_SESSION: Self = Self(0x8864);
    /// 802.1ad service tag.
    pub const QINQ: Self = Self(0x88a8);
    /// LLDP.
    pub const LLDP: Self = Self(0x88cc);
    /// IEEE 802 local experimental ethertype 1.
    pub const EXPERIMENTAL: Self = Self(0x88b5);

    /// True for the tag protocol identifiers 802.1Q and 802.1ad.
    #[inline]
    #[must_use]
    pub const fn is_vlan(self) -> bool {
        self.0 == Self::VLAN.0 || self.0 == Self::QINQ.0
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A VLAN tag: its identifier (which ethertype announces it) and its control information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// [`EtherType::VLAN`] or [`EtherType::QINQ`].
    pub tpid: EtherType,
    /// Priority code point, 0 to 7.
    pub pcp: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// VLAN identifier, 0 (priority tag only) to 4095 (reserved).
    pub vid: u16,
}

impl VlanTag {
    /// An 802.1Q tag with priority 0.
    #[inline]
    #[must_use]
    pub const fn new(vid: u16) -> Self {
        Self {
            tpid: EtherType::VLAN,
            pcp: 0,
            dei: false,
            vid: vid & 0xfff,
        }
    }

    /// From the tag control information as it stands in the frame.
    #[inline]
    #[must_use]
    pub const fn from_tci(tpid: EtherType, tci: u16) -> Self {
        Self {
            tpid,
            pcp: (tci >> 13) as u8,
            dei: tci & 0x1000 != 0,
            vid: tci & 0xfff,
        }
    }

    /// The tag control information; out-of-range fields are cut to their width.
    #[inline]
    #[must_use]
    pub const fn tci(self) -> u16 {
        (self.pcp as u16 & 7) << 13 | (self.dei as u16) << 12 | self.vid & 0xfff
    }

    /// Identifier and control information, as between source address and ethertype.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; VLAN_TAG_LEN] {
        let [a, b] = self.tpid.0.to_be_bytes();
        let [c, d] = self.tci().to_be_bytes();
        [a, b, c, d]
    }
}

view! {
    /// View of an Ethernet II frame. `payload()` starts right after the outer ethertype, so it
    /// begins with the rest of the tag if there is one: use [`VlanStack`] to look behind tags.
    EthernetFrame
}

impl<T: AsRef<[u8]>> EthernetFrame<T> {
    /// # Errors
    /// [`ParseError::EthernetTruncated`] below 14 bytes.
    #[inline]
    pub fn check(&self) -> Result<(), ParseError> {
        if self.data().len() < HEADER_LEN {
            Err(ParseError::EthernetTruncated)
        } else {
            Ok(())
        }
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> MacAddr {
        MacAddr(be::get_array(self.data(), field::DST))
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> MacAddr {
        MacAddr(be::get_array(self.data(), field::SRC))
    }

    /// Outer ethertype: [`EtherType::VLAN`] or [`EtherType::QINQ`] if the frame is tagged.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(be::get_u16(self.data(), field::ETHERTYPE))
    }

    /// Returns the bytes behind the outer ethertype, padding included.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.data()[HEADER_LEN..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> EthernetFrame<T> {
    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, address: MacAddr) {
        self.buffer.as_mut()[field::DST].copy_from_slice(&address.0);
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, address: MacAddr) {
        self.buffer.as_mut()[field::SRC].copy_from_slice(&address.0);
    }

    /// Sets the outer ethertype.
    #[inline]
    pub fn set_ethertype(&mut self, ethertype: EtherType) {
        be::set_u16(self.buffer.as_mut(), field::ETHERTYPE, ethertype.0);
    }

    /// Exchanges source and destination.
    #[inline]
    pub fn swap_addresses(&mut self) {
        let (dst, src) = (self.dst(), self.src());
        self.set_dst(src);
        self.set_src(dst);
    }

    /// Returns the bytes behind the outer ethertype, to be written.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut()[HEADER_LEN..]
    }
}

/// The tags of a frame and what is behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanStack {
    tags: [VlanTag; MAX_VLAN_TAGS],
    count: u8,
    /// Ethertype behind the tags; still a tag's if the frame has more than two.
    pub ethertype: EtherType,
    /// Where the payload of that ethertype starts: 14, 18 or 22 bytes into the frame.
    pub l3_offset: usize,
}

impl VlanStack {
    /// Looks behind at most [`MAX_VLAN_TAGS`] tags.
    ///
    /// # Errors
    /// [`ParseError::EthernetTruncated`], [`ParseError::VlanTruncated`].
    #[inline]
    pub fn peek(frame: &[u8]) -> Result<Self, ParseError> {
        let ethertype = EthernetFrame::new_checked(frame)?.ethertype();
        let none = VlanTag::new(0);
        let mut stack = Self {
            tags: [none; MAX_VLAN_TAGS],
            count: 0,
            ethertype,
            l3_offset: HEADER_LEN,
        };
        for slot in 0..MAX_VLAN_TAGS {
            if !stack.ethertype.is_vlan() {
                break;
            }
            let tag = be::chunk_at::<VLAN_TAG_LEN>(frame, stack.l3_offset);
            let [a, b, c, d] = *tag.ok_or(ParseError::VlanTruncated)?;
            stack.tags[slot] = VlanTag::from_tci(stack.ethertype, u16::from_be_bytes([a, b]));
            stack.count += 1;
            stack.ethertype = EtherType(u16::from_be_bytes([c, d]));
            stack.l3_offset += VLAN_TAG_LEN;
        }
        Ok(stack)
    }

    /// The tags found, outermost first.
    #[inline]
    #[must_use]
    pub fn tags(&self) -> &[VlanTag] {
        &self.tags[..usize::from(self.count)]
    }

    /// The outermost tag.
    #[inline]
    #[must_use]
    pub fn outer(&self) -> Option<VlanTag> {
        self.tags().first().copied()
    }
}

/// Adds `tag` as the outermost one to the frame in `buffer[..len]` and returns the new length, or
/// `None` and an unchanged buffer if that is no frame or there is no room for 4 more bytes.
#[inline]
pub fn push_tag(buffer: &mut [u8], len: usize, tag: VlanTag) -> Option<usize> {
    let tagged = len.checked_add(VLAN_TAG_LEN)?;
    if len < HEADER_LEN || tagged > buffer.len() {
        return None;
    }
    buffer.copy_within(field::TAG..len, field::TAG + VLAN_TAG_LEN);
    buffer[field::TAG..field::TAG + VLAN_TAG_LEN].copy_from_slice(&tag.to_bytes());
    Some(tagged)
}

/// Removes the outermost tag of the frame in `buffer[..len]` and returns it with the new length,
/// or `None` and an unchanged buffer if the frame has no whole tag.
#[inline]
pub fn pop_tag(buffer: &mut [u8], len: usize) -> Option<(VlanTag, usize)> {
    let tag = VlanStack::peek(buffer.get(..len)?).ok()?.outer()?;
    buffer.copy_within(field::TAG + VLAN_TAG_LEN..len, field::TAG);
    Some((tag, len - VLAN_TAG_LEN))
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn mac_address_text() {
        let address = MacAddr([0x02, 0, 0x5e, 0x10, 0, 0xfe]);
        assert_eq!(address.to_string(), "02:00:5e:10:00:fe");
        assert_eq!("02:00:5e:10:00:fe".parse(), Ok(address));
        assert_eq!("02-00-5E-10-00-FE".parse(), Ok(address));
    }

    #[test]
    fn mac_address_text_refused() {
        for text in [
            "",
            "02",
            "02:00:5e:10:00",
            "02:00:5e:10:00:fe:",
            "02:00:5e:10:00:fe:01",
            "02:00:5e-10:00:fe",
            "02:00:5e:10:00:fg",
            "+2:00:5e:10:00:fe",
            "2:0:5e:10:0:fe",
            "02.00.5e.10.00.fe",
            "02:00:5e:10:00:\u{e9}",
        ] {
            assert_eq!(text.parse::<MacAddr>(), Err(MacAddrError), "{text:?}");
        }
    }

    #[test]
    fn mac_address_kinds() {
        let station = MacAddr([0x02, 0, 0, 0, 0, 1]);
        let group = MacAddr([0x01, 0, 0x5e, 0, 0, 1]);
        assert!(station.is_unicast() && station.is_local() && !station.is_multicast());
        assert!(group.is_multicast() && !group.is_unicast() && !group.is_broadcast());
        assert!(MacAddr::BROADCAST.is_broadcast() && MacAddr::BROADCAST.is_multicast());
        assert!(!MacAddr::ZERO.is_unicast());
        assert_eq!(station.to_bits(), 0x0200_0000_0001);
        assert_eq!(MacAddr::from_bits(station.to_bits()), station);
    }

    #[test]
    fn tag_fields() {
        let tag = VlanTag::from_tci(EtherType::VLAN, 0xb02a);
        assert_eq!((tag.pcp, tag.dei, tag.vid), (5, true, 42));
        assert_eq!(tag.to_bytes(), [0x81, 0x00, 0xb0, 0x2a]);
    }

    #[test]
    fn tags_are_looked_behind_up_to_two() {
        let mut frame = [0; 64];
        frame[12..14].copy_from_slice(&EtherType::IPV6.0.to_be_bytes());
        let mut len = HEADER_LEN;
        for (count, vid) in [(0, 0), (1, 10), (2, 20)] {
            if count > 0 {
                len = push_tag(&mut frame, len, VlanTag::new(vid)).expect("room for a tag");
            }
            let stack = VlanStack::peek(&frame[..len]).expect("a frame");
            assert_eq!((stack.tags().len(), stack.l3_offset), (count, len));
            assert_eq!(stack.ethertype, EtherType::IPV6);
            assert_eq!(stack.outer().map(|tag| tag.vid), (count > 0).then_some(vid));
        }
        len = push_tag(&mut frame, len, VlanTag::new(30)).expect("room for a tag");
        let stack = VlanStack::peek(&frame[..len]).expect("a frame");
        assert_eq!((stack.tags().len(), stack.ethertype), (2, EtherType::VLAN));
    }

    #[test]
    fn tags_are_refused_without_room_or_frame() {
        let mut frame = [0; 20];
        assert_eq!(push_tag(&mut frame, 17, VlanTag::new(1)), None);
        assert_eq!(push_tag(&mut frame, 13, VlanTag::new(1)), None);
        assert_eq!(push_tag(&mut frame, usize::MAX, VlanTag::new(1)), None);
        assert_eq!(pop_tag(&mut frame, 20), None, "an untagged frame");
        frame[12..14].copy_from_slice(&EtherType::QINQ.0.to_be_bytes());
        assert_eq!(pop_tag(&mut frame, 17), None, "half a tag");
        assert_eq!(pop_tag(&mut frame, 21), None, "a length beyond the buffer");
        assert_eq!(
            VlanStack::peek(&frame[..17]),
            Err(ParseError::VlanTruncated)
        );
        assert_eq!(
            VlanStack::peek(&frame[..13]),
            Err(ParseError::EthernetTruncated)
        );
    }
}
