//! Expiry: a clock's hand over each table, a bounded number of entries per tick.
//!
//! Look-ups on the data path check the time themselves, so an entry that the hand has not reached
//! yet is dead all the same; sweeping only gives its memory and its port back.

use super::clock::Tenths;
use super::state::State;
use crate::ageing::Ageing;
use crate::function::Nanos;

/// Ticks, each at most 100 ms apart, in which the sweeps visit all places once: within about 13 s.
const TICKS_PER_ROUND: u32 = 128;
/// Fewest entries per tick.
const STEPS_MIN: u32 = 64;

/// The tables of a NAT, in the order in which they are swept.
#[derive(Clone, Copy, Debug)]
enum Table {
    Sessions,
    Mappings,
    Hosts,
}

const TABLES: [Table; 3] = [Table::Sessions, Table::Mappings, Table::Hosts];

/// The place at which the sweep of a table goes on, and the findings on the way.
#[derive(Clone, Copy, Debug, Default)]
struct Hand {
    at: u32,
    seen: Ageing,
}

/// A hand for each table.
#[derive(Debug, Default)]
pub(super) struct Hands([Hand; TABLES.len()]);

impl Hands {
    /// Notes that something other than time has changed the tables.
    pub(super) fn begin_again(&mut self) {
        self.0.iter_mut().for_each(|hand| hand.seen.begin_again());
    }
}

impl State {
    /// Does a tick's share of the sweep: at most 1/128 of each table.
    pub(super) fn sweep(&mut self, now: Tenths) {
        for table in TABLES {
            let places = self.end(table) as usize;
            self.hand(table).seen.sweep(places, now.nanos());
        }
        let share = self.config.sessions_max as u32 / TICKS_PER_ROUND;
        let before = self.lens();
        self.reclaim(now, share.max(STEPS_MIN));
        if self.lens() != before {
            // A mapping without sessions has an end now, a host without mappings too.
            self.hands.begin_again();
        }
    }

    /// Returns the next time of a sweep, if nothing else happens before.
    pub(super) fn next_sweep(&self) -> Nanos {
        let hands = TABLES.iter().zip(&self.hands.0);
        let next = hands.map(|(table, hand)| hand.seen.next(self.end(*table) as usize));
        next.fold(Nanos(u64::MAX), Nanos::min)
    }

    /// Examines `steps` entries of each table and removes expired entries.
    pub(super) fn reclaim(&mut self, now: Tenths, steps: u32) {
        for table in TABLES {
            for _ in 0..steps.min(self.end(table)) {
                let index = next(self.hand(table).at, self.end(table));
                self.expire(table, now, index);
                let ends = self.ends(table, index);
                let hand = self.hand(table);
                hand.at = index;
                hand.seen.pass(ends.map(Tenths::nanos));
            }
        }
    }

    fn hand(&mut self, table: Table) -> &mut Hand {
        &mut self.hands.0[table as usize]
    }

    /// Returns the place behind the last place of a table.
    fn end(&self, table: Table) -> u32 {
        match table {
            Table::Sessions => self.sessions.end(),
            Table::Mappings => self.mappings.end(),
            Table::Hosts => self.hosts.end(),
        }
    }

    fn lens(&self) -> [usize; TABLES.len()] {
        [self.sessions.len(), self.mappings.len(), self.hosts.len()]
    }

    /// Returns the expiry of an entry; `None` while other entries depend on it.
    fn ends(&self, table: Table, index: u32) -> Option<Tenths> {
        match table {
            Table::Sessions => Some(self.sessions.get(index)?.expires),
            Table::Mappings => {
                let mapping = self.mappings.get(index)?;
                (!mapping.fixed && mapping.sessions == 0).then_some(mapping.expires)
            }
            Table::Hosts => {
                let host = self.hosts.get(index)?;
                (host.mappings == 0).then_some(host.expires)
            }
        }
    }

    /// Removes an entry that time has ended.
    fn expire(&mut self, table: Table, now: Tenths, index: u32) {
        if self.ends(table, index).is_none_or(|end| now < end) {
            return;
        }
        match table {
            Table::Sessions => {
                let mapping = self.sessions.get(index).map(|session| session.mapping);
                self.close_session(index);
                self.expired += 1;
                if let Some(mapping) = mapping {
                    self.expire(Table::Mappings, now, mapping);
                }
            }
            Table::Mappings => self.close_mapping(now, index),
            Table::Hosts => self.forget_host(index),
        }
    }
}

fn next(hand: u32, end: u32) -> u32 {
    let next = hand.wrapping_add(1);
    if next < end { next } else { 0 }
}
