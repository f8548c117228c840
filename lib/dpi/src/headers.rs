//! Finds the flow of a frame and the beginning of its IP packet: as `ndpiReader` does (without its `-t`), so that both
//! can be compared. Tags, MPLS, PPPoE, LLC, and IP in IP are skipped; frames that are not IP, are cut off, or are later
//! fragments have no flow. A payload after an unknown ethertype, such as FabricPath, is IP if it begins as IP does.

use std::net::{IpAddr, SocketAddr};

const ETHERNET: usize = 14;
const COOKED: usize = 16;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TAG: usize = 4;
const PPPOE: usize = 8;
/// LLC and SNAP.
const SNAP: usize = 8;
const SNAP_POINT: u8 = 0xaa;
const SPANNING_TREE_POINT: u8 = 0x42;
/// Up to here an ethertype is a length.
const LENGTH_MAX: u16 = 1500;
const IPV4_TYPE: u16 = 0x0800;
const IPV6_TYPE: u16 = 0x86dd;
/// No frame is looked at that has no room for headers of IPv4 and UDP behind that of Ethernet.
const SHORTEST: usize = 28;
/// More than these, one in another, are no traffic.
const NESTED_MAX: usize = 8;

const TCP: u8 = 6;
const UDP: u8 = 17;
const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;

/// The first header of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Ip,
    /// The 16 bytes of Linux's cooked captures, of which the last two are an ethertype.
    Cooked,
}

/// A flow, both ways of it: the end that is lower comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// An end: address and port. Protocols other than TCP and UDP have port 0.
    pub low: (IpAddr, u16),
    /// The other one.
    pub high: (IpAddr, u16),
    /// IP protocol.
    pub protocol: u8,
    /// VLAN of the innermost tag; 0 if there is none.
    pub vlan: u16,
}

impl Key {
    /// Returns the key of a flow as the fast path knows it: between two ends, without a VLAN.
    pub fn between(one: SocketAddr, other: SocketAddr, protocol: u8) -> Self {
        let end = |at: SocketAddr| (at.ip(), at.port());
        let (one, other) = (end(one), end(other));
        Key {
            low: one.min(other),
            high: one.max(other),
            protocol,
            vlan: 0,
        }
    }
}

/// A frame that belongs to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard<'a> {
    /// The flow of the packet.
    pub key: Key,
    /// The bytes from the IP header to the end of the frame.
    pub packet: &'a [u8],
    /// True if no header is between Ethernet's and that of IP, which has no options or extensions: the fast path in
    /// XDP knows such packets.
    pub plain: bool,
}

/// The reason why a frame has no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unheard {
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// A fragment, not the first.
    Fragment,
    /// The headers end too early or contradict each other.
    Malformed,
}

/// Parses the headers of a frame of `length` bytes, of which `frame` may be only the beginning.
///
/// # Errors
/// The reason why the frame has no flow.
pub fn read(frame: &[u8], link: Link, length: u64) -> Result<Heard<'_>, Unheard> {
    let cut = usize::try_from(length)
        .unwrap_or(usize::MAX)
        .saturating_sub(frame.len());
    if frame.len() < SHORTEST {
        return Err(Unheard::Malformed);
    }
    let (mut at, vlan) = match link {
        Link::Ethernet => network(frame, ETHERNET)?,
        Link::Cooked => network(frame, COOKED)?,
        Link::Ip => (0, 0),
    };
    let is_ip = || matches!(word(frame, ETHERNET - 2), Ok(IPV4_TYPE | IPV6_TYPE));
    let mut plain = link == Link::Ethernet && at == ETHERNET && is_ip();
    for _ in 0..NESTED_MAX {
        let packet = frame.get(at..).ok_or(Unheard::Malformed)?;
        let ip = match packet.first().ok_or(Unheard::Malformed)? >> 4 {
            4 => ipv4(packet, cut)?,
            6 => ipv6(packet, cut)?,
            _ => return Err(Unheard::NotIp),
        };
        if matches!(ip.protocol, IP_IN_IP | IPV6_IN_IP) {
            at += ip.header;
            plain = false;
            continue;
        }
        return Ok(Heard {
            key: ip.key(packet, vlan)?,
            packet,
            plain: plain && ip.plain,
        });
    }
    Err(Unheard::Malformed)
}

/// Returns the start of the network layer after a header that ends with an ethertype, and the VLAN.
fn network(frame: &[u8], header: usize) -> Result<(usize, u16), Unheard> {
    let mut kind = word(frame, header - 2)?;
    let mut at = header;
    let mut vlan = 0;
    loop {
        match kind {
            0x8100 => {
                vlan = word(frame, at)? & 0xfff;
                kind = word(frame, at + 2)?;
                at += TAG;
            }
            // MPLS: the last label of the stack has bit 8.
            0x8847 | 0x8848 => {
                while word(frame, at + 2)? & 0x0100 == 0 {
                    at += TAG;
                }
                at += TAG;
                return Ok((at, vlan));
            }
            0x8864 => return Ok((at + PPPOE, vlan)),
            // A length: that of LLC. A frame with SNAP behind it has an ethertype there, which is not looked at.
            ..=LENGTH_MAX if at == ETHERNET => {
                let points = word(frame, at)?.to_be_bytes();
                return match () {
                    () if points.contains(&SNAP_POINT) => Ok((at + SNAP, vlan)),
                    () if points.contains(&SPANNING_TREE_POINT) => Err(Unheard::NotIp),
                    () => Ok((at, vlan)),
                };
            }
            _ => return Ok((at, vlan)),
        }
    }
}

/// The part between an IP header and its payload.
struct Ip {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    /// Bytes of the header, with options and extensions.
    header: usize,
    /// Bytes that it carries.
    carries: usize,
    plain: bool,
}

fn ipv4(packet: &[u8], cut: usize) -> Result<Ip, Unheard> {
    let fixed: &[u8; IPV4] = packet.first_chunk().ok_or(Unheard::Malformed)?;
    let header = usize::from(fixed[0] & 0xf) * 4;
    let total = usize::from(word(packet, 2)?);
    let fragment = word(packet, 6)?;
    let protocol = fixed[9];
    // The inner packet comes first: a fragment of a tunnel's packet counts as the packet in it.
    if !matches!(protocol, IP_IN_IP | IPV6_IN_IP) {
        if fragment & 0x1fff != 0 {
            return Err(Unheard::Fragment);
        }
        if packet.len().saturating_add(cut) < total || total < header || packet.len() < header {
            return Err(Unheard::Malformed);
        }
    }
    let address = |at: usize| <[u8; 4]>::try_from(&fixed[at..at + 4]).unwrap_or_default();
    Ok(Ip {
        source: address(12).into(),
        destination: address(16).into(),
        protocol,
        header,
        carries: total.saturating_sub(header),
        plain: header == IPV4 && fragment & 0x3fff == 0,
    })
}

fn ipv6(packet: &[u8], cut: usize) -> Result<Ip, Unheard> {
    let fixed: &[u8; IPV6] = packet.first_chunk().ok_or(Unheard::Malformed)?;
    let total = IPV6 + usize::from(word(packet, 4)?);
    if packet.len().saturating_add(cut) < total {
        return Err(Unheard::Malformed);
    }
    let within = &packet[..total.min(packet.len())];
    let mut protocol = fixed[6];
    let mut header = IPV6;
    loop {
        let extension = |at: usize| within.get(header + at).copied().ok_or(Unheard::Malformed);
        let len = match protocol {
            // Hop by hop, routing, destination, mobility.
            0 | 43 | 60 | 135 => usize::from(extension(1)?) * 8 + 8,
            44 if word(within, header + 2)? >> 3 != 0 => return Err(Unheard::Fragment),
            44 => 8,
            // No next header follows.
            59 => return Err(Unheard::Malformed),
            _ => break,
        };
        protocol = extension(0)?;
        header += len;
        if header > total {
            return Err(Unheard::Malformed);
        }
    }
    let address = |at: usize| <[u8; 16]>::try_from(&fixed[at..at + 16]).unwrap_or_default();
    Ok(Ip {
        source: address(8).into(),
        destination: address(24).into(),
        protocol,
        header,
        carries: total - header,
        plain: header == IPV6,
    })
}

impl Ip {
    fn key(&self, packet: &[u8], vlan: u16) -> Result<Key, Unheard> {
        let has_ports = match self.protocol {
            TCP => self.carries >= 20,
            UDP => self.carries >= 8,
            _ => false,
        };
        let port = |at| {
            if has_ports {
                word(packet, self.header + at)
            } else {
                Ok(0)
            }
        };
        let ends = [(self.source, port(0)?), (self.destination, port(2)?)];
        let [low, high] = if ends[0] <= ends[1] {
            ends
        } else {
            [ends[1], ends[0]]
        };
        Ok(Key {
            low,
            high,
            protocol: self.protocol,
            vlan,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u16, Unheard> {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map(|word| u16::from_be_bytes(*word))
        .ok_or(Unheard::Malformed)
}

#[cfg(test)]
mod tests {
    use super::{Heard, Link, Unheard, read};
    use proptest::prelude::*;

    fn whole(frame: &[u8]) -> Result<Heard<'_>, Unheard> {
        read(frame, Link::Ethernet, frame.len() as u64)
    }

    fn udp(source: u8, destination: u8) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0]);
        frame.extend([0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, source, 10, 0, 0, destination]);
        frame.extend([0, source, 0, destination, 0, 12, 0, 0, 1, 2, 3, 4]);
        frame
    }

    #[test]
    fn both_ways_are_one_flow() {
        let (there, back) = (udp(1, 2), udp(2, 1));
        let there = whole(&there).expect("UDP");
        let back = whole(&back).expect("UDP");
        assert_eq!(there.key, back.key);
        assert_eq!((there.key.low.1, there.key.high.1), (1, 2));
        assert!(there.plain);
        assert_eq!(there.packet.len(), 32);
    }

    #[test]
    fn tags_and_tunnels_are_looked_through() {
        let plain = udp(1, 2);
        let inner = &plain[14..];
        let tagged = [&plain[..12], &[0x81, 0, 0x20, 5, 8, 0], inner].concat();
        let labelled = [
            &plain[..12],
            &[0x88, 0x47, 0, 1, 0x20, 9, 0, 1, 0x21, 9],
            inner,
        ]
        .concat();
        let mut outer = plain[..34].to_vec();
        outer[23] = 4;
        let tunnelled = [&outer, inner].concat();
        let expected = whole(&plain).expect("UDP").key;
        for (frame, vlan) in [(tagged, 5), (labelled, 0), (tunnelled, 0)] {
            let heard = whole(&frame).expect("UDP");
            assert_eq!((heard.packet, heard.plain), (inner, false));
            assert_eq!(heard.key.vlan, vlan);
            assert_eq!(heard.key.high, expected.high);
        }
        assert_eq!(
            read(inner, Link::Ip, inner.len() as u64).expect("UDP").key,
            expected
        );
    }

    #[test]
    fn what_has_no_flow_says_why() {
        let mut later = udp(1, 2);
        later[21] = 9;
        assert_eq!(whole(&later), Err(Unheard::Fragment));
        let mut arp = udp(1, 2);
        arp[13] = 6;
        arp[14] = 0;
        assert_eq!(whole(&arp), Err(Unheard::NotIp));
        let mut longer = udp(1, 2);
        longer[17] = 33;
        assert_eq!(whole(&longer), Err(Unheard::Malformed));
        let cut = read(&longer, Link::Ethernet, longer.len() as u64 + 1);
        assert!(cut.is_ok(), "the rest was not kept: {cut:?}");
    }

    // promise: 15.72
    #[test]
    fn what_begins_as_ip_is_ip_but_nothing_that_xdp_knows() {
        let plain = udp(1, 2);
        let inner = &plain[14..];
        let kind = |kind: [u8; 2], behind: &[u8]| [&plain[..12], &kind, behind, inner].concat();
        for frame in [
            kind([0x88, 0xb5], &[]),
            kind([0, 40], &[]),
            kind([0, 40], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
        ] {
            let heard = whole(&frame).expect("it begins as IP");
            assert_eq!((heard.packet, heard.plain), (inner, false));
        }
        let spanning_tree = kind([0, 40], &[0x42, 0x42, 3]);
        assert_eq!(whole(&spanning_tree), Err(Unheard::NotIp));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..6, cut in 0u64..2000) {
            let mut frame = bytes;
            let kind = [[8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0x47], [0x88, 0x64], [8, 6]][kind];
            if frame.len() > 14 {
                frame[12..14].copy_from_slice(&kind);
                frame[14] = frame[14] & 0xf | if kind[0] == 8 { 0x40 } else { 0x60 };
            }
            for link in [Link::Ethernet, Link::Ip, Link::Cooked] {
                if let Ok(heard) = read(&frame, link, frame.len() as u64 + cut) {
                    prop_assert!(frame.ends_with(heard.packet));
                    prop_assert!(heard.key.low <= heard.key.high);
                }
            }
        }
    }
}
