//! Expiry: a clock's hand over each table, a bounded number of entries per tick.
//!
//! Look-ups on the data path check the time themselves, so an entry that the hand has not reached
//! yet is dead all the same; sweeping only gives its memory and its port back.

use super::clock::Tenths;
use super::state::State;
use crate::ageing::Ageing;
use crate::function::Nanos;

/// Ticks, each at most 100 ms apart, in which the hands go round once: within about 13 s.
const TICKS_PER_ROUND: u32 = 128;
/// Fewest entries per tick.
const STEPS_MIN: u32 = 64;

/// Where the sweep goes on, per table, and what was seen on the way.
#[derive(Debug, Default)]
pub(super) struct Hands {
    session: u32,
    mapping: u32,
    host: u32,
    sessions: Ageing,
    mappings: Ageing,
    hosts: Ageing,
}

impl Hands {
    /// Something other than time has changed the tables.
    pub(super) fn begin_again(&mut self) {
        self.sessions.begin_again();
        self.mappings.begin_again();
        self.hosts.begin_again();
    }
}

impl State {
    /// One tick's share of the sweep: at most 1/128 of each table.
    pub(super) fn sweep(&mut self, now: Tenths) {
        let places = self.places();
        let at = now.nanos();
        self.hands.sessions.sweep(places[0], at);
        self.hands.mappings.sweep(places[1], at);
        self.hands.hosts.sweep(places[2], at);
        let share = self.config.sessions_max as u32 / TICKS_PER_ROUND;
        let before = self.lens();
        self.reclaim(now, share.max(STEPS_MIN));
        if self.lens() != before {
            // A mapping without sessions has an end now, a host without mappings too.
            self.hands.begin_again();
        }
    }

    /// When there is something to sweep, if nothing else happens before.
    pub(super) fn next_sweep(&self) -> Nanos {
        let [sessions, mappings, hosts] = self.places();
        let hands = &self.hands;
        let first = hands.sessions.next(sessions).min(hands.hosts.next(hosts));
        first.min(hands.mappings.next(mappings))
    }

    fn places(&self) -> [usize; 3] {
        let ends = [self.sessions.end(), self.mappings.end(), self.hosts.end()];
        ends.map(|end| end as usize)
    }

    fn lens(&self) -> [usize; 3] {
        [self.sessions.len(), self.mappings.len(), self.hosts.len()]
    }

    /// Examines `steps` entries of each table and removes what has expired.
    pub(super) fn reclaim(&mut self, now: Tenths, steps: u32) {
        for _ in 0..steps.min(self.sessions.end()) {
            self.hands.session = next(self.hands.session, self.sessions.end());
            self.expire_session(now, self.hands.session);
            let session = self.sessions.get(self.hands.session);
            let ends = session.map(|session| session.expires.nanos());
            self.hands.sessions.pass(ends);
        }
        for _ in 0..steps.min(self.mappings.end()) {
            self.hands.mapping = next(self.hands.mapping, self.mappings.end());
            self.expire_mapping(now, self.hands.mapping);
            let mapping = self.mappings.get(self.hands.mapping);
            let mapping = mapping.filter(|it| !it.fixed && it.sessions == 0);
            self.hands
                .mappings
                .pass(mapping.map(|it| it.expires.nanos()));
        }
        for _ in 0..steps.min(self.hosts.end()) {
            self.hands.host = next(self.hands.host, self.hosts.end());
            self.expire_host(now, self.hands.host);
            let host = self.hosts.get(self.hands.host);
            let host = host.filter(|host| host.mappings == 0);
            self.hands.hosts.pass(host.map(|host| host.expires.nanos()));
        }
    }

    fn expire_session(&mut self, now: Tenths, index: u32) {
        let Some(session) = self.sessions.get(index) else {
            return;
        };
        if now < session.expires {
            return;
        }
        let mapping = session.mapping;
        self.close_session(index);
        self.expired += 1;
        self.expire_mapping(now, mapping);
    }

    /// Removes a mapping that has neither sessions nor time left.
    fn expire_mapping(&mut self, now: Tenths, index: u32) {
        let mapping = self.mappings.get(index);
        if mapping.is_some_and(|m| !m.fixed && m.sessions == 0 && now >= m.expires) {
            self.close_mapping(now, index);
        }
    }

    fn expire_host(&mut self, now: Tenths, index: u32) {
        let host = self.hosts.get(index);
        if host.is_some_and(|host| host.mappings == 0 && now >= host.expires) {
            self.forget_host(index);
        }
    }
}

fn next(hand: u32, end: u32) -> u32 {
    let next = hand.wrapping_add(1);
    if next < end { next } else { 0 }
}
