//! Later fragments have no ports: they follow what their first fragment got.
//!
//! Fragments that come before their first fragment wait for it, see [`super::waiting`]. The NAT does not reassemble:
//! overlapping and repeated fragments leave as they came, and the receiver judges them.

use super::clock::Tenths;
use super::endpoint::{Hasher, Vlan};
use alloc::vec;
use alloc::vec::Vec;
use nfluid_wire::MacAddr;
use nfluid_wire::ipv4::Ipv4Packet;

/// Places where one datagram may be; a fifth one takes the oldest's.
const WAYS: usize = 4;

/// The fields that name a fragmented datagram (RFC 791), on one port and VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    src: u32,
    dst: u32,
    ident: u16,
    protocol: u8,
    in_port: u8,
    vlan: Vlan,
}

impl Datagram {
    /// Returns the datagram of the parsed IPv4 packet at the start of `packet`.
    pub(super) fn of(packet: &[u8], vlan: Vlan, in_port: u8) -> Datagram {
        let ip = Ipv4Packet::new_unchecked(packet);
        Datagram {
            src: ip.src().to_bits(),
            dst: ip.dst().to_bits(),
            ident: ip.ident(),
            protocol: ip.protocol().0,
            in_port,
            vlan,
        }
    }

    /// Returns the datagram with this source, as it had before it was translated.
    pub(super) fn sent_by(self, src: u32) -> Datagram {
        Datagram { src, ..self }
    }

    /// True if both datagrams have the same source and destination.
    pub(super) fn has_ends_of(&self, other: &Datagram) -> bool {
        (self.src, self.dst, self.vlan) == (other.src, other.dst, other.vlan)
    }
}

/// The treatment of a first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Course {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) ident: u16,
    pub(super) src_mac: MacAddr,
    pub(super) dst_mac: MacAddr,
    pub(super) out_port: u8,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    datagram: Datagram,
    course: Course,
    expires: Tenths,
}

/// A bounded, set-associative table. An attacker cannot fill the table: the oldest of four gives way.
#[derive(Debug)]
pub(super) struct Fragments {
    entries: Vec<Option<Entry>>,
    mask: usize,
}

impl Fragments {
    pub(super) fn new(datagrams_max: usize) -> Fragments {
        let sets = datagrams_max.div_ceil(WAYS).next_power_of_two();
        let len = if datagrams_max == 0 { 0 } else { sets * WAYS };
        Fragments {
            entries: vec![None; len],
            mask: sets - 1,
        }
    }

    /// Remembers the course of a datagram's first fragment.
    pub(super) fn remember(
        &mut self,
        hasher: Hasher,
        datagram: Datagram,
        course: Course,
        expires: Tenths,
    ) {
        let set = self.set(hasher, datagram);
        let Some(set) = self.entries.get_mut(set) else {
            return;
        };
        let known = |entry: &Option<Entry>| entry.is_some_and(|e| e.datagram == datagram);
        let place = match set.iter().position(known) {
            Some(place) => place,
            None => {
                let age = |place: &usize| set[*place].map(|entry| entry.expires);
                (0..set.len()).min_by_key(age).unwrap_or_default()
            }
        };
        if let Some(slot) = set.get_mut(place) {
            *slot = Some(Entry {
                datagram,
                course,
                expires,
            });
        }
    }

    /// The course of the datagram that a later fragment belongs to.
    pub(super) fn recall(&self, hasher: Hasher, datagram: Datagram, now: Tenths) -> Option<Course> {
        let set = self.entries.get(self.set(hasher, datagram))?;
        let entry = set
            .iter()
            .flatten()
            .find(|entry| entry.datagram == datagram && now < entry.expires)?;
        Some(entry.course)
    }

    fn set(&self, hasher: Hasher, datagram: Datagram) -> core::ops::Range<usize> {
        let hash = hasher.fragment(
            datagram.src,
            datagram.dst,
            datagram.ident,
            datagram.protocol,
        );
        let first = (hash as usize & self.mask) * WAYS;
        first..first + WAYS
    }
}
