//! Life of fast paths: made, changed, removed.

use super::config::Function;
use super::error::failed;
use super::guarding::{Guarding, takes_cookies};
use super::pins::remove_pins;
use super::record::Record;
use super::slow::Common;
use super::splitting::Splitting;
use super::{
    Before, FastPath, FastPaths, Work, broken, function_of, hook, places, slow_path, splittings,
};
use nfluid_api::types::EventKind;
use nfluid_control::apply::{PlatformError, PlatformErrorKind, no_instance};
use nfluid_control::spec::InstanceSpec;
use nfluid_evnf::guard::Settings;
use nfluid_evnf::hook::Hook;
use nfluid_switch::uplink::Place;
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

impl FastPaths {
    /// Whether an instance is a fast path.
    pub fn contains(&self, name: &str) -> bool {
        self.instances.contains_key(name)
    }

    /// Makes a fast path, and attaches it to its interfaces.
    ///
    /// # Errors
    /// Why it cannot be made; everything is as before, but that an interface where it had a place has none of its programs.
    pub fn create(&mut self, name: &str, spec: &InstanceSpec) -> Result<(), PlatformError> {
        let function = function_of(spec)?;
        let places = places(spec);
        for place in &places {
            place.look().map_err(|error| failed(&error))?;
        }
        if let Function::Guard(settings) = &function {
            takes_cookies(settings, &places)?;
        }
        // Of one that could not be adopted, for example.
        self.clear(name)?;
        let has_seats = !self.rows_of(name).is_empty();
        match self.make(name, spec, &function) {
            Ok(()) => {
                self.give_up_seats(name);
                self.report_places(name, EventKind::Started, "runs on");
                Ok(())
            }
            Err(why) => {
                if has_seats {
                    self.vacate(name)?;
                } else {
                    self.remove(name)?;
                }
                Err(why)
            }
        }
    }

    fn make(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
        function: &Function,
    ) -> Result<(), PlatformError> {
        let mut record = Record::of(spec).map_err(broken)?;
        let pins = self.paths.pins(name);
        let file = self.paths.record(name);
        function.number(&mut record.numbers).map_err(broken)?;
        nfluid_records::save(&record, &file).map_err(broken)?;
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
        made.begin_slow(&*self.processes, name, &file)?;
        self.instances.insert(name.to_owned(), made);
        self.settle_slow(name);
        let places = places(spec);
        places
            .iter()
            .try_for_each(|place| self.take_seat(name, place, spec.order()))
    }

    /// Says where it is, and how.
    pub(super) fn report_places(&mut self, name: &str, kind: EventKind, what: &str) {
        let Some(fast) = self.instances.get(name) else {
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
        self.event(kind, name, message);
    }

    /// Takes a fast path off its interfaces and removes it.
    ///
    /// # Errors
    /// When it is there still.
    pub fn remove(&mut self, name: &str) -> Result<(), PlatformError> {
        // Interfaces first, so that nothing is on one without its tables being there for the next daemon to see.
        self.leave_seats(name)?;
        self.clear(name)?;
        self.instances.remove(name);
        Ok(())
    }

    /// Takes everything of a fast path out of the kernel: what is pinned says what there is.
    pub(super) fn clear(&self, name: &str) -> Result<(), PlatformError> {
        self.clear_slow(name);
        let paths = &self.paths;
        remove_pins(&paths.pins(name)).map_err(broken)?;
        match std::fs::remove_file(paths.record(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(broken(error)),
            _ => Ok(()),
        }
    }

    /// Gives a fast path another configuration.
    ///
    /// # Errors
    /// When the configuration is refused; the former one is in force.
    pub fn reconfigure(&mut self, name: &str, config: &Value) -> Result<(), PlatformError> {
        let file = self.paths.record(name);
        let Some(fast) = self.instances.get_mut(name) else {
            return Err(no_instance(name));
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
        nfluid_records::save(&record, &file).map_err(broken)?;
        let changed = if let Function::Inspector(new) = &function {
            let changed = fast.change_inspector(&*self.processes, name, new);
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
        let Some(fast) = self.instances.get_mut(name) else {
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
        let Some(fast) = self.instances.get_mut(name) else {
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
            if let Some(fast) = self.instances.get_mut(name) {
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
        let file = self.paths.record(name);
        let Some(fast) = self.instances.get_mut(name) else {
            return Ok(());
        };
        let mut spec = fast.spec.clone();
        if let Some(attach) = &mut spec.attach {
            attach.order = order;
        }
        let mut record = fast.record.clone();
        record.spec = serde_json::to_string(&spec).map_err(broken)?;
        nfluid_records::save(&record, &file).map_err(broken)?;
        fast.spec = spec;
        fast.record = record;
        Ok(())
    }

    /// An operator's restart: everything is read and entered anew; packets go on.
    pub fn restart(&mut self, name: &str) -> Result<(), PlatformError> {
        let mut limits = None;
        if let Some(fast) = self.instances.get_mut(name) {
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
                Work::Inspector(_) => fast.restart_slow(&*self.processes, name),
                Work::Guard(guarding) => limits = Some(guarding.settings().clone()),
            }
        }
        if let Some(limits) = limits {
            self.guard_by(name, &limits)?;
        }
        self.reread(name)?;
        self.hold_again(name);
        self.report_places(name, EventKind::Restarting, "reads everything anew, on");
        Ok(())
    }

    /// What reading a firewall's rules anew needs; nothing: it is none.
    pub fn reading(&self, name: &str) -> Option<Reading> {
        let fast = self.instances.get(name)?;
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
    pub fn put_rules_in_force(
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
        let fast = self.instances.get_mut(name)?;
        let Work::Firewall(loaded) = &mut fast.work else {
            return None;
        };
        let former = std::mem::replace(loaded.get_mut(number)?, splitting);
        // It was loaded without the lock: the tap may have come or gone since.
        fast.lead_to_slow_path(name);
        Some(former)
    }

    /// Notes that it is not as it should be, or is again.
    pub fn note_problem(&mut self, name: &str, problem: Option<String>) {
        let Some(fast) = self.instances.get_mut(name) else {
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
        self.event(kind, name, message);
    }

    /// Takes all fast paths off their interfaces: the daemon ends in order. The next one makes them again.
    pub fn close(&mut self) {
        for mut row in std::mem::take(&mut self.rows).into_values() {
            if let Err(error) = row.end() {
                tracing::warn!(interface = row.place().interface, %error, "leaving an interface");
            }
        }
        for name in std::mem::take(&mut self.instances).into_keys() {
            if let Err(error) = self.clear(&name) {
                tracing::warn!(instance = name, %error, "removing a fast path");
            }
        }
    }
}

/// What was written down before a change holds more than what is true after it: that is as good.
fn note(record: &Record, file: &Path) {
    if let Err(error) = nfluid_records::save(record, file) {
        tracing::warn!(%error, "writing down a fast path after a change");
    }
}
