//! Rules as the fast path looks them up: grouped by the bits that they ask for, a table entry for each.
//!
//! Tuple space search: Srinivasan, Suri, Varghese, *Packet Classification using Tuple Space Search*, SIGCOMM 1999.

use super::rules::{Family, Pattern, Stage, Traffic, Verdict};
use std::collections::HashMap;

/// Most tuples of all stages (`EVNF_TUPLES_MAX`).
pub const TUPLES_MAX: usize = 64;
/// Most entries of the table of rules.
pub const ENTRIES_MAX: usize = 1 << 18;
/// Bytes of `union evnf_key`.
pub const KEY_BYTES: usize = 40;
/// Bytes of `struct evnf_tuple`.
pub const TUPLE_BYTES: usize = KEY_BYTES + 8;

const AT_SPORT: usize = 32;
const AT_DPORT: usize = 34;
const AT_FAMILY: usize = 36;
const AT_PROTO: usize = 37;
const AT_HAS: usize = 38;
const AT_TUPLE: usize = 39;
const HAS_PORTS: u8 = 1 << 0;
const STAGE_LOCAL: u32 = 1 << 31;
const STAGE_FORWARDED: u32 = 1 << 30;

/// The mask without bits, and its only key.
const EVERYTHING: Key = [0; KEY_BYTES];

/// Bytes of `union evnf_key`.
pub type Key = [u8; KEY_BYTES];

/// Rules with the same mask.
#[derive(Clone, Debug)]
struct Tuple {
    mask: Key,
    first: u32,
    stage: u32,
    entries: HashMap<Key, (u32, Verdict)>,
}

/// Tables of the fast path.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Each a `struct evnf_tuple`.
    pub tuples: Vec<[u8; TUPLE_BYTES]>,
    /// Keys and `struct evnf_rule`.
    pub entries: Vec<(Key, [u8; 8])>,
    /// Number of rules; they are numbered in order.
    pub rules: u32,
    /// Numbers of the rules that did not fit, nor anything behind them in their stage: the slow path decides there.
    pub left_out: Vec<u32>,
}

/// Makes the tables of stages, in the order in which packets pass them. Rules are numbered from 0 on.
pub fn compile(stages: &[Stage]) -> Tables {
    let mut tables = Tables::default();
    for (position, stage) in stages.iter().enumerate() {
        let room = TUPLES_MAX - tables.tuples.len();
        let is_last = position + 1 == stages.len();
        // A tuple is for the stage behind this stage, in which that stage can state that it does not fit.
        if room < 2 && !is_last {
            tables.leave_all_out(position as u32);
            break;
        }
        let room = room - usize::from(!is_last);
        for tuple in of_stage(stage, position as u32, room, &mut tables) {
            tables.push(tuple);
        }
    }
    tables
}

impl Tables {
    /// Everything from here on is left to the slow path.
    fn leave_all_out(&mut self, position: u32) {
        let mut space = Space::new(position, self);
        space.put(EVERYTHING, EVERYTHING, self.rules, Verdict::Ask);
        self.left_out.push(self.rules);
        self.rules += 1;
        space.tuples.into_iter().for_each(|tuple| self.push(tuple));
    }

    fn push(&mut self, tuple: Tuple) {
        let mut bytes = [0; TUPLE_BYTES];
        bytes[..KEY_BYTES].copy_from_slice(&tuple.mask);
        bytes[AT_TUPLE] = u8::MAX;
        bytes[KEY_BYTES..KEY_BYTES + 4].copy_from_slice(&tuple.first.to_ne_bytes());
        bytes[KEY_BYTES + 4..].copy_from_slice(&tuple.stage.to_ne_bytes());
        let index = self.tuples.len() as u8;
        self.tuples.push(bytes);
        for (mut key, (number, verdict)) in tuple.entries {
            key[AT_TUPLE] = index;
            let mut rule = [0; 8];
            rule[..4].copy_from_slice(&number.to_ne_bytes());
            rule[4..].copy_from_slice(&(verdict as u32).to_ne_bytes());
            self.entries.push((key, rule));
        }
    }
}

/// The tuples of a stage, at most `room` of them.
fn of_stage(stage: &Stage, position: u32, room: usize, tables: &mut Tables) -> Vec<Tuple> {
    let stage_word = position
        | match stage.traffic {
            Traffic::All => 0,
            Traffic::Forwarded => STAGE_FORWARDED,
            Traffic::Local => STAGE_LOCAL,
        };
    let base = tables.rules;
    tables.rules += stage.rules.len() as u32;
    let mut space = Space::new(stage_word, tables);
    for (at, rule) in stage.rules.iter().enumerate() {
        let number = base + at as u32;
        // A tuple is left for stating that the next rule does not fit.
        if !space.fits(&rule.patterns, room.saturating_sub(1)) {
            tables.left_out.push(number);
            space.put(EVERYTHING, EVERYTHING, number, Verdict::Ask);
            break;
        }
        for pattern in &rule.patterns {
            space.add(pattern, number, rule.verdict);
        }
    }
    space.tuples.sort_by_key(|tuple| tuple.first);
    space.tuples
}

/// The tuples of a stage while it is compiled.
struct Space {
    tuples: Vec<Tuple>,
    by_mask: HashMap<Key, usize>,
    stage: u32,
    entries_left: usize,
}

impl Space {
    fn new(stage: u32, tables: &Tables) -> Self {
        Space {
            tuples: Vec::new(),
            by_mask: HashMap::new(),
            stage,
            entries_left: ENTRIES_MAX.saturating_sub(tables.entries.len()),
        }
    }

    fn fits(&self, patterns: &[Pattern], tuples: usize) -> bool {
        let mut new: Vec<Key> = patterns.iter().map(mask_of).collect();
        new.retain(|mask| !self.by_mask.contains_key(mask));
        new.sort_unstable();
        new.dedup();
        self.tuples.len() + new.len() <= tuples && patterns.len() < self.entries_left
    }

    fn add(&mut self, pattern: &Pattern, number: u32, verdict: Verdict) {
        self.put(mask_of(pattern), key_of(pattern), number, verdict);
    }

    fn put(&mut self, mask: Key, key: Key, number: u32, verdict: Verdict) {
        let next = self.tuples.len();
        let at = *self.by_mask.entry(mask).or_insert(next);
        if at == next {
            self.tuples.push(Tuple {
                mask,
                first: number,
                stage: self.stage,
                entries: HashMap::new(),
            });
        }
        // An earlier rule for the same packets has won already.
        let entries = &mut self.tuples[at].entries;
        if let std::collections::hash_map::Entry::Vacant(vacant) = entries.entry(key) {
            vacant.insert((number, verdict));
            self.entries_left = self.entries_left.saturating_sub(1);
        }
    }
}

fn mask_of(pattern: &Pattern) -> Key {
    let mut mask = [0; KEY_BYTES];
    mask[..16].copy_from_slice(&pattern.src.mask().to_be_bytes());
    mask[16..32].copy_from_slice(&pattern.dst.mask().to_be_bytes());
    put_port(&mut mask, AT_SPORT, pattern.sport.mask());
    put_port(&mut mask, AT_DPORT, pattern.dport.mask());
    mask[AT_FAMILY] = u8::MAX;
    if pattern.proto.is_some() {
        mask[AT_PROTO] = u8::MAX;
    }
    if pattern.ports {
        mask[AT_HAS] = HAS_PORTS;
    }
    mask
}

fn key_of(pattern: &Pattern) -> Key {
    let mut key = [0; KEY_BYTES];
    key[..16].copy_from_slice(&pattern.src.bits.to_be_bytes());
    key[16..32].copy_from_slice(&pattern.dst.bits.to_be_bytes());
    put_port(&mut key, AT_SPORT, pattern.sport.bits);
    put_port(&mut key, AT_DPORT, pattern.dport.bits);
    key[AT_FAMILY] = match pattern.family {
        Family::V4 => 4,
        Family::V6 => 6,
    };
    key[AT_PROTO] = pattern.proto.unwrap_or(0);
    if pattern.ports {
        key[AT_HAS] = HAS_PORTS;
    }
    key
}

fn put_port(bytes: &mut Key, at: usize, bits: u128) {
    bytes[at..at + 2].copy_from_slice(&((bits >> 112) as u16).to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::rules::{Prefix, Rule};
    use super::*;

    fn to_net(net: u128, len: u8) -> Pattern {
        Pattern {
            dst: Prefix {
                bits: net << 96,
                len,
            },
            ..Pattern::any(Family::V4)
        }
    }

    fn stage(rules: Vec<Rule>) -> Stage {
        Stage {
            traffic: Traffic::All,
            rules,
        }
    }

    #[test]
    fn rules_that_ask_for_the_same_bits_share_a_tuple() {
        let rules = (0..1000).map(|net| Rule {
            patterns: vec![to_net(net << 8, 24)],
            verdict: Verdict::Drop,
        });
        let tables = compile(&[stage(rules.collect())]);
        assert_eq!(tables.tuples.len(), 1);
        assert_eq!(tables.entries.len(), 1000);
        assert_eq!(tables.rules, 1000);
        assert!(tables.left_out.is_empty());
    }

    // promise: 15.4
    #[test]
    fn what_does_not_fit_is_left_to_the_slow_path_with_all_behind_it() {
        let shape = |i: u8| Pattern {
            src: Prefix {
                bits: 0,
                len: i % 33,
            },
            ..to_net(0, i / 33)
        };
        let rules = (0..100).map(|i| Rule {
            patterns: vec![shape(i)],
            verdict: Verdict::Drop,
        });
        let tables = compile(&[stage(rules.collect()), stage(Vec::new())]);
        assert_eq!(tables.tuples.len(), TUPLES_MAX - 1);
        assert_eq!(tables.left_out, [62]);
        let ask = (Verdict::Ask as u32).to_ne_bytes();
        let asks = tables.entries.iter().filter(|(_, rule)| rule[4..] == ask);
        assert_eq!(asks.count(), 1);
    }

    #[test]
    fn the_first_of_equal_rules_wins() {
        let rule = |verdict| Rule {
            patterns: vec![to_net(7, 32)],
            verdict,
        };
        let tables = compile(&[stage(vec![rule(Verdict::Accept), rule(Verdict::Drop)])]);
        assert_eq!(tables.entries.len(), 1);
        assert_eq!(tables.entries[0].1, [0; 8], "the first, accepting");
    }
}
