//! All instances under the meter, and who of them is at work: only those are asked, located and followed. Of one that idles,
//! a look reads one mapped word per ring, and compares it.

use super::figures::InstanceCost;
use super::metered::Metered;
use super::subject::Subject;
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
    /// By number; nothing: the number is free.
    members: Vec<Option<Metered>>,
    free: Vec<usize>,
    numbers: HashMap<String, usize>,
    sentinels: Vec<Sentinel>,
    awake: BTreeSet<usize>,
}

impl Roll {
    /// Takes over who is there now. Those that are known keep what was measured. All count as at work until a look has
    /// found that they are not.
    pub fn renew(&mut self, subjects: Vec<Subject>) {
        let before = std::mem::take(&mut self.members).into_iter().flatten();
        let mut before: BTreeMap<String, Metered> =
            before.map(|one| (one.subject.name.clone(), one)).collect();
        self.free.clear();
        self.numbers.clear();
        self.sentinels.clear();
        self.awake.clear();
        for subject in subjects {
            let known = before.remove(&subject.name);
            self.enter(subject, known);
        }
    }

    /// Takes over what became of one of them: nothing if it is gone.
    pub fn change(&mut self, name: &str, subject: Option<Subject>) {
        let mut known = None;
        if let Some(number) = self.numbers.remove(name) {
            known = self.members.get_mut(number).and_then(Option::take);
            self.free.push(number);
            self.awake.remove(&number);
            self.sentinels.retain(|sentinel| sentinel.owner != number);
        }
        if let Some(subject) = subject {
            self.enter(subject, known);
        }
    }

    fn enter(&mut self, subject: Subject, known: Option<Metered>) {
        let number = self.free.pop().unwrap_or(self.members.len());
        if number == self.members.len() {
            self.members.push(None);
        }
        self.numbers.insert(subject.name.clone(), number);
        self.sentinels.extend(subject.rings().map(|ring| Sentinel {
            ring,
            owner: number,
            delivered: 0,
        }));
        self.awake.insert(number);
        if let Some(place) = self.members.get_mut(number) {
            *place = Some(match known {
                Some(known) => known.renewed(subject),
                None => Metered::new(subject),
            });
        }
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
            let Some(one) = members.get_mut(*number).and_then(Option::as_mut) else {
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

    /// An instance's number; it is another one's when the roll is renewed or the instance has changed.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// One of the instances.
    pub fn get(&self, number: usize) -> Option<&Metered> {
        self.members.get(number)?.as_ref()
    }

    /// One of the instances, to be changed.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Metered> {
        self.members.get_mut(number)?.as_mut()
    }

    /// Finds out where those run that are at work.
    pub fn locate(&mut self) {
        for number in &self.awake {
            if let Some(Some(one)) = self.members.get_mut(*number) {
                one.locate();
            }
        }
    }
}
