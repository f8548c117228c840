//! IPv4 identifications of packets that many hosts send from one external address (RFC 7857, RFC 6864 section 5.3.1).
//!
//! Receivers put fragments together by source, destination, protocol and identification (RFC 791). Hosts behind one address choose
//! theirs without knowing of each other, so that fragments of two packets could be put together to one. Each packet that may be
//! fragmented, or is, gets another one from a counter; packets with "don't fragment" are atomic and keep theirs, which mean nothing
//! (RFC 6864 section 4.1). All fragments of a packet get the same.

use super::endpoint::Hasher;
use alloc::boxed::Box;
use nfluid_wire::IpProtocol;
use nfluid_wire::checksum::Delta;
use nfluid_wire::ipv4::Ipv4Packet;

/// Counters, each of all sources, destinations and protocols with the same hash: 4 KiB stay in the cache. Two that share a counter
/// come to the same identification sooner, not at the same time.
const COUNTERS: usize = 2048;

/// The next identifications.
#[derive(Debug)]
pub(super) struct Idents(Box<[u16; COUNTERS]>);

impl Idents {
    pub(super) fn new() -> Idents {
        Idents(Box::new([0; COUNTERS]))
    }

    /// Returns an identification that no other of the last packets from `src` to `dst` has: of the last 65,536 by
    /// this counter. An outsider that sees its own identifications does not learn those to other hosts.
    pub(super) fn take(&mut self, hasher: Hasher, ends: (u32, u32), protocol: IpProtocol) -> u16 {
        self.take_many(hasher, ends, protocol, 1)
    }

    /// As [`Idents::take`], of a frame that becomes so many packets: the identification of the first. Those of the
    /// others follow.
    pub(super) fn take_many(
        &mut self,
        hasher: Hasher,
        (src, dst): (u32, u32),
        protocol: IpProtocol,
        packets: u64,
    ) -> u16 {
        let hash = hasher.fragment(src, dst, 0, protocol.0);
        let counter = &mut self.0[hash as usize % COUNTERS];
        let first = counter.wrapping_add(1);
        *counter = counter.wrapping_add(packets as u16);
        first.wrapping_add((hash >> 48) as u16)
    }
}

/// Returns true if the identification of a packet means something: it is a fragment, or may become several. For packets at
/// offset 0, by one byte.
#[inline(always)]
pub(super) fn is_meant(packet: &[u8]) -> bool {
    const FLAGS: usize = 6;
    const DONT_FRAGMENT: u8 = 0x40;
    const MORE_FRAGMENTS: u8 = 0x20;
    packet[FLAGS] & (DONT_FRAGMENT | MORE_FRAGMENTS) != DONT_FRAGMENT
}

/// Gives a packet another identification.
pub(super) fn set(packet: &mut [u8], ident: u16) {
    let mut ip = Ipv4Packet::new_unchecked(packet);
    let delta = Delta::new().replace_u16(ip.ident(), ident);
    ip.set_ident(ident);
    ip.update_checksum(delta);
}
