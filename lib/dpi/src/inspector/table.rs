//! Flows in the table of the fast path: their counters, how long they stay, when they are looked at again.
//!
//! Counters are never cleared; the ledger has what they had when they were last read. A slot that a flow has left is
//! read once more a tick later, when no packet that found the flow can still be on its way, and only then another flow
//! gets it: so nothing is lost, nor counted for another.

use super::slow::{TICK_MS, now_ms};
use super::{Again, Policy};
use crate::classifier::Classifier;
use crate::headers::{Key, Link, read};
use crate::ledger::{Entry as Number, Ledger};
use crate::library::{Answer, Conversation};
use crate::policy::Treatment;
use nfluid_evnf::inspector::{Copied, Entry, FlowKey, Tables};
use nfluid_evnf::load::LoadError;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A flow that the fast path has.
struct Known {
    slot: u32,
    treatment: Treatment,
    /// The note about the application, as the table has it.
    note: u64,
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
    application: u16,
    /// The time at which its last packet may have found it.
    at_ms: u64,
}

pub struct Table {
    fast: Tables,
    ledger: Arc<Ledger>,
    known: HashMap<Key, Known>,
    free: Vec<u32>,
    left: Vec<Left>,
    settings: Again,
    now_ms: u64,
}

impl Table {
    /// Takes over the flows in the table that a predecessor has entered; `classifier` remembers them from now on.
    pub fn new(
        fast: Tables,
        ledger: Arc<Ledger>,
        settings: Again,
        classifier: &mut Classifier,
    ) -> Result<Self, LoadError> {
        let mut table = Table {
            known: HashMap::new(),
            free: Vec::new(),
            left: Vec::new(),
            settings,
            now_ms: now_ms(),
            ledger,
            fast,
        };
        let mut used = HashSet::new();
        for (key, entry) in table.fast.entries() {
            if !table.take_over(classifier, &key, &entry, &mut used) {
                table.fast.remove(&key)?;
            }
        }
        let slots = 0..table.fast.flows_max();
        table.free = slots.rev().filter(|slot| !used.contains(slot)).collect();
        // Packets that came for flows that have left, after the flows were read the last time.
        if table.ledger.get(Number::Begun) > 0 {
            for slot in &table.free {
                let rest = table.ledger.settle(*slot, table.fast.counted(*slot)?);
                classifier.add(0, rest.packets, rest.bytes);
            }
        }
        Ok(table)
    }

    /// False: the entry cannot be understood, or has another's slot.
    fn take_over(
        &mut self,
        classifier: &mut Classifier,
        key: &FlowKey,
        entry: &Entry,
        used: &mut HashSet<u32>,
    ) -> bool {
        let Some((one, other, protocol)) = key.ends() else {
            return false;
        };
        let Some(answer) = Answer::of_note(entry.note) else {
            return false;
        };
        if entry.slot >= self.fast.flows_max() || !used.insert(entry.slot) {
            return false;
        }
        let key = Key::between(one, other, protocol);
        classifier.remember(key, answer, self.now_ms);
        let known = Known {
            slot: entry.slot,
            treatment: Treatment::Fast {
                action: entry.action,
                dscp: entry.dscp,
            },
            note: entry.note,
            packets: 0,
            looked_ms: self.now_ms,
            again: None,
        };
        self.known.insert(key, known);
        true
    }

    pub fn has(&self, key: &Key) -> bool {
        self.known.contains_key(key)
    }

    pub fn flows(&self) -> usize {
        self.known.len()
    }

    pub fn set_again(&mut self, settings: Again) {
        self.settings = settings;
    }

    /// Applies a policy to all flows of the table.
    pub fn decide_again(
        &mut self,
        classifier: &mut Classifier,
        policy: &mut Policy,
    ) -> Result<(), LoadError> {
        self.settle(classifier)?;
        let keys: Vec<Key> = self.known.keys().copied().collect();
        for key in keys {
            let Some(flow) = classifier.flow(&key) else {
                continue;
            };
            let treatment = policy(&key, flow);
            if treatment == Treatment::Inspect {
                self.remove(classifier, &key)?;
            } else if let Some(known) = self.known.get_mut(&key) {
                known.treatment = treatment;
                // The entry also ends a second look that a predecessor has begun.
                enter(&self.fast, &key, known)?;
            }
        }
        Ok(())
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

    /// Performs the next step of a flow: enters it, or ends its repeated inspection.
    pub fn treat(
        &mut self,
        classifier: &mut Classifier,
        key: &Key,
        policy: &mut Policy,
    ) -> Result<(), LoadError> {
        if !self.has(key) {
            let Some(flow) = classifier.flow(key) else {
                return Ok(());
            };
            let (treatment, note) = (policy(key, flow), flow.answer().to_note());
            return self.admit(key, treatment, note);
        }
        if let Some(known) = self.known.get_mut(key) {
            settle_one(
                &self.fast,
                &self.ledger,
                classifier,
                key,
                known,
                self.now_ms,
            )?;
        }
        let Some(known) = self.known.get_mut(key) else {
            return Ok(());
        };
        let Some(look) = known.again.take() else {
            return Ok(());
        };
        self.ledger.count(Number::Looked);
        known.packets = 0;
        known.looked_ms = self.now_ms;
        let was = classifier.flow(key).map(|flow| flow.application().id());
        if let Some(found) = look.found
            && was != Some(found.application.id())
        {
            self.ledger.count(Number::Changed);
            known.note = found.to_note();
            classifier.change(key, found);
            if let Some(flow) = classifier.flow(key) {
                known.treatment = policy(key, flow);
            }
        }
        if known.treatment == Treatment::Inspect {
            return self.remove(classifier, key);
        }
        enter(&self.fast, key, known)
    }

    /// Enters a flow; if there is no room it stays with the classifier.
    fn admit(&mut self, key: &Key, treatment: Treatment, note: u64) -> Result<(), LoadError> {
        if treatment == Treatment::Inspect {
            return Ok(());
        }
        let Some(slot) = self.free.pop() else {
            self.ledger.count(Number::Refused);
            return Ok(());
        };
        // From here on the slot's counters belong to this flow.
        self.ledger.settle(slot, self.fast.counted(slot)?);
        let known = Known {
            slot,
            treatment,
            note,
            packets: 0,
            looked_ms: self.now_ms,
            again: None,
        };
        if enter(&self.fast, key, &known).is_err() {
            self.ledger.count(Number::Refused);
            self.free.push(slot);
            return Ok(());
        }
        self.known.insert(*key, known);
        Ok(())
    }

    fn remove(&mut self, classifier: &Classifier, key: &Key) -> Result<(), LoadError> {
        let Some(known) = self.known.remove(key) else {
            return Ok(());
        };
        let flow = classifier.flow(key);
        self.left.push(Left {
            slot: known.slot,
            application: flow.map_or(0, |flow| flow.application().id()),
            at_ms: now_ms(),
        });
        self.fast.remove(&flow_key(key))
    }

    /// Brings the classifier's counters up to those of the fast path.
    pub fn settle(&mut self, classifier: &mut Classifier) -> Result<(), LoadError> {
        let (fast, ledger, now_ms) = (&self.fast, &self.ledger, self.now_ms);
        for (key, known) in &mut self.known {
            settle_one(fast, ledger, classifier, key, known, now_ms)?;
        }
        for left in &self.left {
            let counted = ledger.settle(left.slot, fast.counted(left.slot)?);
            classifier.add(left.application, counted.packets, counted.bytes);
        }
        Ok(())
    }

    /// Ends idle flows, and starts repeated inspections of others. To be called about once a second.
    pub fn tick(&mut self, classifier: &mut Classifier, now_ms: u64) -> Result<(), LoadError> {
        self.now_ms = now_ms;
        self.settle(classifier)?;
        let in_flight = super::slow::now_ms().saturating_sub(TICK_MS);
        let free = &mut self.free;
        self.left.retain(|left| {
            let stays = left.at_ms >= in_flight;
            if !stays {
                free.push(left.slot);
            }
            stays
        });
        for key in classifier.idle(now_ms) {
            self.remove(classifier, &key)?;
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
            enter(&self.fast, key, known)?;
        }
        Ok(())
    }
}

fn settle_one(
    fast: &Tables,
    ledger: &Ledger,
    classifier: &mut Classifier,
    key: &Key,
    known: &mut Known,
    now_ms: u64,
) -> Result<(), LoadError> {
    let counted = ledger.settle(known.slot, fast.counted(known.slot)?);
    known.packets += counted.packets;
    if counted.packets > 0 {
        classifier.count(key, counted.packets, counted.bytes, now_ms);
    }
    Ok(())
}

fn enter(fast: &Tables, key: &Key, known: &Known) -> Result<(), LoadError> {
    let Treatment::Fast { action, dscp } = known.treatment else {
        return Ok(());
    };
    let entry = Entry {
        slot: known.slot,
        action,
        dscp,
        copy: known.again.is_some(),
        note: known.note,
    };
    fast.enter(&flow_key(key), &entry)
}

fn flow_key(key: &Key) -> FlowKey {
    FlowKey::new(key.low.into(), key.high.into(), key.protocol)
}
