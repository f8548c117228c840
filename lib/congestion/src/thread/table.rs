//! The measured instances. Only busy instances are measured, located and signalled; of an idle instance, a measurement reads
//! one mapped word per ring.

use super::figures::InstanceCost;
use super::metered::Metered;
use super::subject::Subject;
use nfluid_switch::Switch;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A ring, and how many frames had been delivered to it at the last measurement.
#[derive(Debug)]
struct RingCount {
    ring: u32,
    /// Number of the ring's instance in the table.
    owner: usize,
    delivered: u64,
}

/// All measured instances.
#[derive(Debug, Default)]
pub struct InstanceTable {
    /// By number; `None`: the number is free.
    instances: Vec<Option<Metered>>,
    free: Vec<usize>,
    numbers: HashMap<String, usize>,
    counts: Vec<RingCount>,
    busy: BTreeSet<usize>,
}

impl InstanceTable {
    /// Replaces all instances by `subjects`. Measurements of known instances are kept. All instances count as busy until a
    /// measurement has found that they are not.
    pub fn replace_all(&mut self, subjects: Vec<Subject>) {
        let before = std::mem::take(&mut self.instances).into_iter().flatten();
        let mut before: BTreeMap<String, Metered> =
            before.map(|one| (one.subject.name.clone(), one)).collect();
        self.free.clear();
        self.numbers.clear();
        self.counts.clear();
        self.busy.clear();
        for subject in subjects {
            let known = before.remove(&subject.name);
            self.insert(subject, known);
        }
    }

    /// Replaces the instance `name` by `subject`; `None` removes the instance.
    pub fn replace(&mut self, name: &str, subject: Option<Subject>) {
        let mut known = None;
        if let Some(number) = self.numbers.remove(name) {
            known = self.instances.get_mut(number).and_then(Option::take);
            self.free.push(number);
            self.busy.remove(&number);
            self.counts.retain(|count| count.owner != number);
        }
        if let Some(subject) = subject {
            self.insert(subject, known);
        }
    }

    fn insert(&mut self, subject: Subject, known: Option<Metered>) {
        let number = self.free.pop().unwrap_or(self.instances.len());
        if number == self.instances.len() {
            self.instances.push(None);
        }
        self.numbers.insert(subject.name.clone(), number);
        self.counts.extend(subject.rings().map(|ring| RingCount {
            ring,
            owner: number,
            delivered: 0,
        }));
        self.busy.insert(number);
        if let Some(place) = self.instances.get_mut(number) {
            *place = Some(match known {
                Some(known) => known.renewed(subject),
                None => Metered::new(subject),
            });
        }
    }

    /// Measures the instances that are busy or have just received frames. Returns the costs that are new.
    pub fn measure(&mut self, switch: &Switch, now_ns: u64) -> Vec<(String, InstanceCost)> {
        for count in &mut self.counts {
            let delivered = switch.delivered(count.ring);
            if delivered != count.delivered {
                count.delivered = delivered;
                self.busy.insert(count.owner);
            }
        }
        let mut costs = Vec::new();
        let instances = &mut self.instances;
        self.busy.retain(|number| {
            let Some(one) = instances.get_mut(*number).and_then(Option::as_mut) else {
                return false;
            };
            if one.measure(switch, now_ns) {
                costs.push((one.subject.name.clone(), one.cost()));
            }
            one.is_busy
        });
        costs
    }

    /// The numbers of the busy instances.
    pub fn busy(&self) -> &BTreeSet<usize> {
        &self.busy
    }

    /// The number of an instance, until the instance is replaced.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// The instance with this number.
    pub fn get(&self, number: usize) -> Option<&Metered> {
        self.instances.get(number)?.as_ref()
    }

    /// The instance with this number, to be changed.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Metered> {
        self.instances.get_mut(number)?.as_mut()
    }

    /// Finds the cores on which busy instances run.
    pub fn find_cores(&mut self) {
        for number in &self.busy {
            if let Some(Some(one)) = self.instances.get_mut(*number) {
                one.find_core();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_control::model::{PortRef, Program};
    use std::ops::Range;

    fn subject(name: &str, rings: Range<u32>) -> Subject {
        let nf = "bridge".to_owned();
        Subject {
            name: name.to_owned(),
            program: Program::BuiltIn { nf },
            ports: vec![(PortRef::instance(name, "in"), rings)],
            clock: None,
            pid: None,
            io: None,
        }
    }

    fn owners(table: &InstanceTable) -> Vec<(u32, &str)> {
        let owner = |count: &RingCount| {
            let owner = table.get(count.owner).expect("an instance");
            (count.ring, owner.subject.name.as_str())
        };
        table.counts.iter().map(owner).collect()
    }

    #[test]
    fn a_number_that_is_used_again_has_no_ring_of_the_instance_before() {
        let mut table = InstanceTable::default();
        table.replace_all(vec![subject("a", 1..3), subject("b", 3..4)]);
        table.replace("a", None);
        assert_eq!(owners(&table), [(3, "b")]);
        table.replace("c", Some(subject("c", 7..8)));
        assert_eq!(owners(&table), [(3, "b"), (7, "c")]);
        assert_eq!(table.number("a"), None);
        assert_eq!(table.busy().len(), 2, "a new instance counts as busy");
    }
}
