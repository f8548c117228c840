//! Fast paths that an earlier daemon has left.

use super::super::{Host, record, written};
use super::config::{Function, parse};
use super::pins::{link_pin, remove_pins, remove_tables};
use super::record::{Numbers, Record};
use super::{FastPath, Hold, Work, broken, function_of, places};
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::inventory::Inventory;
use nfluid_control::spec::InstanceSpec;
use nfluid_switch::uplink::PinnedProgram;
use serde_json::Value;
use std::time::Instant;

impl Host {
    /// Adopts the fast paths that an earlier daemon has left and that are desired, and removes the others. What their
    /// configuration and the rules are by now is put in force.
    pub(in crate::host) fn adopt_fast(&mut self, desired: &Inventory, present: &mut Inventory) {
        let names = record::names(&self.settings.paths.fast_records());
        // Before anybody is given one of them, or gives it back.
        for name in &names {
            let recorded = written::load::<Record>(&self.settings.paths.fast_record(name));
            if let Some(slow) = recorded.ok().and_then(|record| record.slow) {
                self.maker.numbers.users.mark(slow.user);
            }
        }
        for name in names {
            let wanted = desired.instances.get(&name);
            let adopted = match wanted.filter(|spec| spec.is_fast_path()) {
                Some(spec) => self.adopt_one_fast(&name, spec),
                None => Err(PlatformError::new(
                    PlatformErrorKind::NotFound,
                    "nobody wants it any more",
                )),
            };
            match (adopted, wanted) {
                (Ok(()), Some(spec)) => {
                    present.instances.insert(name.clone(), spec.clone());
                    self.tell_of_fast(&name, EventKind::Adopted, "taken over on");
                }
                (Err(why), _) => {
                    let message = format!("not taken over: {why}");
                    self.event(EventKind::Warning, Some((Kind::Instance, &name)), message);
                    if let Err(error) = self.clear_fast(&name) {
                        tracing::warn!(instance = name, %error, "removing what is left of it");
                    }
                }
                _ => {}
            }
        }
        self.remove_left_fast();
    }

    /// Pins without a record.
    fn remove_left_fast(&self) {
        let folder = self.settings.paths.fast_pins_of_all();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !self.fast.contains_key(&name)
                && let Err(error) = remove_pins(&entry.path())
            {
                tracing::warn!(instance = name, %error, "removing what is left of a fast path");
            }
        }
    }

    fn adopt_one_fast(&mut self, name: &str, spec: &InstanceSpec) -> Result<(), PlatformError> {
        let paths = &self.settings.paths;
        let (pins, file) = (paths.fast_pins(name), paths.fast_record(name));
        let mut record: Record = written::load(&file).map_err(broken)?;
        if !is_of_the_same_kind(&record.spec, spec) {
            let message = "it was made from another specification";
            return Err(PlatformError::new(PlatformErrorKind::Failed, message));
        }
        let function = function_of(spec)?;
        let places = places(spec);
        let holds: Vec<Hold> = places
            .iter()
            .enumerate()
            .map(|(number, place)| Hold {
                place: place.clone(),
                program: PinnedProgram::open(&link_pin(&pins, number)).ok(),
                mode: record.modes.get(number).cloned().unwrap_or_default(),
            })
            .collect();
        let mut problem = None;
        let mut kept = true;
        let work = match Work::load(&function, &places, &pins, &mut record) {
            Ok(work) => work,
            // The rules that it knows are in force meanwhile, and the kernel's are.
            Err(why) if function == Function::Firewall => {
                problem = Some(format!("the rules cannot be read: {why}"));
                Work::Firewall(places.iter().map(|_| None).collect())
            }
            Err(why) => {
                // Tables of another version: connections are lost, those of its successor begin.
                tracing::warn!(instance = name, "its tables cannot be used: {why}");
                remove_tables(&pins).map_err(broken)?;
                kept = false;
                record.numbers = Numbers::default();
                Work::load(&function, &places, &pins, &mut record)?
            }
        };
        for (number, hold) in holds.iter().enumerate() {
            if let Some(program) = work.program(number)? {
                hold.replace(&program)?;
            }
        }
        record.spec = serde_json::to_string(spec).map_err(broken)?;
        written::save(&record, &file).map_err(broken)?;
        let mut adopted = FastPath {
            spec: spec.clone(),
            record,
            work,
            holds,
            pins,
            problem,
            since: Instant::now(),
            restarts: 0,
        };
        adopted.adopt_slow(&self.maker, name, kept);
        self.fast.insert(name.to_owned(), adopted);
        self.hold_again(name);
        Ok(())
    }
}

/// Whether what was made can become what is asked for without being made anew.
fn is_of_the_same_kind(recorded: &str, spec: &InstanceSpec) -> bool {
    let without_config = |text: &str| {
        let mut value: Value = serde_json::from_str(text).ok()?;
        let config = value.get_mut("config").map(Value::take);
        let parsed = parse(spec.program.name(), &config.unwrap_or_default()).ok();
        let sizes = parsed.map(|function| function.sizes());
        Some((value, sizes))
    };
    let wanted = serde_json::to_string(spec);
    wanted.is_ok_and(|wanted| {
        let wanted = without_config(&wanted);
        wanted.is_some() && wanted == without_config(recorded)
    })
}
