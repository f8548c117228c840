//! Rereading the host's rules: they are read and loaded without the lock, and put in force under the lock.

use super::function::{Exchanged, Reading};
use super::placement::places;
use super::{FastPaths, site};
use nfluid_control::apply::PlatformError;
use nfluid_netdev::Place;

/// A reading of the host's rules for a fast path.
pub struct RuleReading {
    reading: Box<dyn Reading>,
    /// Number of the fast path: a newer one may have the same name.
    number: u64,
    places: Vec<Place>,
}

impl RuleReading {
    /// Reads the rules, and loads programs for the interfaces whose rules differ.
    ///
    /// # Errors
    /// When the rules cannot be read or loaded.
    pub fn read(&mut self) -> Result<(), PlatformError> {
        self.reading.read()
    }
}

impl FastPaths {
    /// Returns a reading of the rules of a fast path. `None`: the fast path does not depend on rules.
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

    /// Reads the rules of a fast path anew, and puts them in force.
    pub(super) fn reread(&mut self, name: &str) -> Result<(), PlatformError> {
        let Some(mut reading) = self.reading(name) else {
            return Ok(());
        };
        reading.read()?;
        self.put_rules_in_force(name, &mut reading).map(drop)
    }

    /// Replaces the programs that were in place when `reading` was made by those of the reading. Returns true if there
    /// were any.
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
            // The programs were loaded without the lock: the tap may have appeared or disappeared since.
            self.lead_to_slow_path(name);
            if let Err(why) = self.renew_member(name, place) {
                // Without a former program, that of an earlier daemon keeps running until the whole chain can be
                // installed.
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
