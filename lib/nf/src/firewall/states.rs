//! The states that `keep-state` rules make: which flows are under way.
//!
//! Hash tables are bounded and seeded; expiry is lazy on look-up and swept by [`States::sweep`]. A full table has a
//! place for a new state where a connection was never established: see [`HalfOpen`].

use super::config;
use super::flow::FlowId;
use super::packet::{Addresses, Packet};
use super::rule::KeepState;
use super::state::{Count, Settings, State};
use super::table::{Slot, Table};
use crate::ageing::Ageing;
use crate::function::Nanos;
use crate::tcp::{Connection, HalfOpen, OutOfWindow, Policy, Segment};
use crate::traffic::OnWire;
use nfluid_ring::flow::Buckets;
use nfluid_wire::{HashSeed, TcpFlags};

/// The reason why no state could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The table is full.
    TableFull,
    /// The rule has as many states as it may.
    RuleLimit,
    /// The source address has as many states of the rule as it may.
    SourceLimit,
    /// The TCP segment is out of the windows of its connection, or its flags belong to none.
    OutOfWindow,
}

impl From<OutOfWindow> for Refusal {
    fn from(_: OutOfWindow) -> Refusal {
        Refusal::OutOfWindow
    }
}

/// States of one source address and one rule.
#[derive(Clone, Copy, Debug)]
struct Source {
    rule: u32,
    address: u128,
    states: u32,
}

/// All states of a firewall.
#[derive(Debug)]
pub struct States {
    pub(super) table: Table<State>,
    sources: Table<Source>,
    per_rule: alloc::vec::Vec<u32>,
    pub(super) settings: Settings,
    pub(super) half_open: HalfOpen,
    pub(super) seed: HashSeed,
    cursor: usize,
    ageing: Ageing,
    /// States ended by time.
    pub expired: u64,
    /// Half-open connections that gave way to other states.
    pub evicted: u64,
    /// States made.
    pub created: u64,
}

/// Expired states that an insertion into a full table looks for before it is refused.
const SWEEP_ON_FULL: usize = 64;

impl States {
    /// An empty table; `rules` gives for each rule what states it makes.
    pub(super) fn new(
        config: &config::States,
        seed: u64,
        rules: impl Iterator<Item = Option<KeepState>>,
    ) -> Self {
        let keeps: alloc::vec::Vec<_> = rules.collect();
        let capacity = config.max as usize;
        let any = keeps.iter().any(Option::is_some);
        let limits = keeps.iter().flatten().any(|k| k.max_per_source.is_some());
        let table = |wanted: bool| if wanted { capacity } else { 0 };
        States {
            table: match table(any) {
                0 => Table::unused(),
                capacity => Table::new(capacity),
            },
            sources: match table(limits) {
                0 => Table::unused(),
                capacity => Table::new(capacity),
            },
            per_rule: alloc::vec![0; keeps.len()],
            settings: Settings {
                timeouts: config.timeouts,
                policy: Policy {
                    liberal: config.tcp_liberal,
                    revives: false,
                },
            },
            half_open: HalfOpen::new(table(any)),
            seed: HashSeed::new(seed),
            cursor: 0,
            ageing: Ageing::default(),
            expired: 0,
            evicted: 0,
            created: 0,
        }
    }

    /// Number of states, of which some may have expired and not been swept yet.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Number of TCP connections that were never established.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Most states.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Returns the numbers of states that were made, ended by time, gave way to others.
    pub(super) fn counts(&self) -> [u64; 3] {
        [self.created, self.expired, self.evicted]
    }

    /// Sets what [`States::counts`] returns.
    pub(super) fn set_counts(&mut self, counts: [u64; 3]) {
        [self.created, self.expired, self.evicted] = counts;
    }

    /// All states.
    pub fn iter(&self) -> impl Iterator<Item = &State> + Clone {
        self.table.iter()
    }

    /// States of the rule at `index`.
    pub fn of_rule(&self, index: usize) -> u32 {
        self.per_rule.get(index).copied().unwrap_or_default()
    }

    /// The rule whose state admits `packet`; the state takes the packet into account. `segment` reads the packet's TCP
    /// segment, if it has one.
    ///
    /// # Errors
    /// The packet has the addresses of a state, and cannot be of its connection.
    #[inline]
    pub(super) fn admit<'a>(
        &mut self,
        packet: &Packet,
        frame: OnWire,
        now: Nanos,
        segment: impl FnOnce() -> Option<Segment<'a>>,
    ) -> Result<Option<u32>, Refusal> {
        if self.table.len() == 0 {
            return Ok(None);
        }
        let Some(flow) = FlowId::of(packet) else {
            return Ok(None);
        };
        let hash = flow.hash(self.seed);
        let Some(slot) = self.table.find(hash, |state| state.flow == flow) else {
            return Ok(None);
        };
        let Some(state) = self.table.get_mut(slot) else {
            return Ok(None);
        };
        if state.expires <= now {
            self.expired += 1;
            self.remove(hash, slot);
            return Ok(None);
        }
        let segment = segment();
        if state.is_reopened_by(segment.as_ref()) {
            self.remove(hash, slot);
            return Ok(None);
        }
        let (rule, was_half_open) = (state.rule, state.is_half_open());
        state.advance(packet, segment.as_ref(), frame, now, &self.settings)?;
        // The queue's memory is another cache line: most packets need not touch it.
        if state.is_half_open() != was_half_open {
            self.half_open.set(slot, !was_half_open);
        }
        Ok(Some(rule))
    }

    /// The rule whose state would admit `packet`, which an ICMP error quotes; nothing changes.
    pub fn knows(&self, packet: &Packet, now: Nanos) -> Option<u32> {
        let flow = FlowId::of(packet)?;
        let slot = self
            .table
            .find(flow.hash(self.seed), |state| state.flow == flow)?;
        let state = self.table.get(slot)?;
        (state.expires > now).then_some(state.rule)
    }

    /// Makes a state of the rule at index `rule`, or takes the packet into account in the one that there is; says where
    /// it is. A packet that belongs to no flow makes none, and that is fine. So is a RST of no connection.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn create(
        &mut self,
        rule: u32,
        keep: KeepState,
        packet: &Packet,
        segment: Option<&Segment<'_>>,
        frame: OnWire,
        now: Nanos,
    ) -> Result<Option<Slot>, Refusal> {
        let Some(flow) = FlowId::of(packet) else {
            return Ok(None);
        };
        let hash = flow.hash(self.seed);
        if let Some(slot) = self.table.find(hash, |state| state.flow == flow) {
            // An earlier rule allowed another packet of the flow without looking at states.
            if let Some(state) = self.table.get_mut(slot) {
                state.advance(packet, segment, frame, now, &self.settings)?;
                self.half_open.set(slot, state.is_half_open());
            }
            return Ok(Some(slot));
        }
        if segment.is_some_and(|segment| segment.has(TcpFlags::RST)) {
            return Ok(None);
        }
        let mut state = State {
            flow,
            expires: now,
            rule,
            timeout_s: keep.timeout_s.unwrap_or_default(),
            replied: false,
            tcp: Connection::default(),
            in_port: packet.in_port,
            forth: Count::default(),
            back: Count::default(),
            counted: keep.max_per_source.is_some(),
        };
        state.advance(packet, segment, frame, now, &self.settings)?;
        self.check_limits(rule, keep, packet)?;
        self.make_room(now);
        if state.counted {
            self.count_source(rule, packet)?;
        }
        let is_half_open = state.is_half_open();
        let Some(slot) = self.table.insert(hash, state) else {
            if keep.max_per_source.is_some() {
                self.uncount_source(rule, packet);
            }
            return Err(Refusal::TableFull);
        };
        self.half_open.set(slot, is_half_open);
        if let Some(states) = self.per_rule.get_mut(rule as usize) {
            *states += 1;
        }
        self.created += 1;
        Ok(Some(slot))
    }

    /// Checks the limits of the rule. A source that has reached the limits displaces no state of others.
    fn check_limits(&self, rule: u32, keep: KeepState, packet: &Packet) -> Result<(), Refusal> {
        if keep
            .max
            .is_some_and(|max| self.of_rule(rule as usize) >= max)
        {
            return Err(Refusal::RuleLimit);
        }
        let Some(max) = keep.max_per_source else {
            return Ok(());
        };
        let address = source(packet);
        let is_it = |source: &Source| source.rule == rule && source.address == address;
        let found = self.sources.find(self.source_hash(rule, address), is_it);
        match found.and_then(|slot| self.sources.get(slot)) {
            Some(source) if source.states >= max => Err(Refusal::SourceLimit),
            _ => Ok(()),
        }
    }

    /// A place in a full table: that of an expired state, or of the oldest flow that was never answered.
    fn make_room(&mut self, now: Nanos) {
        if self.table.len() == self.table.capacity() {
            self.sweep(now, SWEEP_ON_FULL);
        }
        if self.table.len() < self.table.capacity() {
            return;
        }
        let oldest = self.half_open.iter().next();
        let flow = oldest.and_then(|slot| Some((slot, self.table.get(slot)?.flow)));
        if let Some((slot, flow)) = flow {
            self.remove(flow.hash(self.seed), slot);
            self.evicted += 1;
        }
    }

    fn remove(&mut self, hash: u64, slot: Slot) {
        let Some(state) = self.table.remove(hash, slot) else {
            return;
        };
        self.half_open.set(slot, false);
        if let Some(states) = self.per_rule.get_mut(state.rule as usize) {
            *states -= 1;
        }
        if state.counted {
            self.uncount_source(state.rule, &state.first());
        }
    }

    fn source_hash(&self, rule: u32, address: u128) -> u64 {
        let high = self
            .seed
            .hash_u64((address >> 64) as u64 ^ u64::from(rule) << 32);
        self.seed.hash_u64(high ^ address as u64)
    }

    fn count_source(&mut self, rule: u32, packet: &Packet) -> Result<(), Refusal> {
        let address = source(packet);
        let hash = self.source_hash(rule, address);
        let found = self
            .sources
            .find(hash, |s| s.rule == rule && s.address == address);
        if let Some(source) = found.and_then(|slot| self.sources.get_mut(slot)) {
            source.states += 1;
            return Ok(());
        }
        let source = Source {
            rule,
            address,
            states: 1,
        };
        let inserted = self.sources.insert(hash, source);
        inserted.map(drop).ok_or(Refusal::TableFull)
    }

    fn uncount_source(&mut self, rule: u32, packet: &Packet) {
        let address = source(packet);
        let hash = self.source_hash(rule, address);
        let found = self
            .sources
            .find(hash, |s| s.rule == rule && s.address == address);
        let Some(slot) = found else { return };
        if let Some(source) = self.sources.get_mut(slot) {
            source.states -= 1;
            if source.states == 0 {
                self.sources.remove(hash, slot);
            }
        }
    }

    /// Ends expired states among the next `budget` places, round and round.
    pub fn sweep(&mut self, now: Nanos, budget: usize) {
        let slots = self.table.slots();
        self.ageing.sweep(slots, now);
        for _ in 0..budget.min(slots) {
            if self.cursor >= slots {
                self.cursor = 0;
            }
            let slot = self.cursor as Slot;
            self.cursor += 1;
            let state = self.table.get(slot);
            let ended = state.filter(|state| state.expires <= now);
            let flow = ended.map(|state| state.flow);
            let ends = state.map(|state| state.expires).filter(|at| *at > now);
            self.ageing.pass(ends);
            if let Some(flow) = flow {
                self.remove(flow.hash(self.seed), slot);
                self.expired += 1;
            }
        }
    }

    /// States may have come, or end at another time.
    #[inline]
    pub fn stir(&mut self) {
        self.ageing.begin_again();
    }

    /// Returns the next time at which [`States::sweep`] has work, if nothing else happens before.
    pub fn next_sweep(&self) -> Nanos {
        self.ageing.next(self.table.slots())
    }

    /// Ends all states; returns how many there were.
    pub fn flush(&mut self) -> usize {
        let before = self.len();
        for slot in 0..self.table.slots() {
            let flow = self.table.get(slot as Slot).map(|state| state.flow);
            if let Some(flow) = flow {
                self.remove(flow.hash(self.seed), slot as Slot);
            }
        }
        before
    }

    /// Ends the states of all flows but those in `kept`; returns how many there were.
    pub(super) fn part_with(&mut self, kept: &Buckets) -> u64 {
        let before = self.len();
        for slot in 0..self.table.slots() {
            let flow = self.table.get(slot as Slot).map(|state| state.flow);
            if let Some(flow) = flow.filter(|flow| !flow.is_of(kept)) {
                self.remove(flow.hash(self.seed), slot as Slot);
            }
        }
        (before - self.len()) as u64
    }
}

fn source(packet: &Packet) -> u128 {
    match packet.addresses {
        Addresses::V4 { src, .. } => u128::from(src) | 0xffff << 32,
        Addresses::V6 { src, .. } => src,
    }
}
