//! The numbers of templates.

use nfluid_control::template::ClientBy;
use nfluid_control::wiring::Classified;
use std::collections::BTreeMap;

/// The numbers of templates. A number is never used again: frames that wait in the data plane carry it.
#[derive(Debug)]
pub struct Templates {
    /// Numbers are below this.
    end: u32,
    numbers: BTreeMap<String, u32>,
    templates: BTreeMap<u32, (String, ClientBy)>,
}

impl Templates {
    /// Templates with numbers from 1 to below `end`.
    pub fn new(end: u32) -> Self {
        Templates {
            end,
            numbers: BTreeMap::new(),
            templates: BTreeMap::new(),
        }
    }

    /// Gives numbers to the templates of these entries that have none. A template that distinguishes its clients by
    /// another field than before is another template. When all numbers are used up, a new template has none, and its
    /// frames are dropped.
    pub fn number(&mut self, entries: &[Classified]) {
        for clients in entries.iter().filter_map(|entry| entry.clients.as_ref()) {
            let last = self.templates.last_key_value();
            let next = last.map_or(1, |(last, _)| last + 1);
            let known = self.number_of(&clients.template);
            let known = known.filter(|number| self.templates[number].1 == clients.by);
            if known.is_none() && next < self.end {
                self.numbers.insert(clients.template.clone(), next);
                let named = (clients.template.clone(), clients.by);
                self.templates.insert(next, named);
            }
        }
    }

    /// The number of a template.
    pub fn number_of(&self, template: &str) -> Option<u32> {
        self.numbers.get(template).copied()
    }

    /// Returns the name of the template of that number, and the field that distinguishes its clients.
    pub fn template_of(&self, number: u32) -> Option<(String, ClientBy)> {
        self.templates.get(&number).cloned()
    }
}
