//! A firewall's state as records: counters, counters of rules by the rules' text, flows under way.

use super::Firewall;
use super::carried::{Carried, CarriedV1};
use super::state::Count;
use crate::function::Nanos;
use crate::stateful::{Imported, Part, Reader, StateError, Stateful, Writer};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use nfluid_ring::flow::Buckets;

impl Stateful for Firewall {
    /// Version 2: the stage of TCP connections, and what gave way. Version 3: foreign addresses, at the end of the drops.
    fn state_version(&self) -> u16 {
        3
    }

    fn oldest_version(&self) -> u16 {
        1
    }

    fn export(&mut self, now: Nanos, writer: &mut Writer) {
        self.counters.export(writer);
        writer.counters(&self.states.counts());
        let rules = self.ruleset.rules().iter().enumerate();
        let counts = rules.map(|(index, rule)| (rule, self.counters.rule(index)));
        let matched: Vec<(String, Count)> = counts
            .filter(|(_, count)| count.packets > 0)
            .map(|(rule, count)| (rule.to_string(), count))
            .collect();
        writer.list(matched.iter());
        writer.list(self.states.export(now));
    }

    /// A flow goes on if these rules, asked about its first packet, keep a state for it.
    fn import(&mut self, now: Nanos, reader: &mut Reader<'_>) -> Result<Imported, StateError> {
        self.import_flows(now, reader, |_| true)
    }

    fn import_part(
        &mut self,
        now: Nanos,
        reader: &mut Reader<'_>,
        part: &Part,
    ) -> Result<Imported, StateError> {
        let counters = (!part.counts).then(|| self.counters.clone());
        let counted = self.states.counts();
        let imported = self.import_flows(now, reader, |carried| carried.is_of(&part.flows));
        match counters {
            Some(counters) => {
                self.counters = counters;
                self.states.set_counts(counted);
            }
            None => {
                let more = self.states.counts();
                let sums = core::array::from_fn(|i| counted[i].saturating_add(more[i]));
                self.states.set_counts(sums);
            }
        }
        imported
    }

    fn part_with(&mut self, kept: &Buckets) -> u64 {
        self.states.part_with(kept)
    }

    fn rehearse(&mut self, now: Nanos, reader: &mut Reader<'_>) {
        let counters = self.counters.clone();
        // The import reports what is wrong with the image.
        let _ = self.import(now, reader);
        self.counters = counters;
        self.states.flush();
        self.states.set_counts([0; 3]);
    }
}

impl Firewall {
    /// Adds to all counters, and takes over the flows that are wanted.
    fn import_flows(
        &mut self,
        now: Nanos,
        reader: &mut Reader<'_>,
        is_wanted: impl Fn(&Carried) -> bool,
    ) -> Result<Imported, StateError> {
        self.counters.import(reader)?;
        let mut counts = [0; 3];
        let known = match reader.version() {
            1 => 2,
            _ => counts.len(),
        };
        reader.counters(&mut counts[..known])?;
        self.import_rules(reader)?;
        let mut imported = Imported::default();
        self.states.stir();
        let (states, ruleset) = (&mut self.states, &self.ruleset);
        let mut take = |carried: Carried| {
            if is_wanted(&carried) {
                let taken = states.import(now, &carried, |first| ruleset.keeper_of(first))?;
                imported.count(taken);
            }
            Ok(())
        };
        match reader.version() {
            1 => reader.list(|carried: CarriedV1| take(carried.into()))?,
            _ => reader.list(take)?,
        }
        self.states.set_counts(counts);
        Ok(imported)
    }

    /// The order distinguishes two rules of the same text.
    fn import_rules(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        let mut by_text: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let counters = &mut self.counters;
        let rules = self.ruleset.rules();
        reader.list(|(text, count): (&str, Count)| {
            if by_text.is_empty() {
                for (index, rule) in rules.iter().enumerate().rev() {
                    by_text.entry(rule.to_string()).or_default().push(index);
                }
            }
            if let Some(index) = by_text.get_mut(text).and_then(Vec::pop) {
                counters.more_of_rule(index, count);
            }
            Ok(())
        })
    }
}
