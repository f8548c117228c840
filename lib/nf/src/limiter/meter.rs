//! A meter: one pair of buckets, or one for each address prefix seen.

use super::bucket::{Buckets, Colour, Limits, Size};
use crate::function::Nanos;
use crate::stateful::{Imported, Reader, StateError, Writer};
use crate::table::{Index, Slab};
use crate::traffic::OnWire;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nfluid_ring::Frame;
use nfluid_wire::ether::HEADER_LEN;
use nfluid_wire::{HashSeed, L3, PacketMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Shortest Ethernet frame without FCS, to which shorter ones are padded.
const ETHERNET_MIN: usize = 60;
/// Prefixes examined per tick for buckets that are full again.
const SWEEP_STEPS: u32 = 256;
/// Prefixes that a command lists.
const LISTED_MAX: usize = 100;

/// Which address of a packet names its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Side {
    Source,
    Destination,
}

/// The field that distinguishes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    pub(super) side: Side,
    /// Prefix lengths.
    pub(super) ipv4: u8,
    pub(super) ipv6: u8,
    pub(super) prefixes_max: usize,
}

/// The network part of an address.
type Network = (bool, u128);

/// A prefix on its way to another instance.
#[derive(Debug, Serialize, Deserialize)]
struct Carried {
    network: Network,
    level: (u64, u64),
    dropped: u64,
}

#[derive(Debug)]
struct Entry {
    network: Network,
    buckets: Buckets,
    dropped: u64,
}

/// Buckets per prefix, in bounded memory. Prefixes beyond the bound share a single pair of buckets, as do frames that
/// are not IP.
#[derive(Debug)]
struct Table {
    key: Key,
    seed: HashSeed,
    entries: Slab<Entry>,
    index: Index,
    hand: u32,
}

/// The meter of a direction.
#[derive(Debug)]
pub(super) struct Meter {
    limits: Limits,
    shared: Option<Buckets>,
    table: Option<Table>,
    /// Packets of prefixes that found the table full.
    pub(super) crowded: u64,
}

impl Meter {
    pub(super) fn new(limits: Limits, key: Option<Key>, seed: u64) -> Meter {
        Meter {
            limits,
            shared: None,
            table: key.map(|key| Table {
                key,
                seed: HashSeed::new(seed),
                entries: Slab::new(key.prefixes_max),
                index: Index::new(key.prefixes_max),
                hand: 0,
            }),
            crowded: 0,
        }
    }

    /// True if the other meter limits the same in the same way.
    pub(super) fn same_limits(&self, other: &Meter) -> bool {
        let key = |meter: &Meter| meter.table.as_ref().map(|table| table.key);
        self.limits == other.limits && key(self) == key(other)
    }

    /// Writes the limits, their keys, and the tokens.
    pub(super) fn export(&self, now: Nanos, writer: &mut Writer) {
        writer.put(&(self.limits, self.table.as_ref().map(|table| table.key)));
        writer.put(&self.shared.map(|shared| shared.level(self.limits, now)));
        writer.counters(&[self.crowded]);
        let entries = self.table.iter().flat_map(|table| table.entries.iter());
        writer.list(entries.map(|(_, entry)| Carried {
            network: entry.network,
            level: entry.buckets.level(self.limits, now),
            dropped: entry.dropped,
        }));
    }

    /// Knows nothing of any packet any more.
    pub(super) fn forget(&mut self) {
        (self.shared, self.crowded) = (None, 0);
        if let Some(table) = &mut self.table {
            (0..table.entries.end()).for_each(|at| table.forget(at));
        }
    }

    /// Reads what another meter has written, and takes it over if `own` limits the same in the same way.
    pub(super) fn import(
        own: Option<&mut Meter>,
        now: Nanos,
        reader: &mut Reader<'_>,
        imported: &mut Imported,
    ) -> Result<(), StateError> {
        let limited: (Limits, Option<Key>) = reader.get()?;
        // Version 1 has the tokens alone: its buckets never owe any.
        let is_old = reader.version() == 1;
        let level_of = |level| match is_old {
            true => Buckets::level_of(level),
            false => level,
        };
        let shared: Option<(u64, u64)> = reader.get()?;
        let mut crowded = 0;
        reader.counters([&mut crowded])?;
        let mut own =
            own.filter(|own| (own.limits, own.table.as_ref().map(|table| table.key)) == limited);
        if let Some(own) = &mut own {
            let level = shared.map(level_of);
            own.shared = level.map(|level| Buckets::at_level(own.limits, level, now));
            own.crowded = crowded;
        }
        reader.list(|mut carried: Carried| {
            carried.level = level_of(carried.level);
            let taken = own.as_mut().is_some_and(|own| own.take_over(now, &carried));
            imported.count(taken);
            Ok(())
        })
    }

    fn take_over(&mut self, now: Nanos, carried: &Carried) -> bool {
        let limits = self.limits;
        let Some(table) = &mut self.table else {
            return false;
        };
        if !table.key.is_network(carried.network) {
            return false;
        }
        let Some(entry) = table.entry(limits, carried.network, now) else {
            return false;
        };
        entry.buckets = Buckets::at_level(limits, carried.level, now);
        entry.dropped = carried.dropped;
        true
    }

    /// Prefixes with buckets of their own.
    pub(super) fn prefixes(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.entries.len())
    }

    /// The colour of a frame; `meta` is `None` if it is malformed.
    pub(super) fn colour(
        &mut self,
        now: Nanos,
        meta: Option<&PacketMeta>,
        frame: &Frame<'_>,
    ) -> Colour {
        let size = size(meta, frame);
        let packets = OnWire::of(frame).packets();
        if let (Some(table), Some(meta)) = (&mut self.table, meta)
            && let Some(network) = table.key.network(meta.l3)
        {
            match table.entry(self.limits, network, now) {
                Some(entry) => {
                    let colour = entry.buckets.colour(self.limits, now, size);
                    entry.dropped += u64::from(colour == Colour::Red) * packets;
                    return colour;
                }
                None => self.crowded += packets,
            }
        }
        let shared = self
            .shared
            .get_or_insert_with(|| Buckets::full(self.limits, now));
        shared.colour(self.limits, now, size)
    }

    /// Forgets some prefixes whose buckets are full: a new pair would be no different.
    pub(super) fn sweep(&mut self, now: Nanos) {
        let Some(table) = &mut self.table else {
            return;
        };
        for _ in 0..SWEEP_STEPS.min(table.entries.end()) {
            table.hand = (table.hand + 1) % table.entries.end();
            let entry = table.entries.get_mut(table.hand);
            if entry.is_some_and(|entry| entry.buckets.is_full(self.limits, now)) {
                table.forget(table.hand);
            }
        }
    }

    /// Tokens in bytes; the prefixes with most drops first.
    pub(super) fn describe(&self, now: Nanos) -> Value {
        let tokens = |buckets: &Buckets| {
            let (committed, second) = buckets.tokens(self.limits, now);
            json!({ "committed_bytes": committed, "excess_or_peak_bytes": second })
        };
        let mut entries: Vec<&Entry> = match &self.table {
            Some(table) => table.entries.iter().map(|(_, entry)| entry).collect(),
            None => Vec::new(),
        };
        entries.sort_by_key(|entry| (core::cmp::Reverse(entry.dropped), entry.network));
        let listed = entries.iter().take(LISTED_MAX).map(|entry| {
            json!({
                "network": describe(entry.network),
                "dropped": entry.dropped,
                "tokens": tokens(&entry.buckets),
            })
        });
        json!({
            "shared": self.shared.as_ref().map(tokens),
            "prefixes": self.prefixes(),
            "list": listed.collect::<Vec<_>>(),
        })
    }
}

/// The bytes of a frame that count. The RFCs count IP packets; of other frames, the bytes behind the Ethernet header
/// count. Bytes behind an IP packet count too, unless they pad a short frame: else a packet of 20 bytes would take 1,500
/// along. Of a super-frame all packets count, each with its IP header.
#[inline]
fn size(meta: Option<&PacketMeta>, frame: &Frame<'_>) -> Size {
    let len = frame.len();
    let link = meta.map_or(HEADER_LEN, |meta| usize::from(meta.l3_offset));
    let on_wire = OnWire::of(frame);
    match meta {
        _ if on_wire.packets() > 1 => Size {
            first: frame.offload().packet_len(len) - link,
            all: on_wire.bytes() as usize - on_wire.packets() as usize * link,
        },
        Some(meta) if len <= ETHERNET_MIN => Size::one(meta.total_len as usize),
        _ => Size::one(len - link),
    }
}

/// The first `length` of an address's `width` bits.
fn cut(address: u128, width: u8, length: u8) -> u128 {
    let host_bits = u32::from(width - length);
    let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
    address & mask
}

impl Key {
    /// Returns true if packets can have such a network.
    fn is_network(&self, (v4, network): Network) -> bool {
        if v4 {
            network <= u128::from(u32::MAX) && network == cut(network, 32, self.ipv4)
        } else {
            network == cut(network, 128, self.ipv6)
        }
    }

    fn network(&self, packet: L3) -> Option<Network> {
        match packet {
            L3::V4 { src, dst } => {
                let address = if self.side == Side::Source { src } else { dst };
                Some((true, cut(address.into(), 32, self.ipv4)))
            }
            L3::V6 { src, dst } => {
                let address = if self.side == Side::Source { src } else { dst };
                Some((false, cut(address, 128, self.ipv6)))
            }
            L3::Other => None,
        }
    }
}

impl Table {
    /// The buckets of a network, new and full if it has none; `None` if there is no room.
    fn entry(&mut self, limits: Limits, network: Network, now: Nanos) -> Option<&mut Entry> {
        let hash = self.hash(network);
        let entries = &self.entries;
        let is_it = |at: u32| {
            entries
                .get(at)
                .is_some_and(|entry| entry.network == network)
        };
        let at = match self.index.find(hash, is_it) {
            Some(at) => at,
            None => {
                let at = self.entries.insert(Entry {
                    network,
                    buckets: Buckets::full(limits, now),
                    dropped: 0,
                })?;
                self.index.insert(hash, at);
                at
            }
        };
        self.entries.get_mut(at)
    }

    fn forget(&mut self, at: u32) {
        if let Some(entry) = self.entries.remove(at) {
            let hash = self.hash(entry.network);
            self.index.remove(hash, at);
        }
    }

    fn hash(&self, (v4, network): Network) -> u64 {
        let high = self.seed.hash_u64((network >> 64) as u64 ^ u64::from(v4));
        self.seed.hash_u64(high ^ network as u64)
    }
}

fn describe((v4, network): Network) -> alloc::string::String {
    let address: IpAddr = if v4 {
        Ipv4Addr::from_bits(network as u32).into()
    } else {
        Ipv6Addr::from_bits(network).into()
    };
    alloc::format!("{address}")
}
