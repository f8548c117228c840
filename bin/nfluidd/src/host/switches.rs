//! The platform's switches. The daemon writes their numbers down. A later daemon gives each switch the same number,
//! so that its ports need no change.

use super::Host;
use super::errors::exhausted;
use nfluid_control::apply::PlatformError;
use nfluid_control::model::Switch;
use std::collections::BTreeMap;

impl Host {
    /// Reads the numbers that the switches of `desired` had under an earlier daemon.
    pub(super) fn recall_switches(&mut self, desired: &BTreeMap<String, Switch>) {
        let path = self.settings.paths.switch_numbers();
        let mut left: BTreeMap<String, u32> = nfluid_records::load(&path).unwrap_or_default();
        left.retain(|name, number| {
            desired.contains_key(name) && *number < nfluid_switch::abi::SWITCHES_MAX
        });
        for number in left.values() {
            self.switch_ids.mark(*number);
        }
        self.left_switches = left;
    }

    /// Creates a switch without ports.
    ///
    /// # Errors
    /// The platform has no room for another switch.
    pub(super) fn create_switch(&mut self, name: &str, spec: &Switch) -> Result<(), PlatformError> {
        let id = self
            .number_switch(name)
            .ok_or_else(|| exhausted("switches"))?;
        self.switches.insert(name.to_owned(), (id, spec.clone()));
        self.record_switches();
        Ok(())
    }

    /// Changes a switch; its ports and learned addresses stay.
    pub(super) fn update_switch(&mut self, name: &str, new: &Switch) {
        if let Some((_, model)) = self.switches.get_mut(name) {
            *model = new.clone();
        }
        let members = self.wires.on_switch(name);
        for id in members.filter_map(|port| self.port_id(port)) {
            self.limit_learning(id, new);
        }
    }

    /// Removes a switch without ports.
    pub(super) fn remove_switch(&mut self, name: &str) {
        if let Some((id, _)) = self.switches.remove(name) {
            self.switch_ids.free(id);
            self.record_switches();
        }
    }

    /// Returns a number for a switch: the number under an earlier daemon, or a free one.
    fn number_switch(&mut self, name: &str) -> Option<u32> {
        let before = self.left_switches.remove(name);
        before.or_else(|| self.switch_ids.take(1))
    }

    /// Writes the numbers down. A failure costs frames at a restart of the daemon, and nothing else.
    fn record_switches(&self) {
        let mut numbers = self.left_switches.clone();
        let present = self.switches.iter();
        numbers.extend(present.map(|(name, (number, _))| (name.clone(), *number)));
        let path = self.settings.paths.switch_numbers();
        if let Err(error) = nfluid_records::save(&numbers, &path) {
            tracing::warn!(%error, "writing {}", path.display());
        }
    }
}
