//! Life of fast paths: made, changed, removed.

use super::super::{Host, written};
use super::config::Function;
use super::pins::{put_features_back, remove_pins};
use super::record::Record;
use super::splitting::Splitting;
use super::{FastPath, Hold, Work, broken, failed, function_of, mode, places, splittings};
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::spec::InstanceSpec;
use nfluid_switch::uplink::Place;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Instant;

/// What is needed to read a rule set anew without the host's lock.
pub struct Reading {
    places: Vec<Place>,
    pins: PathBuf,
    before: Vec<Option<u64>>,
}

impl Reading {
    /// Reads the rules, and loads programs for the interfaces where they are others than before.
    ///
    /// # Errors
    /// When they cannot be read or loaded.
    pub fn read(&self) -> Result<Vec<Option<Splitting>>, PlatformError> {
        splittings(&self.places, &self.pins, &self.before)
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
        for place in places(spec) {
            place.look().map_err(|error| failed(&error))?;
        }
        // Of one that could not be adopted, for example.
        self.clear_fast(name)?;
        match self.make_fast(name, spec, &function) {
            Ok(made) => {
                self.fast.insert(name.to_owned(), made);
                self.tell_of_fast(name, EventKind::Started, "runs on");
                Ok(())
            }
            Err(why) => {
                self.clear_fast(name)?;
                Err(why)
            }
        }
    }

    fn make_fast(
        &self,
        name: &str,
        spec: &InstanceSpec,
        function: &Function,
    ) -> Result<FastPath, PlatformError> {
        let mut record = Record::of(spec).map_err(broken)?;
        let pins = self.settings.paths.fast_pins(name);
        let file = self.settings.paths.fast_record(name);
        written::save(&record, &file).map_err(broken)?;
        std::fs::create_dir(&pins).map_err(broken)?;
        let work = Work::load(function, &places(spec), &pins, &mut record)?;
        let mut made = FastPath {
            spec: spec.clone(),
            record,
            work,
            holds: Vec::new(),
            pins,
            problem: None,
            since: Instant::now(),
            restarts: 0,
        };
        made.begin_slow(&self.maker, name, &file)?;
        let rewrites = made.work.rewrites();
        for (number, place) in places(spec).iter().enumerate() {
            let Some(program) = made.work.program(number)? else {
                continue;
            };
            let changed = place.prepare(rewrites);
            made.record
                .features
                .push(changed.map_err(|error| failed(&error))?);
            written::save(&made.record, &file).map_err(broken)?;
            let hold = Hold::take(place, &program, mode(spec), &made.pin(number))?;
            made.holds.push(hold);
        }
        made.record.modes = made.modes();
        written::save(&made.record, &file).map_err(broken)?;
        Ok(made)
    }

    /// Says where it is, and how.
    pub(super) fn tell_of_fast(&mut self, name: &str, kind: EventKind, what: &str) {
        let Some(fast) = self.fast.get(name) else {
            return;
        };
        let places = fast.holds.iter().map(|hold| {
            let (mode, why) = &hold.mode;
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(": {why}")
            };
            format!("{} ({mode}{why})", hold.place.interface)
        });
        let places: Vec<String> = places.collect();
        let message = format!("{} {what} {}", fast.spec.program.name(), places.join(", "));
        self.event(kind, Some((Kind::Instance, name)), message);
    }

    pub(in crate::host) fn remove_fast(&mut self, name: &str) -> Result<(), PlatformError> {
        self.clear_fast(name)?;
        self.fast.remove(name);
        Ok(())
    }

    /// Takes everything of a fast path off interfaces and out of the kernel: what is pinned says what there is.
    pub(super) fn clear_fast(&self, name: &str) -> Result<(), PlatformError> {
        self.clear_slow(name);
        let paths = &self.settings.paths;
        remove_pins(&paths.fast_pins(name)).map_err(broken)?;
        put_features_back(&paths.fast_record(name));
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
        let mut record = fast.record.clone();
        record.spec = serde_json::to_string(&spec).map_err(broken)?;
        if let (Work::Balancer(balancing), Function::Balancer(new)) = (&mut fast.work, &function) {
            if balancing.config().connections != new.connections {
                let message = "the table of connections cannot change its size while it is used";
                return Err(PlatformError::new(PlatformErrorKind::Refused, message)
                    .with_remedy("leave 'connections' as it was, or delete the instance first"));
            }
            balancing.change(new, &mut record.numbers).map_err(broken)?;
        }
        if let Function::Inspector(new) = &function {
            let changed = fast.change_inspector(&self.maker, name, new);
            record.slow.clone_from(&fast.record.slow);
            if changed.is_err() {
                written::save(&fast.record, &file).map_err(broken)?;
            }
            changed?;
        }
        written::save(&record, &file).map_err(broken)?;
        fast.record = record;
        fast.spec = spec;
        if matches!(fast.work, Work::Firewall(_)) {
            self.reread(name)?;
        }
        Ok(())
    }

    /// An operator's restart: everything is read and entered anew; packets go on.
    pub(in crate::host) fn restart_fast(&mut self, name: &str) -> Result<(), PlatformError> {
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
            }
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
        let prints = loaded.iter().map(|one| one.as_ref().map(Splitting::print));
        Some(Reading {
            places: places(&fast.spec),
            pins: fast.pins.clone(),
            before: prints.collect(),
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
        read: Vec<Option<Splitting>>,
    ) -> Result<bool, PlatformError> {
        let is_current = self
            .reading(name)
            .is_some_and(|now| now.before == reading.before);
        let Some(fast) = self.fast.get_mut(name).filter(|_| is_current) else {
            return Ok(false);
        };
        let Work::Firewall(loaded) = &mut fast.work else {
            return Ok(false);
        };
        let mut any = false;
        for (number, splitting) in read.into_iter().enumerate() {
            let Some(splitting) = splitting else { continue };
            let program = splitting.firewall.descriptor().map_err(broken)?;
            if let Some(hold) = fast.holds.get(number) {
                hold.replace(&program)?;
            }
            if let Some(place) = loaded.get_mut(number) {
                *place = Some(splitting);
                any = true;
            }
        }
        Ok(any)
    }

    /// Takes hold again of interfaces that have come back. Returns whether there was one.
    pub(in crate::host) fn hold_again(&mut self, name: &str) -> bool {
        let file = self.settings.paths.fast_record(name);
        let Some(fast) = self.fast.get_mut(name) else {
            return false;
        };
        let mut told = Vec::new();
        for number in 0..fast.holds.len() {
            let hold = &fast.holds[number];
            if hold.holds() {
                continue;
            }
            let place = hold.place.clone();
            if hold.program.is_some() {
                told.push((EventKind::Warning, format!("{} is gone", place.interface)));
            }
            let pin = fast.pin(number);
            if let Some(gone) = fast.holds[number].program.take() {
                let _gone_with_it = gone.remove();
            }
            let Ok(Some(program)) = fast.work.program(number) else {
                continue;
            };
            if place.look().is_err() {
                continue;
            }
            match place.prepare(fast.work.rewrites()) {
                Ok(changed) => fast.record.note_features(number, changed),
                Err(error) => tracing::warn!(instance = name, %error, "preparing the interface"),
            }
            match Hold::take(&place, &program, mode(&fast.spec), &pin) {
                Ok(hold) => {
                    told.push((EventKind::Started, format!("on {} again", place.interface)));
                    fast.holds[number] = hold;
                }
                Err(why) => fast.holds[number].mode.1 = why.message,
            }
        }
        if told.is_empty() {
            return false;
        }
        fast.record.modes = fast.modes();
        if let Err(error) = written::save(&fast.record, &file) {
            tracing::warn!(instance = name, %error, "writing down where it is");
        }
        let regained = told.iter().any(|(kind, _)| *kind == EventKind::Started);
        for (kind, message) in told {
            self.event(kind, Some((Kind::Instance, name)), message);
        }
        regained
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
        for name in std::mem::take(&mut self.fast).into_keys() {
            if let Err(error) = self.clear_fast(&name) {
                tracing::warn!(instance = name, %error, "removing a fast path");
            }
        }
    }
}
