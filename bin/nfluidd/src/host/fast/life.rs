//! Life of fast paths: made, changed, removed.

use super::super::{Host, written};
use super::config::Function;
use super::guarding::{Guarding, takes_cookies};
use super::pins::remove_pins;
use super::record::Record;
use super::slow::Common;
use super::splitting::{Splitting, failed};
use super::{Before, FastPath, Work, broken, function_of, hook, places, slow_path, splittings};
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::spec::InstanceSpec;
use nfluid_evnf::guard::Settings;
use nfluid_evnf::hook::Hook;
use nfluid_netdev::Place;
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// What is needed to read a rule set anew without the host's lock.
pub struct Reading {
    places: Vec<Place>,
    hook: Hook,
    common: Common,
    before: Vec<Before>,
}

impl Reading {
    /// Reads the rules, and loads programs for the interfaces where they are others than before.
    ///
    /// # Errors
    /// When they cannot be read or loaded.
    pub fn read(&self) -> Result<Vec<Option<Splitting>>, PlatformError> {
        splittings(&self.places, self.hook, &self.common, &self.before)
    }

    fn prints(&self) -> impl Iterator<Item = Option<u64>> {
        self.before.iter().map(|before| before.print)
    }
}

impl Host {
    /// Whether an instance is a fast path.
    pub fn is_fast(&self, name: &str) -> bool {
        self.fast.contains_key(name)
    }

    pub(in crate::host) fn create_fast(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
    ) -> Result<(), PlatformError> {
        let function = function_of(spec)?;
        let places = places(spec);
        for place in &places {
            place.look().map_err(|error| failed(&error))?;
        }
        if let Function::Guard(settings) = &function {
            takes_cookies(settings, &places)?;
        }
        // Of one that could not be adopted, for example.
        self.clear_fast(name)?;
        let has_seats = !self.rows_of(name).is_empty();
        match self.make_fast(name, spec, &function) {
            Ok(()) => {
                self.give_up_seats(name);
                self.tell_of_fast(name, EventKind::Started, "runs on");
                Ok(())
            }
            Err(why) => {
                if has_seats {
                    self.vacate_fast(name)?;
                } else {
                    self.remove_fast(name)?;
                }
                Err(why)
            }
        }
    }

    fn make_fast(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
        function: &Function,
    ) -> Result<(), PlatformError> {
        let mut record = Record::of(spec).map_err(broken)?;
        let pins = self.settings.paths.fast_pins(name);
        let file = self.settings.paths.fast_record(name);
        function.number(&mut record.numbers).map_err(broken)?;
        written::save(&record, &file).map_err(broken)?;
        std::fs::create_dir(&pins).map_err(broken)?;
        let slow = slow_path(spec, &pins)?;
        let beside = (pins.as_path(), slow.as_ref());
        let work = Work::load(function, spec, beside, &mut record)?;
        let mut made = FastPath {
            spec: spec.clone(),
            record,
            work,
            slow,
            pins,
            problem: None,
            since: Instant::now(),
            restarts: 0,
            regained: false,
        };
        made.begin_slow(&self.maker, name, &file)?;
        self.fast.insert(name.to_owned(), made);
        self.settle_slow(name);
        let places = places(spec);
        places
            .iter()
            .try_for_each(|place| self.take_seat(name, place, spec.order()))
    }

    /// Says where it is, and how.
    pub(super) fn tell_of_fast(&mut self, name: &str, kind: EventKind, what: &str) {
        let Some(fast) = self.fast.get(name) else {
            return;
        };
        let rows = places(&fast.spec).into_iter();
        let rows = rows.filter_map(|place| self.rows.get(&self.key_at(name, &place)));
        let places = rows.map(|row| {
            let (mode, why) = row.mode();
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(": {why}")
            };
            format!("{} ({mode}{why})", row.place().interface)
        });
        let places: Vec<String> = places.collect();
        let message = format!("{} {what} {}", fast.spec.program.name(), places.join(", "));
        self.event(kind, Some((Kind::Instance, name)), message);
    }

    pub(in crate::host) fn remove_fast(&mut self, name: &str) -> Result<(), PlatformError> {
        // Interfaces first, so that nothing is on one without its tables being there for the next daemon to see.
        self.leave_seats(name)?;
        self.clear_fast(name)?;
        self.fast.remove(name);
        Ok(())
    }

    /// Takes everything of a fast path out of the kernel: what is pinned says what there is.
    pub(super) fn clear_fast(&self, name: &str) -> Result<(), PlatformError> {
        self.clear_slow(name);
        let paths = &self.settings.paths;
        remove_pins(&paths.fast_pins(name)).map_err(broken)?;
        match std::fs::remove_file(paths.fast_record(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(broken(error)),
            _ => Ok(()),
        }
    }

    pub(in crate::host) fn reconfigure_fast(
        &mut self,
        name: &str,
        config: &Value,
    ) -> Result<(), PlatformError> {
        let file = self.settings.paths.fast_record(name);
        let Some(fast) = self.fast.get_mut(name) else {
            return Err(super::super::platform::no_instance(name));
        };
        let spec = InstanceSpec {
            config: config.clone(),
            ..fast.spec.clone()
        };
        let function = function_of(&spec)?;
        if function_of(&fast.spec)?.sizes() != function.sizes() {
            let message = "a table cannot change its size while it is used";
            return Err(
                PlatformError::new(PlatformErrorKind::Refused, message).with_remedy(
                    "leave the sizes of tables as they were, or delete the instance first",
                ),
            );
        }
        // With the old numbers and the new ones, before a table has any of those: who comes after a crash gives none away twice.
        let mut record = fast.record.clone();
        record.spec = serde_json::to_string(&spec).map_err(broken)?;
        function.number(&mut record.numbers).map_err(broken)?;
        written::save(&record, &file).map_err(broken)?;
        let changed = if let Function::Inspector(new) = &function {
            let changed = fast.change_inspector(&self.maker, name, new);
            record.slow.clone_from(&fast.record.slow);
            changed
        } else if let (Work::Balancer(balancing), Function::Balancer(new)) =
            (&mut fast.work, &function)
        {
            balancing.change(new, &mut record.numbers).map_err(broken)
        } else if let Function::Guard(new) = &function {
            self.guard_by(name, new)
        } else {
            Ok(())
        };
        let Some(fast) = self.fast.get_mut(name) else {
            return changed;
        };
        if let Err(why) = changed {
            record.spec.clone_from(&fast.record.spec);
            fast.record = record;
            note(&fast.record, &file);
            return Err(why);
        }
        fast.record = record;
        note(&fast.record, &file);
        fast.spec = spec;
        if matches!(fast.work, Work::Firewall(_)) {
            self.reread(name)?;
        }
        Ok(())
    }

    /// Puts a guard with these settings in the place of the one that is there, on its tables.
    fn guard_by(&mut self, name: &str, settings: &Settings) -> Result<(), PlatformError> {
        let Some(fast) = self.fast.get_mut(name) else {
            return Ok(());
        };
        let places = places(&fast.spec);
        takes_cookies(settings, &places)?;
        let guarding = Guarding::load(settings, &fast.pins).map_err(broken)?;
        let former = std::mem::replace(&mut fast.work, Work::Guard(Box::new(guarding)));
        fast.problem = None;
        let renew = |host: &mut Self| {
            let mut places = places.iter();
            places.try_for_each(|place| host.renew_member(name, place))
        };
        renew(self).inspect_err(|_| {
            if let Some(fast) = self.fast.get_mut(name) {
                fast.work = former;
            }
            if let Err(error) = renew(self) {
                tracing::warn!(instance = name, %error, "going back to the limits before");
            }
        })
    }

    /// Writes down the place of a fast path among others.
    pub(super) fn note_order(
        &mut self,
        name: &str,
        order: Option<u16>,
    ) -> Result<(), PlatformError> {
        let file = self.settings.paths.fast_record(name);
        let Some(fast) = self.fast.get_mut(name) else {
            return Ok(());
        };
        let mut spec = fast.spec.clone();
        if let Some(attach) = &mut spec.attach {
            attach.order = order;
        }
        let mut record = fast.record.clone();
        record.spec = serde_json::to_string(&spec).map_err(broken)?;
        written::save(&record, &file).map_err(broken)?;
        fast.spec = spec;
        fast.record = record;
        Ok(())
    }

    /// An operator's restart: everything is read and entered anew; packets go on.
    pub(in crate::host) fn restart_fast(&mut self, name: &str) -> Result<(), PlatformError> {
        let mut limits = None;
        if let Some(fast) = self.fast.get_mut(name) {
            fast.restarts += 1;
            fast.problem = None;
            fast.since = Instant::now();
            let mut numbers = fast.record.numbers.clone();
            match &mut fast.work {
                Work::Firewall(loaded) => loaded.iter_mut().for_each(|one| *one = None),
                Work::Balancer(balancing) => {
                    balancing.forget();
                    let config = balancing.config().clone();
                    balancing.change(&config, &mut numbers).map_err(broken)?;
                }
                Work::Inspector(_) => fast.restart_slow(&self.maker, name),
                Work::Guard(guarding) => limits = Some(guarding.settings().clone()),
            }
        }
        if let Some(limits) = limits {
            self.guard_by(name, &limits)?;
        }
        self.reread(name)?;
        self.hold_again(name);
        self.tell_of_fast(name, EventKind::Restarting, "reads everything anew, on");
        Ok(())
    }

    /// What reading a firewall's rules anew needs; nothing: it is none.
    pub(in crate::host) fn reading(&self, name: &str) -> Option<Reading> {
        let fast = self.fast.get(name)?;
        let Work::Firewall(loaded) = &fast.work else {
            return None;
        };
        let places = places(&fast.spec);
        let before = places.iter().enumerate().map(|(number, place)| {
            let there = loaded.get(number).and_then(Option::as_ref);
            Before {
                print: there.map(Splitting::print),
                senders: self.sends_behind(name, place),
            }
        });
        Some(Reading {
            before: before.collect(),
            hook: hook(&fast.spec),
            places,
            common: Common::of(&fast.pins, fast.slow.as_ref()),
        })
    }

    fn reread(&mut self, name: &str) -> Result<(), PlatformError> {
        let Some(reading) = self.reading(name) else {
            return Ok(());
        };
        let read = reading.read()?;
        self.put_rules_in_force(name, &reading, read).map(drop)
    }

    /// Puts programs of a rule set in the place of those that were there when `reading` was made. Returns whether any was.
    pub(in crate::host) fn put_rules_in_force(
        &mut self,
        name: &str,
        reading: &Reading,
        mut read: Vec<Option<Splitting>>,
    ) -> Result<bool, PlatformError> {
        let is_current = self
            .reading(name)
            .is_some_and(|now| now.prints().eq(reading.prints()));
        if !is_current {
            return Ok(false);
        }
        let mut any = false;
        for (number, place) in reading.places.iter().enumerate() {
            let Some(splitting) = read.get_mut(number).and_then(Option::take) else {
                continue;
            };
            let Some(former) = self.put_splitting(name, number, Some(splitting)) else {
                continue;
            };
            if let Err(why) = self.renew_member(name, place) {
                // What an earlier daemon has loaded goes on until all who are there can be.
                if former.is_some() {
                    self.put_splitting(name, number, former);
                }
                return Err(why);
            }
            any = true;
        }
        Ok(any)
    }

    /// Puts a rule set in the place of the one that is loaded for an interface, which is returned.
    fn put_splitting(
        &mut self,
        name: &str,
        number: usize,
        splitting: Option<Splitting>,
    ) -> Option<Option<Splitting>> {
        let fast = self.fast.get_mut(name)?;
        let Work::Firewall(loaded) = &mut fast.work else {
            return None;
        };
        let former = std::mem::replace(loaded.get_mut(number)?, splitting);
        // It was loaded without the lock: the tap may have come or gone since.
        fast.lead_to_slow_path(name);
        Some(former)
    }

    /// Notes that it is not as it should be, or is again.
    pub(in crate::host) fn note_fast_problem(&mut self, name: &str, problem: Option<String>) {
        let Some(fast) = self.fast.get_mut(name) else {
            return;
        };
        if fast.problem == problem {
            return;
        }
        fast.problem.clone_from(&problem);
        let (kind, message) = match problem {
            Some(why) => (EventKind::Unhealthy, why),
            None => (EventKind::Healthy, "it is well again".to_owned()),
        };
        self.event(kind, Some((Kind::Instance, name)), message);
    }

    /// Takes all fast paths off their interfaces: the daemon ends in order. The next one makes them again.
    pub(in crate::host) fn close_fast(&mut self) {
        for mut row in std::mem::take(&mut self.rows).into_values() {
            if let Err(error) = row.end() {
                tracing::warn!(interface = row.place().interface, %error, "leaving an interface");
            }
        }
        for name in std::mem::take(&mut self.fast).into_keys() {
            if let Err(error) = self.clear_fast(&name) {
                tracing::warn!(instance = name, %error, "removing a fast path");
            }
        }
    }
}

/// What was written down before a change holds more than what is true after it: that is as good.
fn note(record: &Record, file: &Path) {
    if let Err(error) = written::save(record, file) {
        tracing::warn!(%error, "writing down a fast path after a change");
    }
}
