//! Creating, changing and removing fast paths.

use super::error::{broken, failed};
use super::function::{Changed, FunctionConfig};
use super::pins::remove_pins;
use super::placement::places;
use super::record::Record;
use super::{FastPaths, Parts, site, slow_path};
use nfluid_api::types::EventKind;
use nfluid_control::apply::{PlatformError, PlatformErrorKind, no_instance};
use nfluid_control::spec::InstanceSpec;
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

impl FastPaths {
    /// Makes a fast path, and attaches it to its interfaces.
    ///
    /// # Errors
    /// When the fast path cannot be made. Then everything is unchanged; a position that was reserved for it stays
    /// reserved.
    pub fn create(&mut self, name: &str, spec: &InstanceSpec) -> Result<(), PlatformError> {
        let config = self.catalogue.function_of(spec)?;
        let places = places(spec);
        for place in &places {
            place.look().map_err(|error| failed(&error))?;
        }
        config.check_host(&places)?;
        // Left by a fast path that could not be adopted, for example.
        self.clear(name)?;
        let has_positions = !self.chains_of(name).is_empty();
        match self.make(name, spec, &*config) {
            Ok(()) => {
                self.release_reserved(name);
                self.report_places(name, EventKind::Started, "runs on");
                Ok(())
            }
            Err(why) => {
                if has_positions {
                    self.reserve(name)?;
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
        config: &dyn FunctionConfig,
    ) -> Result<(), PlatformError> {
        let mut record = Record::of(spec).map_err(broken)?;
        let pins = self.paths.pins(name);
        let file = self.paths.record(name);
        config.number(&mut record.numbers).map_err(broken)?;
        nfluid_records::save(&record, &file).map_err(broken)?;
        std::fs::create_dir(&pins).map_err(broken)?;
        let slow = slow_path(spec, &pins)?;
        let places = places(spec);
        let site = site(spec, &places, &pins, slow.as_ref());
        let function = config.load(&site, &mut record.numbers)?;
        let loaded = Parts {
            record,
            function,
            slow,
            problem: None,
        };
        self.enter(name, spec, loaded);
        let begun = self.act(name, |function, context| function.begin(context));
        begun.unwrap_or(Ok(()))?;
        self.update_slow_path(name);
        places
            .iter()
            .try_for_each(|place| self.attach_to(name, place, spec.order()))
    }

    /// Reports the interfaces of a fast path, and its mode there.
    pub(super) fn report_places(&mut self, name: &str, kind: EventKind, what: &str) {
        let Some(fast) = self.instances.get(name) else {
            return;
        };
        let chains = places(&fast.spec).into_iter();
        let chains = chains.filter_map(|place| self.chains.get(&self.key_at(name, &place)));
        let places = chains.map(|chain| {
            let (mode, why) = chain.mode();
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(": {why}")
            };
            format!("{} ({mode}{why})", chain.place().interface)
        });
        let places: Vec<String> = places.collect();
        let message = format!("{} {what} {}", fast.spec.program.name(), places.join(", "));
        self.event(kind, name, message);
    }

    /// Detaches a fast path from its interfaces and removes it.
    ///
    /// # Errors
    /// When the fast path cannot be removed.
    pub fn remove(&mut self, name: &str) -> Result<(), PlatformError> {
        // Interfaces first: the next daemon finds a program on an interface only by its tables.
        self.detach(name)?;
        self.clear(name)?;
        self.instances.remove(name);
        Ok(())
    }

    /// Ends the process of a slow path by its record, and frees the process's resources.
    fn clear_process(&self, name: &str) {
        let recorded = nfluid_records::load::<Record>(&self.paths.record(name));
        let Some(mut process) = recorded.ok().and_then(|record| record.slow) else {
            return;
        };
        process.end(&*self.processes, name);
        self.processes.remove(name);
        self.processes.free_user(process.user);
    }

    /// Removes all objects of a fast path from the kernel, by its pins.
    pub(super) fn clear(&self, name: &str) -> Result<(), PlatformError> {
        self.clear_process(name);
        let paths = &self.paths;
        remove_pins(&paths.pins(name)).map_err(broken)?;
        match std::fs::remove_file(paths.record(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(broken(error)),
            _ => Ok(()),
        }
    }

    /// Changes the configuration of a fast path.
    ///
    /// # Errors
    /// When the configuration is refused; then the former one is in force.
    pub fn reconfigure(&mut self, name: &str, config: &Value) -> Result<(), PlatformError> {
        let file = self.paths.record(name);
        let Some(fast) = self.instances.get_mut(name) else {
            return Err(no_instance(name));
        };
        let before = fast.spec.clone();
        let spec = InstanceSpec {
            config: config.clone(),
            ..before.clone()
        };
        let new = self.catalogue.function_of(&spec)?;
        if self.catalogue.function_of(&before)?.sizes() != new.sizes() {
            let message = "a table cannot change its size while it is used";
            return Err(
                PlatformError::new(PlatformErrorKind::Refused, message).with_remedy(
                    "leave the sizes of tables as they were, or delete the instance first",
                ),
            );
        }
        // The record has the old and the new numbers before a table has the new ones: a daemon that starts after a
        // crash assigns no number twice.
        let mut record = fast.record.clone();
        record.spec = serde_json::to_string(&spec).map_err(broken)?;
        new.number(&mut record.numbers).map_err(broken)?;
        nfluid_records::save(&record, &file).map_err(broken)?;
        let former = std::mem::replace(&mut fast.record, record);
        let config = self.catalogue.read(config);
        let changed = self.act(name, |function, context| function.change(&config, context));
        let changed = self.replace_function(name, changed);
        if let Some(fast) = self.instances.get_mut(name) {
            match changed {
                Ok(()) => fast.spec = spec,
                Err(_) => fast.record.spec = former.spec,
            }
            note(&fast.record, &file);
        }
        changed?;
        self.reread(name)
    }

    /// Replaces the function of a fast path, if a change has made another function.
    ///
    /// # Errors
    /// The error of the change, or that of an interface. Then the former function is in place.
    fn replace_function(
        &mut self,
        name: &str,
        changed: Option<Changed>,
    ) -> Result<(), PlatformError> {
        let Some(successor) = changed.transpose()?.flatten() else {
            return Ok(());
        };
        let Some(fast) = self.instances.get_mut(name) else {
            return Ok(());
        };
        let places = places(&fast.spec);
        let former = std::mem::replace(&mut fast.function, successor);
        fast.problem = None;
        let renew = |paths: &mut Self| {
            let mut places = places.iter();
            places.try_for_each(|place| paths.renew_member(name, place))
        };
        renew(self).inspect_err(|_| {
            if let Some(fast) = self.instances.get_mut(name) {
                fast.function = former;
            }
            if let Err(error) = renew(self) {
                tracing::warn!(instance = name, %error, "going back to the limits before");
            }
        })
    }

    /// Records the order of a fast path among others.
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

    /// Restarts a fast path for an operator: everything is read and entered anew. Packets continue to flow.
    ///
    /// # Errors
    /// When the configuration or the rules cannot be put in force again.
    pub fn restart(&mut self, name: &str) -> Result<(), PlatformError> {
        if let Some(fast) = self.instances.get_mut(name) {
            fast.restarts += 1;
            fast.problem = None;
            fast.since = Instant::now();
        }
        let restarted = self.act(name, |function, context| function.restart(context));
        self.replace_function(name, restarted)?;
        self.reread(name)?;
        self.attach_again(name);
        self.report_places(name, EventKind::Restarting, "reads everything anew, on");
        Ok(())
    }

    /// Removes all fast paths at an orderly end of the daemon. The next daemon makes them again.
    pub fn close(&mut self) {
        for mut chain in std::mem::take(&mut self.chains).into_values() {
            if let Err(error) = chain.remove() {
                tracing::warn!(interface = chain.place().interface, %error, "leaving an interface");
            }
        }
        for name in std::mem::take(&mut self.instances).into_keys() {
            if let Err(error) = self.clear(&name) {
                tracing::warn!(instance = name, %error, "removing a fast path");
            }
        }
    }
}

/// Writes a record after a change. A failure is only logged: the record from before the change holds more numbers than
/// are in use, which does no harm.
fn note(record: &Record, file: &Path) {
    if let Err(error) = nfluid_records::save(record, file) {
        tracing::warn!(%error, "writing down a fast path after a change");
    }
}
