//! All instances under the meter, and who of them is at work: only those are asked, located and followed. Of one that idles,
//! a look reads one mapped word per ring, and compares it.

use super::InstanceCost;
use super::metered::Metered;
use crate::host::Subject;
use nfluid_switch::Switch;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A ring, and what had been delivered to it at the last look.
#[derive(Debug)]
struct Sentinel {
    ring: u32,
    /// Whose it is, by number in the roll.
    owner: usize,
    delivered: u64,
}

/// The instances.
#[derive(Debug, Default)]
pub struct Roll {
    members: Vec<Metered>,
    numbers: HashMap<String, usize>,
    sentinels: Vec<Sentinel>,
    awake: BTreeSet<usize>,
}

impl Roll {
    /// Takes over who is there now. Those that are known keep what was measured. All count as at work until a look has
    /// found that they are not.
    pub fn renew(&mut self, subjects: Vec<Subject>) {
        let before = std::mem::take(&mut self.members).into_iter();
        let mut before: BTreeMap<String, Metered> =
            before.map(|one| (one.subject.name.clone(), one)).collect();
        self.members = subjects
            .into_iter()
            .map(|subject| match before.remove(&subject.name) {
                Some(known) => known.renewed(subject),
                None => Metered::new(subject),
            })
            .collect();
        self.numbers.clear();
        self.sentinels.clear();
        for (owner, one) in self.members.iter().enumerate() {
            self.numbers.insert(one.subject.name.clone(), owner);
            let rings = one.subject.rings();
            self.sentinels.extend(rings.map(|ring| Sentinel {
                ring,
                owner,
                delivered: 0,
            }));
        }
        self.awake = (0..self.members.len()).collect();
    }

    /// Looks at whoever is at work, or has just begun; what was found of them.
    pub fn look(&mut self, switch: &Switch, now_ns: u64) -> Vec<(String, InstanceCost)> {
        for sentinel in &mut self.sentinels {
            let delivered = switch.delivered(sentinel.ring);
            if delivered != sentinel.delivered {
                sentinel.delivered = delivered;
                self.awake.insert(sentinel.owner);
            }
        }
        let mut found = Vec::new();
        let members = &mut self.members;
        self.awake.retain(|number| {
            let Some(one) = members.get_mut(*number) else {
                return false;
            };
            if one.look(switch, now_ns) {
                found.push((one.subject.name.clone(), one.cost()));
            }
            one.is_at_work
        });
        found
    }

    /// The numbers of those that are at work.
    pub fn at_work(&self) -> &BTreeSet<usize> {
        &self.awake
    }

    /// An instance's number; it changes when the roll is renewed.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// One of the instances.
    pub fn get(&self, number: usize) -> Option<&Metered> {
        self.members.get(number)
    }

    /// One of the instances, to be changed.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Metered> {
        self.members.get_mut(number)
    }

    /// Finds out where those run that are at work.
    pub fn locate(&mut self) {
        for number in &self.awake {
            if let Some(one) = self.members.get_mut(*number) {
                one.locate();
            }
        }
    }
}
