//! The path of plain packets: addressed to the router's MAC address, well formed, no IPv4 options,
//! time to live left, and a route to a neighbour whose address is known.
//!
//! A batch takes the path in separate passes - check all, look all up, rewrite all - so that the cache misses of the
//! look-ups overlap instead of adding up. A packet that does not fit goes, unchanged, through [`super::slow`], which
//! repeats the checks one by one to name the reason.
//!
//! A super-frame takes the path as any packet does: its packets must not be larger than the MTU.

use super::Router;
use super::config::{PORTS_MAX, Port};
use super::hops::FastHop;
use crate::function::Nanos;
use crate::traffic::OnWire;
use nfluid_ring::layout::BATCH_MAX;
use nfluid_ring::{Batch, Frame, Level, frame_at};
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::{EtherType, checksum, ether, ipv6};

/// Ethernet and the fixed IPv4 header.
const IPV4_HEADERS: usize = ether::HEADER_LEN + 20;
/// Ethernet and the fixed IPv6 header.
const IPV6_HEADERS: usize = ether::HEADER_LEN + ipv6::HEADER_LEN;
/// Shortest Ethernet frame without FCS; shorter packets are padded to it.
const ETHERNET_MIN: usize = 60;

/// The router's own addresses in the form that the fast path asks for.
#[derive(Debug)]
pub(super) struct OwnAddresses {
    /// By port; no MAC address where there is no port.
    macs: [u64; PORTS_MAX],
    /// Bloom filter of the IPv4 addresses and of their networks' broadcast addresses, one hash: a packet from an
    /// address that is in the filter may claim to come from the router itself, or from a broadcast address.
    sources: [u64; 64],
}

impl OwnAddresses {
    pub(super) fn new(ports: &[Port]) -> Self {
        let mut own = OwnAddresses {
            macs: [u64::MAX; PORTS_MAX],
            sources: [0; 64],
        };
        for (mac, port) in own.macs.iter_mut().zip(ports) {
            *mac = port.mac.to_bits();
            for (address, length) in &port.v4 {
                let host_bits = !super::lpm4::masked(u32::MAX, *length);
                for source in [address.to_bits(), address.to_bits() | host_bits] {
                    let (word, bit) = source_bit(source);
                    own.sources[word] |= bit;
                }
            }
        }
        own
    }

    #[inline(always)]
    fn may_hold(&self, source: u32) -> bool {
        let (word, bit) = source_bit(source);
        self.sources[word] & bit != 0
    }
}

#[inline(always)]
const fn source_bit(address: u32) -> (usize, u64) {
    let hash = address.wrapping_mul(0x9e37_79b1) >> 20;
    ((hash >> 6) as usize, 1 << (hash & 63))
}

/// The result of the first pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    No,
    Ipv4,
    Ipv6,
}

impl Router {
    /// Forwards a batch.
    pub(super) fn forward_batch(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        let (frames, outbox) = batch.split();
        let count = frames.len().min(BATCH_MAX);
        let frames = &mut frames[..count];
        self.counters.received += count as u64;

        let mut plain = [Plain::No; BATCH_MAX];
        let mut destinations = [0u32; BATCH_MAX];
        let mut any_ipv6 = false;
        for (at, frame) in frames.iter_mut().enumerate() {
            if !frame.offload().is_none() && !self.settle(frame) {
                continue;
            }
            let mac = self.own.macs[usize::from(frame.in_port()) % PORTS_MAX];
            if let Some(destination) = plain_ipv4(frame.bytes(), mac, &self.own) {
                plain[at] = Plain::Ipv4;
                destinations[at] = destination;
            } else if is_plain_ipv6(frame.bytes(), mac) {
                plain[at] = Plain::Ipv6;
                any_ipv6 = true;
            }
        }

        let mut hops = [0u32; BATCH_MAX];
        for (hop, destination) in hops.iter_mut().zip(destinations).take(count) {
            *hop = self.fib.v4.begin(destination);
        }
        for (hop, destination) in hops.iter_mut().zip(destinations).take(count) {
            *hop = self.fib.v4.finish(*hop, destination);
        }
        if any_ipv6 {
            for ((hop, frame), kind) in hops.iter_mut().zip(&*frames).zip(plain) {
                if kind == Plain::Ipv6 {
                    *hop = self.fib.v6.lookup(ipv6_destination(frame.bytes()));
                }
            }
        }

        let table = self.fib.hops.fast();
        let mut slow = 0u64;
        // A single packet of a batch that goes back by its own port is checked for a redirect: hosts that take no
        // redirects cost no more.
        let mut to_redirect = self.redirects;
        for (at, frame) in frames.iter_mut().enumerate() {
            let hop = &mut table[hops[at] as usize];
            let sent = match plain[at] {
                Plain::Ipv4 if hop.port == frame.in_port() && to_redirect => {
                    to_redirect = false;
                    false
                }
                Plain::Ipv4 => send_ipv4(frame, hop),
                Plain::Ipv6 => send_ipv6(frame, hop),
                Plain::No => false,
            };
            if sent {
                let on_wire = OnWire::of(frame);
                self.counters.forward(frame.in_port(), on_wire);
            }
            slow |= u64::from(!sent) << at;
        }

        while slow != 0 {
            let (frame, mut outbox) = frame_at(frames, slow.trailing_zeros() as usize, outbox);
            self.handle(now, frame, &mut outbox);
            slow &= slow - 1;
        }
    }

    /// Settles the metadata of a frame, and counts the other packets of a super-frame as received. Returns false for
    /// metadata that are not the frame's own: the slow path names the reason.
    #[cold]
    fn settle(&mut self, frame: &mut Frame<'_>) -> bool {
        self.counters.received += OnWire::of(frame).packets().saturating_sub(1);
        frame.settle().is_ok()
    }
}

/// Returns true if the packets of a super-frame are not larger than the MTU.
#[cold]
fn packets_fit(frame: &Frame<'_>, mtu: u16) -> bool {
    frame.offload().level() == Level::Super && largest_packet(frame, 0) <= usize::from(mtu)
}

/// Bytes of the largest packet that a frame becomes on a wire, from the IP header on. `total_len` are those of a frame
/// that is one packet.
pub(super) fn largest_packet(frame: &Frame<'_>, total_len: usize) -> usize {
    match frame.offload().level() {
        Level::Super => frame.offload().packet_len(frame.len()) - ether::HEADER_LEN,
        Level::Plain | Level::Checksums => total_len,
    }
}

/// First octets that no forwarded packet has as its source or destination: this network, loopback,
/// multicast and class E.
const fn special_octets() -> [bool; 256] {
    let mut special = [false; 256];
    special[0] = true;
    special[127] = true;
    let mut octet = 224;
    while octet < 256 {
        special[octet] = true;
        octet += 1;
    }
    special
}

/// Upper half of 169.254.0.0/16 (RFC 3927).
const LINK_LOCAL: u32 = 0xa9fe;

const SPECIAL: [bool; 256] = special_octets();

#[inline(always)]
fn bytes_at<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}

/// The destination, if the frame is a plain IPv4 packet for the station `mac`.
#[inline(always)]
fn plain_ipv4(frame: &[u8], mac: u64, own: &OwnAddresses) -> Option<u32> {
    let header = frame.first_chunk::<IPV4_HEADERS>()?;
    // Ethertype IPv4, version 4, header length 5: one comparison.
    let start = u32::from_be_bytes(bytes_at(header, 12)) >> 8;
    if start != (EtherType::IPV4.0 as u32) << 8 | 0x45 {
        return None;
    }
    let to_us = u64::from_be_bytes(bytes_at(header, 0)) >> 16 == mac;
    let total_len = usize::from(u16::from_be_bytes(bytes_at(header, 16)));
    let source = u32::from_be_bytes(bytes_at(header, 26));
    let destination = u32::from_be_bytes(bytes_at(header, 30));
    let plain = to_us
        & (header[22] > 1)
        & (total_len >= 20)
        & (total_len + ether::HEADER_LEN <= frame.len())
        & (checksum::sum(&header[14..]) == 0xffff)
        & !SPECIAL[usize::from(header[26])]
        & !SPECIAL[usize::from(header[30])]
        & (source >> 16 != LINK_LOCAL)
        & (destination >> 16 != LINK_LOCAL)
        & !own.may_hold(source);
    plain.then_some(destination)
}

#[inline(always)]
fn is_plain_ipv6(frame: &[u8], mac: u64) -> bool {
    let Some(header) = frame.first_chunk::<IPV6_HEADERS>() else {
        return false;
    };
    let payload_len = usize::from(u16::from_be_bytes(bytes_at(header, 18)));
    u64::from_be_bytes(bytes_at(header, 0)) >> 16 == mac
        && bytes_at(header, 12) == EtherType::IPV6.0.to_be_bytes()
        && header[14] >> 4 == 6
        && header[21] > 1
        && payload_len + IPV6_HEADERS <= frame.len()
        && is_global(u64::from_be_bytes(bytes_at(header, 22)))
        && is_global(u64::from_be_bytes(bytes_at(header, 38)))
}

/// Neither unspecified, loopback or IPv4-mapped (`::/64`), nor link-local, nor multicast; by the upper half of the
/// address.
#[inline(always)]
const fn is_global(high: u64) -> bool {
    high != 0 && high >> 54 != 0xfe80 >> 6 && high >> 56 != 0xff
}

#[inline(always)]
fn ipv6_destination(frame: &[u8]) -> u128 {
    match frame.get(38..54).and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => u128::from_be_bytes(bytes),
        None => 0,
    }
}

/// Sends a checked IPv4 packet on, if the hop can take it as it is.
#[inline(always)]
fn send_ipv4(frame: &mut Frame<'_>, hop: &mut FastHop) -> bool {
    let Some(header) = frame.bytes().first_chunk::<IPV4_HEADERS>() else {
        return false;
    };
    let total_len = u16::from_be_bytes(bytes_at(header, 16));
    if total_len > hop.mtu && !packets_fit(frame, hop.mtu) {
        return false;
    }
    let Some(header) = frame.bytes_mut().first_chunk_mut::<IPV4_HEADERS>() else {
        return false;
    };
    let (link, packet) = header.split_at_mut(ether::HEADER_LEN);
    let mut packet = Ipv4Packet::new_unchecked(packet);
    link[..12].copy_from_slice(&hop.macs);
    packet.decrement_ttl();
    send(frame, hop, usize::from(total_len));
    true
}

/// Sends a checked IPv6 packet on, if the hop can take it as it is.
#[inline(always)]
fn send_ipv6(frame: &mut Frame<'_>, hop: &mut FastHop) -> bool {
    let Some(header) = frame.bytes().first_chunk::<IPV6_HEADERS>() else {
        return false;
    };
    let length = usize::from(u16::from_be_bytes(bytes_at(header, 18))) + ipv6::HEADER_LEN;
    if length > usize::from(hop.mtu) && !packets_fit(frame, hop.mtu) {
        return false;
    }
    let Some(header) = frame.bytes_mut().first_chunk_mut::<IPV6_HEADERS>() else {
        return false;
    };
    header[..12].copy_from_slice(&hop.macs);
    header[21] -= 1;
    send(frame, hop, length);
    true
}

#[inline(always)]
fn send(frame: &mut Frame<'_>, hop: &mut FastHop, packet_len: usize) {
    trim(frame, packet_len);
    hop.used = true;
    frame.send(hop.port);
}

/// Cuts what follows the packet, but not the padding of a short frame.
#[inline(always)]
pub(super) fn trim(frame: &mut Frame<'_>, packet_len: usize) {
    let wanted = (packet_len + ether::HEADER_LEN).max(ETHERNET_MIN);
    if frame.len() > wanted {
        // Shorter than it was, so it fits.
        let _ = frame.resize(wanted);
    }
}
