//! The states that `keep-state` rules make: which flows are under way, and until when.
//!
//! A state admits the packets of one flow in both directions, each on the port where it belongs:
//! the first packet's direction on the first packet's port, the other on the other port. Hash
//! tables are bounded and seeded; expiry is lazy on look-up and swept by [`States::sweep`].

use super::config;
use super::flow::FlowId;
use super::packet::{Addresses, Packet, Transport};
use super::rule::{ACK, FIN, ICMP, ICMPV6, KeepState, RST, SYN, TCP, UDP};
use super::table::{Slot, Table};
use crate::ageing::Ageing;
use crate::function::Nanos;
use nfluid_ring::flow::Buckets;
use nfluid_wire::HashSeed;
use serde::{Deserialize, Serialize};

/// Why no state could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The table is full.
    TableFull,
    /// The rule has as many states as it may.
    RuleLimit,
    /// The source address has as many states of the rule as it may.
    SourceLimit,
}

/// What has been seen of a flow.
mod seen {
    pub const REPLY: u8 = 1;
    pub const FIN_FORTH: u8 = 2;
    pub const FIN_BACK: u8 = 4;
    pub const RESET: u8 = 8;
    pub const ALL: u8 = REPLY | FIN_FORTH | FIN_BACK | RESET;
}

/// Where a flow is in its life; the names of [`config::Timeouts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// One side has spoken.
    Opening,
    /// Both sides have.
    Open,
    /// TCP: one side has sent FIN.
    Closing,
    /// TCP: both have, or one RST.
    Closed,
}

impl Phase {
    /// The name in the answer of `states`.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Opening => "opening",
            Phase::Open => "open",
            Phase::Closing => "closing",
            Phase::Closed => "closed",
        }
    }
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames, without FCS.
    pub bytes: u64,
}

impl Count {
    /// What another instance has counted.
    pub(super) fn more(&mut self, other: Count) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// One more packet, of `len` bytes.
    #[inline]
    pub fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }
}

/// One flow that may pass.
#[derive(Clone, Debug)]
pub struct State {
    flow: FlowId,
    /// When it ends unless another packet comes.
    pub expires: Nanos,
    /// Index of the rule that made it.
    pub rule: u32,
    /// Idle time of the rule in seconds, 0 if it has none of its own.
    timeout_s: u32,
    seen: u8,
    /// Port on which the first packet arrived.
    pub in_port: u8,
    /// Packets from the first packet's sender.
    pub forth: Count,
    /// Packets of the other side.
    pub back: Count,
    /// Whether the source table counts it.
    counted: bool,
}

impl State {
    /// The flow's first packet, as far as it is remembered.
    pub fn first(&self) -> Packet {
        self.flow.packet_from(self.in_port)
    }

    /// Where the flow is in its life.
    pub fn phase(&self) -> Phase {
        let both = seen::FIN_FORTH | seen::FIN_BACK;
        if self.seen & seen::RESET != 0 || self.seen & both == both {
            Phase::Closed
        } else if self.seen & both != 0 {
            Phase::Closing
        } else if self.seen & seen::REPLY != 0 {
            Phase::Open
        } else {
            Phase::Opening
        }
    }

    /// Takes one of the flow's packets into account.
    #[inline]
    fn advance(&mut self, packet: &Packet, len: usize, now: Nanos, timeouts: &config::Timeouts) {
        let forth = packet.in_port == self.in_port;
        if forth {
            self.forth.add(len);
        } else {
            self.back.add(len);
            self.seen |= seen::REPLY;
        }
        if let Transport::Tcp { flags, .. } = packet.transport {
            if flags & RST != 0 {
                self.seen |= seen::RESET;
            } else if flags & FIN != 0 {
                self.seen |= if forth {
                    seen::FIN_FORTH
                } else {
                    seen::FIN_BACK
                };
            }
        }
        let idle_s = self.idle_s(timeouts);
        self.expires = Nanos(now.0.saturating_add(Nanos::from_secs(u64::from(idle_s)).0));
    }

    #[inline]
    fn idle_s(&self, timeouts: &config::Timeouts) -> u32 {
        let own = |general: u32| match self.timeout_s {
            0 => general,
            own => own,
        };
        match (self.flow.protocol(), self.phase()) {
            (TCP, Phase::Opening) => timeouts.tcp_opening,
            (TCP, Phase::Open) => own(timeouts.tcp_established),
            (TCP, Phase::Closing) => timeouts.tcp_closing,
            (TCP, Phase::Closed) => timeouts.tcp_closed,
            (UDP, Phase::Opening) => own(timeouts.udp_opening),
            (UDP, _) => own(timeouts.udp),
            (ICMP | ICMPV6, _) => own(timeouts.icmp),
            _ => own(timeouts.other),
        }
    }

    /// A connection that has ended and begins anew with this packet.
    fn is_reopened_by(&self, packet: &Packet) -> bool {
        matches!(packet.transport, Transport::Tcp { flags, .. } if flags & (SYN | ACK | RST) == SYN)
            && self.phase() == Phase::Closed
    }
}

/// A flow on its way to another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Carried {
    flow: FlowId,
    in_port: u8,
    seen: u8,
    /// Until it ends, unless another packet comes.
    left_ns: u64,
    forth: Count,
    back: Count,
}

impl Carried {
    /// Whether the flow is in one of these buckets.
    pub(super) fn is_of(&self, buckets: &Buckets) -> bool {
        self.flow.is_of(buckets)
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
    table: Table<State>,
    sources: Table<Source>,
    per_rule: alloc::vec::Vec<u32>,
    timeouts: config::Timeouts,
    seed: HashSeed,
    cursor: usize,
    ageing: Ageing,
    /// States ended by time.
    pub expired: u64,
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
            timeouts: config.timeouts,
            seed: HashSeed::new(seed),
            cursor: 0,
            ageing: Ageing::default(),
            expired: 0,
            created: 0,
        }
    }

    /// Number of states, of which some may have expired and not been swept yet.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Most states.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// All states.
    pub fn iter(&self) -> impl Iterator<Item = &State> + Clone {
        self.table.iter()
    }

    /// States of the rule at `index`.
    pub fn of_rule(&self, index: usize) -> u32 {
        self.per_rule.get(index).copied().unwrap_or_default()
    }

    /// The rule whose state admits `packet`; the state takes the packet into account.
    #[inline]
    pub fn admit(&mut self, packet: &Packet, len: usize, now: Nanos) -> Option<u32> {
        if self.table.len() == 0 {
            return None;
        }
        let flow = FlowId::of(packet)?;
        let hash = flow.hash(self.seed);
        let slot = self.table.find(hash, |state| state.flow == flow)?;
        let state = self.table.get_mut(slot)?;
        if state.expires <= now {
            self.expired += 1;
            self.remove(hash, slot);
            return None;
        }
        if state.is_reopened_by(packet) {
            self.remove(hash, slot);
            return None;
        }
        state.advance(packet, len, now, &self.timeouts);
        Some(state.rule)
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

    /// Makes a state of the rule at index `rule`, or takes the packet into account in the one that there is; says where it
    /// is. A packet that belongs to no flow makes none, and that is fine.
    ///
    /// # Errors
    /// The limit that is reached.
    pub fn create(
        &mut self,
        rule: u32,
        keep: KeepState,
        packet: &Packet,
        len: usize,
        now: Nanos,
    ) -> Result<Option<Slot>, Refusal> {
        let Some(flow) = FlowId::of(packet) else {
            return Ok(None);
        };
        let hash = flow.hash(self.seed);
        if let Some(slot) = self.table.find(hash, |state| state.flow == flow) {
            // An earlier rule allowed another packet of the flow without looking at states.
            if let Some(state) = self.table.get_mut(slot) {
                state.advance(packet, len, now, &self.timeouts);
            }
            return Ok(Some(slot));
        }
        if keep
            .max
            .is_some_and(|max| self.of_rule(rule as usize) >= max)
        {
            return Err(Refusal::RuleLimit);
        }
        if self.table.len() == self.table.capacity() {
            self.sweep(now, SWEEP_ON_FULL);
        }
        let mut state = State {
            flow,
            expires: now,
            rule,
            timeout_s: keep.timeout_s.unwrap_or_default(),
            seen: 0,
            in_port: packet.in_port,
            forth: Count::default(),
            back: Count::default(),
            counted: keep.max_per_source.is_some(),
        };
        state.advance(packet, len, now, &self.timeouts);
        if let Some(max) = keep.max_per_source {
            self.count_source(rule, packet, max)?;
        }
        let Some(slot) = self.table.insert(hash, state) else {
            if keep.max_per_source.is_some() {
                self.uncount_source(rule, packet);
            }
            return Err(Refusal::TableFull);
        };
        if let Some(states) = self.per_rule.get_mut(rule as usize) {
            *states += 1;
        }
        self.created += 1;
        Ok(Some(slot))
    }

    fn remove(&mut self, hash: u64, slot: Slot) {
        let Some(state) = self.table.remove(hash, slot) else {
            return;
        };
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

    fn count_source(&mut self, rule: u32, packet: &Packet, max: u32) -> Result<(), Refusal> {
        let address = source(packet);
        let hash = self.source_hash(rule, address);
        let found = self
            .sources
            .find(hash, |s| s.rule == rule && s.address == address);
        match found.and_then(|slot| self.sources.get_mut(slot)) {
            Some(source) if source.states >= max => Err(Refusal::SourceLimit),
            Some(source) => {
                source.states += 1;
                Ok(())
            }
            None => {
                let source = Source {
                    rule,
                    address,
                    states: 1,
                };
                let inserted = self.sources.insert(hash, source);
                inserted.map(drop).ok_or(Refusal::TableFull)
            }
        }
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

    /// When [`States::sweep`] has something to do, if nothing else happens before.
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

    /// Takes over the states of `old` for which `rule_now` still gives a rule; the others end.
    pub fn adopt(&mut self, old: &States, rule_now: impl Fn(&Packet) -> Option<(u32, KeepState)>) {
        for state in old.iter() {
            let first = state.first();
            let Some((rule, keep)) = rule_now(&first) else {
                continue;
            };
            if let Some(adopted) = self.recreate(rule, keep, &first) {
                adopted.expires = state.expires;
                adopted.seen = state.seen;
                adopted.forth = state.forth;
                adopted.back = state.back;
            }
        }
        self.created = old.created;
        self.expired = old.expired;
    }

    /// Makes the state of a flow whose first packet was another instance's; `None` if a limit forbids it.
    fn recreate(&mut self, rule: u32, keep: KeepState, first: &Packet) -> Option<&mut State> {
        // At time zero, so that the limits hold and nothing has expired yet.
        let slot = self.create(rule, keep, first, 0, Nanos(0)).ok()??;
        self.table.get_mut(slot)
    }

    /// What another instance needs to know about each flow that is still under way.
    pub(super) fn export(&self, now: Nanos) -> impl Iterator<Item = Carried> + Clone {
        let live = self.iter().filter(move |state| state.expires > now);
        live.map(move |state: &State| Carried {
            flow: state.flow,
            in_port: state.in_port,
            seen: state.seen,
            left_ns: state.expires.since(now).0,
            forth: state.forth,
            back: state.back,
        })
    }

    /// Takes over a flow of another instance, if it has none of its own and `rule_now` gives a rule for it.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn import(
        &mut self,
        now: Nanos,
        carried: &Carried,
        rule_now: impl Fn(&Packet) -> Option<(u32, KeepState)>,
    ) -> Result<bool, &'static str> {
        let first = carried.flow.packet_from(carried.in_port);
        if carried.in_port > 1 || FlowId::of(&first) != Some(carried.flow) {
            return Err("a flow that no packet can be of");
        }
        let is_there = |state: &State| state.flow == carried.flow;
        let hash = carried.flow.hash(self.seed);
        if self.table.len() > 0 && self.table.find(hash, is_there).is_some() {
            return Ok(false);
        }
        let Some((rule, keep)) = rule_now(&first) else {
            return Ok(false);
        };
        let timeouts = self.timeouts;
        let Some(state) = self.recreate(rule, keep, &first) else {
            return Ok(false);
        };
        state.seen = carried.seen & seen::ALL;
        state.forth = carried.forth;
        state.back = carried.back;
        let most = Nanos::from_secs(u64::from(state.idle_s(&timeouts))).0;
        state.expires = Nanos(now.0.saturating_add(carried.left_ns.min(most)));
        Ok(true)
    }
}

fn source(packet: &Packet) -> u128 {
    match packet.addresses {
        Addresses::V4 { src, .. } => u128::from(src) | 0xffff << 32,
        Addresses::V6 { src, .. } => src,
    }
}
