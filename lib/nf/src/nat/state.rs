//! State of the NAT: mappings, their sessions, the inside hosts, and the tables to find them.
//!
//! - A **mapping** ties an inside end point to an external end point, whatever the destination (endpoint-independent,
//!   RFC 4787 REQ-1). A mapping has a single key on either side, so the set of mappings is a bijection between inside
//!   and external end points.
//! - A **session** is a peer of a mapping: the peers that filtering needs, and the state of a TCP connection. UDP and
//!   ICMP have sessions only as far as the filtering needs them, and a packet from outside never makes a session: an
//!   outside host cannot fill the table with them.
//! - A **host** is an inside address in a VLAN: quota, pool address, hardware address.

mod sessions;

use super::clock::Tenths;
use super::config::{Config, Filtering, Pooling};
use super::endpoint::{Endpoint, Hasher, Protocol, Vlan};
use super::ports::{PortSpace, Wish};
use crate::table::{Index, NONE, Slab};
use crate::tcp::{Connection, HalfOpen, Stage};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nfluid_wire::MacAddr;

/// Entries examined when a table is full, in the hope that one has expired: bounded work for the
/// packet that finds it full.
const RECLAIM_STEPS: u32 = 32;

/// The reason why a mapping or session was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    SessionsFull,
    HostsFull,
    HostQuota,
    PortsExhausted,
}

/// An inside end point and its external one: one cache line, which every packet touches.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Mapping {
    pub(super) inside: Endpoint,
    pub(super) outside: Endpoint,
    pub(super) vlan: Vlan,
    pub(super) host: u32,
    /// Number of sessions, and the newest of them: the head of their list.
    pub(super) sessions: u32,
    pub(super) newest: u32,
    /// The session used last: most packets need no look-up.
    pub(super) latest: u32,
    /// Expiry once it has no session. Not for static forwards.
    pub(super) expires: Tenths,
    /// Hardware address from which the host last sent; zero if it has not.
    pub(super) mac: MacAddr,
    pub(super) protocol: Protocol,
    /// A static forward: never expires, no filtering.
    pub(super) fixed: bool,
    pub(super) packets: u64,
}

/// A peer of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) mapping: u32,
    pub(super) peer: Endpoint,
    pub(super) tcp: Connection,
    pub(super) expires: Tenths,
    pub(super) newer: u32,
    pub(super) older: u32,
}

/// An inside host.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) address: u32,
    pub(super) vlan: Vlan,
    pub(super) mac: MacAddr,
    pub(super) mappings: u32,
    pub(super) sessions: u32,
    /// Mappings and sessions refused.
    pub(super) refusals: u64,
    /// Packets of mappings that are gone.
    pub(super) packets_before: u64,
    /// Expiry once it has no mapping.
    pub(super) expires: Tenths,
    /// Next time at which the NAT may probe for its hardware address.
    pub(super) probe_again: Tenths,
    /// Index of its pool address.
    pool: usize,
}

/// All state of a NAT.
#[derive(Debug)]
pub(super) struct State {
    pub(super) config: Config,
    pub(super) hasher: Hasher,
    random: u64,
    pub(super) mappings: Slab<Mapping>,
    pub(super) sessions: Slab<Session>,
    pub(super) hosts: Slab<Host>,
    by_inside: Index,
    by_outside: Index,
    by_peer: Index,
    by_host: Index,
    /// External addresses in host order, as in the configuration, and the taken ports of each, by
    /// protocol.
    pub(super) pool: Vec<u32>,
    ports: Vec<[PortSpace; 3]>,
    pub(super) hands: super::sweep::Hands,
    /// The sessions of TCP connections that were never established.
    pub(super) half_open: HalfOpen,
    /// The half-open connections with a queue for each host.
    pub(super) half_open_of: HalfOpen,
    pub(super) opened: u64,
    pub(super) expired: u64,
    /// Half-open sessions that gave way to others.
    pub(super) evicted: u64,
}

impl State {
    /// Empty tables, but for the static forwards.
    pub(super) fn new(config: Config, seed: u64) -> State {
        let entries_max = config.sessions_max;
        let pool: Vec<u32> = config
            .pool
            .iter()
            .map(|address| address.to_bits())
            .collect();
        let space = |_| Protocol::ALL.map(|_| PortSpace::new(config.ports.clone()));
        let mut state = State {
            hasher: Hasher::new(seed),
            random: seed,
            mappings: Slab::new(entries_max),
            sessions: Slab::new(entries_max),
            hosts: Slab::new(entries_max),
            by_inside: Index::new(entries_max),
            by_outside: Index::new(entries_max),
            by_peer: Index::new(entries_max),
            by_host: Index::new(entries_max),
            ports: pool.iter().map(space).collect(),
            pool,
            config,
            hands: Default::default(),
            half_open: HalfOpen::new(entries_max),
            half_open_of: HalfOpen::queues(entries_max, entries_max),
            opened: 0,
            expired: 0,
            evicted: 0,
        };
        state.add_forwards();
        state
    }

    /// The configuration promises that forwards fit and do not collide.
    fn add_forwards(&mut self) {
        for forward in self.config.forwards.clone() {
            let host = self.host(Tenths::default(), forward.vlan, forward.inside.address);
            let (Some(host), Some(pool)) = (host, self.pool_index(forward.external)) else {
                continue;
            };
            if self.ports[pool][forward.protocol as usize].take(forward.external.port) {
                self.insert_mapping(Mapping {
                    fixed: true,
                    ..new_mapping(
                        forward.protocol,
                        forward.vlan,
                        forward.inside,
                        forward.external,
                        host,
                    )
                });
            }
        }
    }

    /// Stirs the source of random ports with a value that outside hosts cannot know well: the time.
    pub(super) fn stir(&mut self, entropy: u64) {
        self.random ^= entropy;
    }

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.hasher.word(self.random)
    }

    /// Index of an end point's address in the pool.
    #[inline]
    pub(super) fn pool_index(&self, external: Endpoint) -> Option<usize> {
        self.pool
            .iter()
            .position(|&address| address == external.address)
    }

    /// True for an external address of this NAT.
    #[inline]
    pub(super) fn is_external(&self, address: u32) -> bool {
        self.pool.contains(&address)
    }

    /// Ports taken at pool address `pool` for a protocol.
    pub(super) fn ports_taken(&self, pool: usize, protocol: Protocol) -> u32 {
        self.ports[pool][protocol as usize].count()
    }

    /// The mapping that a look-up by this hash will probably find; see [`Index::likely`].
    #[inline]
    pub(super) fn likely_inside(&self, hash: u64) -> u32 {
        self.by_inside.likely(hash)
    }

    /// As [`State::likely_inside`], from the other side.
    #[inline]
    pub(super) fn likely_outside(&self, hash: u64) -> u32 {
        self.by_outside.likely(hash)
    }

    /// The mapping of an inside end point; `hash` is the end point's.
    #[inline]
    pub(super) fn find_inside(
        &self,
        hash: u64,
        protocol: Protocol,
        vlan: Vlan,
        inside: Endpoint,
    ) -> Option<u32> {
        self.by_inside.find(hash, |index| {
            self.mappings
                .get(index)
                .is_some_and(|m| m.inside == inside && m.protocol == protocol && m.vlan == vlan)
        })
    }

    /// The mapping of an external end point; `hash` is the end point's.
    #[inline]
    pub(super) fn find_outside(
        &self,
        hash: u64,
        protocol: Protocol,
        vlan: Vlan,
        outside: Endpoint,
    ) -> Option<u32> {
        self.by_outside.find(hash, |index| {
            self.mappings
                .get(index)
                .is_some_and(|m| m.outside == outside && m.protocol == protocol && m.vlan == vlan)
        })
    }

    /// Makes a mapping for an inside end point that has none.
    pub(super) fn open_mapping(
        &mut self,
        now: Tenths,
        protocol: Protocol,
        vlan: Vlan,
        inside: Endpoint,
    ) -> Result<u32, Refusal> {
        let host = self
            .host(now, vlan, inside.address)
            .ok_or(Refusal::HostsFull)?;
        let outcome = self.try_mapping(now, protocol, vlan, inside, host);
        if outcome.is_err() {
            self.refused(host);
        }
        outcome
    }

    fn try_mapping(
        &mut self,
        now: Tenths,
        protocol: Protocol,
        vlan: Vlan,
        inside: Endpoint,
        host: u32,
    ) -> Result<u32, Refusal> {
        let quota = self.config.host_sessions_max;
        let (paired, mappings) = match self.hosts.get(host) {
            Some(host) => (host.pool, host.mappings),
            None => return Err(Refusal::HostQuota),
        };
        if mappings >= quota && !self.evict_mapping(now, Some(host), |_| true) {
            return Err(Refusal::HostQuota);
        }
        if self.mappings.is_full() {
            self.reclaim(now, RECLAIM_STEPS);
        }
        if self.mappings.is_full() && !self.evict_mapping(now, None, |_| true) {
            return Err(Refusal::SessionsFull);
        }
        let address = self.pool[paired];
        let any_address = self.config.pooling == Pooling::Arbitrary;
        let has_port = |mapping: &Mapping| {
            mapping.protocol == protocol && (any_address || mapping.outside.address == address)
        };
        let mut outside = self.allocate(protocol, inside.port, paired);
        if outside.is_none() && self.evict_mapping(now, None, has_port) {
            outside = self.allocate(protocol, inside.port, paired);
        }
        let outside = outside.ok_or(Refusal::PortsExhausted)?;
        let mut mapping = new_mapping(protocol, vlan, inside, outside, host);
        // Long enough for its first session to come; the packet at hand sets the real time.
        mapping.expires = now.plus_secs(1);
        self.insert_mapping(mapping).ok_or(Refusal::SessionsFull)
    }

    /// An external end point for an inside port, at the host's pool address if possible.
    fn allocate(&mut self, protocol: Protocol, port: u16, paired: usize) -> Option<Endpoint> {
        let tries = match self.config.pooling {
            Pooling::Paired => 1,
            Pooling::Arbitrary => self.config.dynamic,
        };
        let wish = Wish {
            port,
            preserve: self.config.port_preservation,
            parity: self.config.port_parity && protocol == Protocol::Udp,
        };
        for offset in 0..tries {
            let pool = (paired + offset) % self.config.dynamic;
            let random = self.next_random();
            if let Some(port) = self.ports[pool][protocol as usize].allocate(wish, random) {
                return Some(Endpoint::new(self.pool[pool], port));
            }
        }
        None
    }

    /// Takes over the mappings of an earlier configuration whose external end points are still in
    /// the pool, with their sessions, as far as the tables reach.
    pub(super) fn adopt(&mut self, before: &State) {
        let mut adopted = BTreeMap::new();
        for (index, mapping) in before.mappings.iter().filter(|(_, m)| !m.fixed) {
            let mac = before
                .hosts
                .get(mapping.host)
                .map_or(MacAddr::ZERO, |host| host.mac);
            if let Some(new) = self.adopt_mapping(mapping, mac) {
                adopted.insert(index, new);
            }
        }
        for (_, session) in before.sessions.iter() {
            let Some(&mapping) = adopted.get(&session.mapping) else {
                continue;
            };
            if self.can_adopt_session(mapping, session.peer) {
                self.adopt_session(mapping, session);
            }
        }
        self.set_counts(before.counts());
    }

    /// Sessions opened, ended by time, and those that gave way to others.
    pub(super) fn counts(&self) -> [u64; 3] {
        [self.opened, self.expired, self.evicted]
    }

    /// Sets what [`State::counts`] returns.
    pub(super) fn set_counts(&mut self, counts: [u64; 3]) {
        [self.opened, self.expired, self.evicted] = counts;
    }

    pub(super) fn adopt_mapping(&mut self, old: &Mapping, mac: MacAddr) -> Option<u32> {
        let pool = self.pool_index(old.outside)?;
        let usable = pool < self.config.dynamic && self.config.ports.contains(old.outside.port);
        let hash = self.hasher.endpoint(old.protocol, old.vlan, old.inside);
        if !usable
            || self
                .find_inside(hash, old.protocol, old.vlan, old.inside)
                .is_some()
        {
            return None;
        }
        let host = self.host(Tenths::default(), old.vlan, old.inside.address)?;
        if let Some(host) = self.hosts.get_mut(host) {
            host.mac = mac;
        }
        if !self.ports[pool][old.protocol as usize].take(old.outside.port) {
            return None;
        }
        let mut mapping = new_mapping(old.protocol, old.vlan, old.inside, old.outside, host);
        mapping.expires = old.expires;
        mapping.mac = old.mac;
        mapping.packets = old.packets;
        let adopted = self.insert_mapping(mapping);
        if adopted.is_none() {
            self.ports[pool][old.protocol as usize].release(old.outside.port);
        }
        adopted
    }

    fn insert_mapping(&mut self, mapping: Mapping) -> Option<u32> {
        let inside = self
            .hasher
            .endpoint(mapping.protocol, mapping.vlan, mapping.inside);
        let outside = self
            .hasher
            .endpoint(mapping.protocol, mapping.vlan, mapping.outside);
        let host = mapping.host;
        let index = self.mappings.insert(mapping)?;
        self.by_inside.insert(inside, index);
        self.by_outside.insert(outside, index);
        if let Some(host) = self.hosts.get_mut(host) {
            host.mappings += 1;
        }
        Some(index)
    }

    /// Removes a mapping that has no session and is no forward.
    pub(super) fn close_mapping(&mut self, now: Tenths, index: u32) {
        if self
            .mappings
            .get(index)
            .is_none_or(|mapping| mapping.sessions > 0 || mapping.fixed)
        {
            return;
        }
        let Some(mapping) = self.mappings.remove(index) else {
            return;
        };
        let hash = |endpoint| {
            self.hasher
                .endpoint(mapping.protocol, mapping.vlan, endpoint)
        };
        self.by_inside.remove(hash(mapping.inside), index);
        self.by_outside.remove(hash(mapping.outside), index);
        if let Some(pool) = self.pool_index(mapping.outside) {
            self.ports[pool][mapping.protocol as usize].release(mapping.outside.port);
        }
        if let Some(host) = self.hosts.get_mut(mapping.host) {
            host.mappings -= 1;
            host.packets_before += mapping.packets;
            host.expires = now.plus_secs(HOST_MEMORY_SECS);
        }
    }

    /// The host with this address, a new one if need be; `None` if the table is full.
    fn host(&mut self, now: Tenths, vlan: Vlan, address: u32) -> Option<u32> {
        if let Some(host) = self.find_host(vlan, address) {
            return Some(host);
        }
        if self.hosts.is_full() {
            self.reclaim(now, RECLAIM_STEPS);
        }
        let hash = self.hasher.host(vlan, address);
        let index = self.hosts.insert(Host {
            address,
            vlan,
            mac: MacAddr::ZERO,
            mappings: 0,
            sessions: 0,
            refusals: 0,
            packets_before: 0,
            expires: now.plus_secs(HOST_MEMORY_SECS),
            probe_again: Tenths::default(),
            pool: (hash >> 32) as usize % self.config.dynamic,
        })?;
        self.by_host.insert(hash, index);
        Some(index)
    }

    pub(super) fn find_host(&self, vlan: Vlan, address: u32) -> Option<u32> {
        self.by_host.find(self.hasher.host(vlan, address), |index| {
            self.hosts
                .get(index)
                .is_some_and(|host| host.address == address && host.vlan == vlan)
        })
    }

    pub(super) fn forget_host(&mut self, index: u32) {
        if let Some(host) = self.hosts.remove(index) {
            self.by_host
                .remove(self.hasher.host(host.vlan, host.address), index);
        }
    }

    /// Ends all sessions and mappings but the static forwards, and knows nothing of any host any more.
    pub(super) fn forget(&mut self) {
        for session in 0..self.sessions.end() {
            self.close_session(session);
        }
        for mapping in 0..self.mappings.end() {
            if self.mappings.get(mapping).is_some_and(|it| !it.fixed) {
                self.close_mapping(Tenths::default(), mapping);
            }
        }
        for index in 0..self.hosts.end() {
            match self.hosts.get_mut(index) {
                Some(host) if host.mappings > 0 => {
                    host.mac = MacAddr::ZERO;
                    (host.refusals, host.packets_before) = (0, 0);
                }
                _ => self.forget_host(index),
            }
        }
        self.set_counts([0; 3]);
    }

    fn refused(&mut self, host: u32) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.refusals += 1;
        }
    }

    /// The idle timeout of a TCP connection's stage, in seconds: one of the two of RFC 5382 section 5.
    #[inline]
    pub(super) fn tcp_timeout(&self, stage: Stage) -> u32 {
        match stage {
            Stage::Opening | Stage::Answered | Stage::Closed => self.config.timeouts.tcp_transitory,
            Stage::Established | Stage::Closing => self.config.timeouts.tcp_established,
        }
    }
}

const _: () = assert!(size_of::<Option<Mapping>>() == 64);

/// Seconds for which a host without mappings is remembered, with its counts.
const HOST_MEMORY_SECS: u32 = 300;

pub(super) fn new_mapping(
    protocol: Protocol,
    vlan: Vlan,
    inside: Endpoint,
    outside: Endpoint,
    host: u32,
) -> Mapping {
    Mapping {
        inside,
        outside,
        vlan,
        host,
        sessions: 0,
        newest: NONE,
        latest: NONE,
        expires: Tenths::default(),
        mac: MacAddr::ZERO,
        protocol,
        fixed: false,
        packets: 0,
    }
}
