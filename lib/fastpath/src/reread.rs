//! Rules of the host that have changed: read and loaded without the lock, put in force under it.

use super::function::{Exchanged, Reading};
use super::placement::places;
use super::{FastPaths, site};
use nfluid_control::apply::PlatformError;
use nfluid_netdev::Place;

/// A reading of the host's rules for a fast path.
pub struct RuleReading {
    reading: Box<dyn Reading>,
    /// Number of the fast path: another may have the name by now.
    number: u64,
    places: Vec<Place>,
}

impl RuleReading {
    /// Reads the rules, and loads programs for the interfaces where they are others than before.
    ///
    /// # Errors
    /// When they cannot be read or loaded.
    pub fn read(&mut self) -> Result<(), PlatformError> {
        self.reading.read()
    }
}

impl FastPaths {
    /// What reading a firewall's rules anew needs; nothing: it is none.
    pub fn reading(&self, name: &str) -> Option<RuleReading> {
        let fast = self.instances.get(name)?;
        let places = places(&fast.spec);
        let sends = places.iter().map(|place| self.sends_behind(name, place));
        let sends: Vec<bool> = sends.collect();
        let site = site(&fast.spec, &places, &fast.pins, fast.slow.as_ref());
        Some(RuleReading {
            reading: fast.function.reading(&site, &sends)?,
            number: fast.number,
            places,
        })
    }

    /// Reads the rules of a firewall anew, and puts them in force.
    pub(super) fn reread(&mut self, name: &str) -> Result<(), PlatformError> {
        let Some(mut reading) = self.reading(name) else {
            return Ok(());
        };
        reading.read()?;
        self.put_rules_in_force(name, &mut reading).map(drop)
    }

    /// Puts programs of a rule set in the place of those that were there when `reading` was made. Returns whether any was.
    pub(super) fn put_rules_in_force(
        &mut self,
        name: &str,
        reading: &mut RuleReading,
    ) -> Result<bool, PlatformError> {
        let fast = self.instances.get(name);
        let is_same = fast.is_some_and(|fast| fast.number == reading.number);
        if !is_same || !reading.reading.is_current() {
            return Ok(false);
        }
        let mut any = false;
        for (number, place) in reading.places.iter().enumerate() {
            let exchanged = reading.reading.exchange(number);
            if exchanged == Exchanged::Nothing {
                continue;
            }
            // It was loaded without the lock: the tap may have come or gone since.
            self.lead_to_slow_path(name);
            if let Err(why) = self.renew_member(name, place) {
                // What an earlier daemon has loaded goes on until all who are there can be.
                if exchanged == Exchanged::Other {
                    reading.reading.exchange(number);
                    self.lead_to_slow_path(name);
                }
                return Err(why);
            }
            any = true;
        }
        Ok(any)
    }

    fn lead_to_slow_path(&self, name: &str) {
        if let Some(fast) = self.instances.get(name) {
            fast.lead_to_slow_path(name);
        }
    }
}
