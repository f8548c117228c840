//! The numbers of the switches, written down: a daemon that comes later gives each the same, so that
//! the ports on it need not be touched.

use super::Host;
use nfluid_control::model::Switch;
use std::collections::BTreeMap;

impl Host {
    /// Remembers the numbers that the switches of `desired` had under an earlier daemon.
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

    /// A number for a switch: the one it had, or a free one.
    pub(super) fn number_switch(&mut self, name: &str) -> Option<u32> {
        let before = self.left_switches.remove(name);
        before.or_else(|| self.switch_ids.take(1))
    }

    /// Writes the numbers down. What fails costs frames at a restart, and nothing else.
    pub(super) fn record_switches(&self) {
        let mut numbers = self.left_switches.clone();
        let present = self.switches.iter();
        numbers.extend(present.map(|(name, (number, _))| (name.clone(), *number)));
        let path = self.settings.paths.switch_numbers();
        if let Err(error) = nfluid_records::save(&numbers, &path) {
            tracing::warn!(%error, "writing {}", path.display());
        }
    }
}
