//! Flows in the table of the fast path: their counters, how long they stay, when they are looked at again.
//!
//! Counters are never cleared. A slot that a flow has left is read once more a tick later, when no packet that found the flow can
//! still be on its way, and only then another flow gets it: so nothing is lost, nor counted for another.

use super::{Again, Policy};
use crate::classifier::Classifier;
use crate::headers::{Key, Link, read};
use crate::library::{Answer, Conversation};
use crate::policy::Treatment;
use nfluid_evnf::inspector::{Copied, Entry, FlowKey, Inspector as FastPath};
use nfluid_evnf::load::{Counts, LoadError};
use std::collections::HashMap;

/// A flow that the fast path has.
struct Known {
    slot: u32,
    /// What its counters have when it was last looked.
    read: Counts,
    treatment: Treatment,
    /// Packets since it was looked at, and when that was.
    packets: u64,
    looked_ms: u64,
    again: Option<Look>,
}

/// A second look at a flow.
struct Look {
    conversation: Conversation,
    left: u32,
    found: Option<Answer>,
}

/// A slot whose flow has left.
struct Left {
    slot: u32,
    read: Counts,
    application: u16,
    /// When its last packet may have found it.
    at_ms: u64,
}

pub struct Table {
    known: HashMap<Key, Known>,
    free: Vec<u32>,
    left: Vec<Left>,
    settings: Again,
    now_ms: u64,
    refused: u64,
    looked: u64,
    changed: u64,
}

impl Table {
    pub fn new(flows: u32, settings: Again) -> Self {
        Table {
            known: HashMap::new(),
            free: (0..flows).rev().collect(),
            left: Vec::new(),
            settings,
            now_ms: super::now_ms(),
            refused: 0,
            looked: 0,
            changed: 0,
        }
    }

    pub fn has(&self, key: &Key) -> bool {
        self.known.contains_key(key)
    }

    pub fn flows(&self) -> usize {
        self.known.len()
    }

    pub fn refused(&self) -> u64 {
        self.refused
    }

    pub fn again(&self) -> (u64, u64) {
        (self.looked, self.changed)
    }

    /// Takes a copy of a packet that the fast path has counted. The flow, if there is something to do about it.
    pub fn look_again(&mut self, classifier: &mut Classifier, copied: &Copied<'_>) -> Option<Key> {
        let length = u64::from(copied.length);
        let heard = read(copied.bytes, Link::Ethernet, length).ok()?;
        let look = self.known.get_mut(&heard.key)?.again.as_mut()?;
        if look.left == 0 {
            return Some(heard.key);
        }
        look.left -= 1;
        look.found = classifier.look_again(heard.packet, &mut look.conversation);
        if look.found.is_some() {
            look.left = 0;
        }
        (look.left == 0).then_some(heard.key)
    }

    /// Does what is due about a flow: enters it, or ends the second look at it.
    pub fn treat(
        &mut self,
        fast: &FastPath,
        classifier: &mut Classifier,
        key: &Key,
        policy: &mut Policy,
    ) -> Result<(), LoadError> {
        if !self.has(key) {
            let Some(flow) = classifier.flow(key) else {
                return Ok(());
            };
            let treatment = policy(key, flow);
            return self.admit(fast, key, treatment);
        }
        settle_one(fast, classifier, key, self.known.get_mut(key), self.now_ms)?;
        let Some(known) = self.known.get_mut(key) else {
            return Ok(());
        };
        let Some(look) = known.again.take() else {
            return Ok(());
        };
        self.looked += 1;
        known.packets = 0;
        known.looked_ms = self.now_ms;
        let was = classifier.flow(key).map(|flow| flow.application().id());
        if let Some(found) = look.found
            && was != Some(found.application.id())
        {
            self.changed += 1;
            classifier.change(key, found);
            if let Some(flow) = classifier.flow(key) {
                known.treatment = policy(key, flow);
            }
        }
        if known.treatment == Treatment::Inspect {
            return self.remove(fast, classifier, key);
        }
        enter(fast, key, known)
    }

    /// Enters a flow; if there is no room it stays with the classifier.
    fn admit(&mut self, fast: &FastPath, key: &Key, treatment: Treatment) -> Result<(), LoadError> {
        if treatment == Treatment::Inspect {
            return Ok(());
        }
        let Some(slot) = self.free.pop() else {
            self.refused += 1;
            return Ok(());
        };
        let known = Known {
            slot,
            read: fast.counted(slot)?,
            treatment,
            packets: 0,
            looked_ms: self.now_ms,
            again: None,
        };
        if enter(fast, key, &known).is_err() {
            self.refused += 1;
            self.free.push(slot);
            return Ok(());
        }
        self.known.insert(*key, known);
        Ok(())
    }

    fn remove(
        &mut self,
        fast: &FastPath,
        classifier: &Classifier,
        key: &Key,
    ) -> Result<(), LoadError> {
        let Some(known) = self.known.remove(key) else {
            return Ok(());
        };
        let flow = classifier.flow(key);
        self.left.push(Left {
            slot: known.slot,
            read: known.read,
            application: flow.map_or(0, |flow| flow.application().id()),
            at_ms: super::now_ms(),
        });
        fast.remove(&flow_key(key))
    }

    /// Brings the classifier's counters up to those of the fast path.
    pub fn settle(
        &mut self,
        fast: &FastPath,
        classifier: &mut Classifier,
    ) -> Result<(), LoadError> {
        for (key, known) in &mut self.known {
            settle_one(fast, classifier, key, Some(known), self.now_ms)?;
        }
        for left in &mut self.left {
            let counted = since(fast.counted(left.slot)?, &mut left.read);
            classifier.add(left.application, counted.packets, counted.bytes);
        }
        Ok(())
    }

    /// Ends idle flows, and has others looked at again. To be called about once a second.
    pub fn tick(
        &mut self,
        fast: &FastPath,
        classifier: &mut Classifier,
        now_ms: u64,
    ) -> Result<(), LoadError> {
        self.now_ms = now_ms;
        self.settle(fast, classifier)?;
        let in_flight = super::now_ms().saturating_sub(super::TICK_MS);
        let free = &mut self.free;
        self.left.retain(|left| {
            let stays = left.at_ms >= in_flight;
            if !stays {
                free.push(left.slot);
            }
            stays
        });
        for key in classifier.idle(now_ms) {
            self.remove(fast, classifier, &key)?;
            classifier.end(&key);
        }
        let (after, packets) = (self.settings.after.as_millis(), self.settings.packets);
        for (key, known) in &mut self.known {
            let waited = u128::from(now_ms.saturating_sub(known.looked_ms));
            let is_due = known.packets >= packets || (known.packets > 0 && waited >= after);
            if known.again.is_some() || !is_due {
                continue;
            }
            // Without memory it is for the next time.
            known.again = classifier.library().begin().map(|conversation| Look {
                conversation,
                left: self.settings.look,
                found: None,
            });
            enter(fast, key, known)?;
        }
        Ok(())
    }
}

fn settle_one(
    fast: &FastPath,
    classifier: &mut Classifier,
    key: &Key,
    known: Option<&mut Known>,
    now_ms: u64,
) -> Result<(), LoadError> {
    let Some(known) = known else {
        return Ok(());
    };
    let counted = since(fast.counted(known.slot)?, &mut known.read);
    known.packets += counted.packets;
    if counted.packets > 0 {
        classifier.count(key, counted.packets, counted.bytes, now_ms);
    }
    Ok(())
}

/// What was counted since it was read last.
fn since(now: Counts, read: &mut Counts) -> Counts {
    let before = std::mem::replace(read, now);
    Counts {
        packets: now.packets - before.packets,
        bytes: now.bytes - before.bytes,
    }
}

fn enter(fast: &FastPath, key: &Key, known: &Known) -> Result<(), LoadError> {
    let Treatment::Fast { action, dscp } = known.treatment else {
        return Ok(());
    };
    let entry = Entry {
        slot: known.slot,
        action,
        dscp,
        copy: known.again.is_some(),
    };
    fast.enter(&flow_key(key), &entry)
}

fn flow_key(key: &Key) -> FlowKey {
    FlowKey::new(key.low.into(), key.high.into(), key.protocol)
}
