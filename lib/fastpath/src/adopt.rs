//! Adopting the fast paths that an earlier daemon has left.

use super::catalogue::Catalogue;
use super::chain::{self, Attached, ChainRecord, InterfaceChain};
use super::error::broken;
use super::hold::LINK;
use super::pins::{link_pin, remove_pins, remove_tables};
use super::placement::places;
use super::record::{Numbers, Record};
use super::{FastPaths, Parts, site, slow_path};
use nfluid_api::types::EventKind;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::fast::Direction;
use nfluid_control::inventory::Inventory;
use nfluid_control::spec::InstanceSpec;
use serde_json::Value;
use std::path::Path;

impl FastPaths {
    /// Adopts the desired fast paths that an earlier daemon has left, and removes the others. Puts their present
    /// configuration and the host's present rules in force.
    pub fn adopt(&mut self, desired: &Inventory, present: &mut Inventory) {
        let is_wanted = |name: &str| {
            let spec = desired.instances.get(name);
            spec.filter(|spec| spec.is_fast_path())
        };
        let names = nfluid_records::names(&self.paths.records());
        // Users are marked before a new process takes one, or an old process frees one.
        for name in &names {
            let recorded = nfluid_records::load::<Record>(&self.paths.record(name));
            if let Some(slow) = recorded.ok().and_then(|record| record.slow) {
                self.processes.mark_user(slow.user);
            }
        }
        self.find_chains();
        for name in names {
            let adopted = match is_wanted(&name) {
                Some(spec) => self.adopt_one(&name, spec),
                None => Err(PlatformError::new(
                    PlatformErrorKind::NotFound,
                    "nobody wants it any more",
                )),
            };
            if let Err(why) = adopted {
                let message = format!("not taken over: {why}");
                self.event(EventKind::Warning, &name, message);
            }
        }
        for key in self.chains.keys().cloned().collect::<Vec<_>>() {
            self.adopt_chain(&key, |name| is_wanted(name).is_some());
        }
        for (name, spec) in &desired.instances {
            if self.instances.contains_key(name) {
                self.attach_again(name);
                present.instances.insert(name.clone(), spec.clone());
                self.report_places(name, EventKind::Adopted, "taken over on");
            }
        }
        self.remove_left_behind();
    }

    /// Finds the chains that have records.
    fn find_chains(&mut self) {
        for (file, record) in chain::recorded(&self.paths) {
            match record {
                Ok(record) => {
                    let chain = InterfaceChain::of(record, &self.paths);
                    self.chains.insert(chain.key(), chain);
                }
                Err(error) => {
                    tracing::warn!(%error, "{} is damaged", file.display());
                    let _left = std::fs::remove_file(file);
                }
            }
        }
    }

    /// Replaces the programs on an interface by programs of this daemon, if all fast paths of the chain have been
    /// adopted. Otherwise the former programs keep running until the missing fast paths are made.
    fn adopt_chain(&mut self, key: &str, is_wanted: impl Fn(&str) -> bool) {
        let Some(chain) = self.chains.get_mut(key) else {
            return;
        };
        let mut attached = chain.attached().to_vec();
        attached.retain(|one| is_wanted(&one.name));
        for one in &mut attached {
            match self.instances.get(&one.name) {
                Some(fast) => one.order = fast.spec.order(),
                None => one.reserved = true,
            }
        }
        let is_whole = !attached.iter().any(|one| one.reserved);
        let adopted = if attached.is_empty() {
            let ended = chain.remove();
            self.chains.remove(key);
            ended
        } else {
            let written = chain.set_attached(attached);
            let is_there = chain.is_attached();
            written.and_then(|()| match is_whole && is_there {
                true => self.renew_chain(key),
                false => Ok(()),
            })
        };
        if let Err(error) = adopted {
            tracing::warn!(%error, "what an earlier daemon has put on an interface goes on");
        }
    }

    /// Removes pins and records of fast paths and chains that were not adopted.
    fn remove_left_behind(&self) {
        let paths = &self.paths;
        for name in nfluid_records::names(&paths.records()) {
            if !self.instances.contains_key(&name)
                && let Err(error) = self.clear(&name)
            {
                tracing::warn!(instance = name, %error, "removing what is left of it");
            }
        }
        let is_known = |name: &str| self.instances.contains_key(name);
        remove_left(&paths.pins_of_all(), is_known);
        let is_known = |key: &str| self.chains.contains_key(key);
        remove_left(&paths.chain_pins_of_all(), is_known);
    }

    fn adopt_one(&mut self, name: &str, spec: &InstanceSpec) -> Result<(), PlatformError> {
        let paths = &self.paths;
        let (pins, file) = (paths.pins(name), paths.record(name));
        let mut record: Record = nfluid_records::load(&file).map_err(broken)?;
        if !is_of_the_same_kind(self.catalogue, &record.spec, spec) {
            let message = "it was made from another specification";
            return Err(PlatformError::new(PlatformErrorKind::Failed, message));
        }
        let config = self.catalogue.function_of(spec)?;
        let places = places(spec);
        self.move_old_holds(name, spec, &record);
        record.modes.clear();
        record.features.clear();
        config.number(&mut record.numbers).map_err(broken)?;
        nfluid_records::save(&record, &file).map_err(broken)?;
        // The reason why the host no longer supports the configuration.
        let mut problem = config.check_host(&places).err().map(|why| why.message);
        let mut kept = true;
        let slow = slow_path(spec, &pins)?;
        let site = site(spec, &places, &pins, slow.as_ref());
        let function = match config.load(&site, &mut record.numbers) {
            Ok(function) => function,
            Err(why) => match config.load_unread(&site) {
                // Meanwhile the programs of the earlier daemon keep running, and the kernel's rules stay in force.
                Some(function) => {
                    problem = Some(format!("the rules cannot be read: {why}"));
                    function
                }
                None => {
                    // The tables are of another version: connections are lost.
                    tracing::warn!(instance = name, "its tables cannot be used: {why}");
                    remove_tables(&pins).map_err(broken)?;
                    kept = false;
                    record.numbers = Numbers::default();
                    config.number(&mut record.numbers).map_err(broken)?;
                    nfluid_records::save(&record, &file).map_err(broken)?;
                    config.load(&site, &mut record.numbers)?
                }
            },
        };
        record.spec = serde_json::to_string(spec).map_err(broken)?;
        nfluid_records::save(&record, &file).map_err(broken)?;
        let loaded = Parts {
            record,
            function,
            slow,
            problem,
        };
        self.enter(name, spec, loaded);
        self.act(name, |function, context| function.adopt(context, kept));
        self.update_slow_path(name);
        Ok(())
    }

    /// Moves the holds of a daemon without chains: such a daemon pinned the hold beside the tables of an interface's
    /// only fast path.
    fn move_old_holds(&mut self, name: &str, spec: &InstanceSpec, record: &Record) {
        let paths = &self.paths;
        for (number, place) in places(spec).iter().enumerate() {
            let old = link_pin(&paths.pins(name), number);
            if !old.exists() {
                continue;
            }
            let found = ChainRecord {
                interface: place.interface.clone(),
                netns: place.netns.clone(),
                mode: record.modes.get(number).cloned().unwrap_or_default(),
                features: record.features.get(number).cloned().unwrap_or_default(),
                ..ChainRecord::default()
            };
            let key = InterfaceChain::key_of(place, Direction::Ingress);
            let pins = paths.chain_pins(&key);
            let moved =
                std::fs::create_dir(&pins).and_then(|()| std::fs::rename(&old, pins.join(LINK)));
            if let Err(error) = moved {
                tracing::warn!(instance = name, %error, "taking over its hold");
            }
            let mut chain = InterfaceChain::of(found, paths);
            let one = Attached {
                order: spec.order(),
                name: name.to_owned(),
                reserved: false,
            };
            if let Err(error) = chain.set_attached(vec![one]) {
                tracing::warn!(instance = name, %error, "writing down its hold");
            }
            self.chains.insert(key, chain);
        }
    }
}

/// Removes the folders of pins whose names are not known.
fn remove_left(folder: &Path, is_known: impl Fn(&str) -> bool) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !is_known(&name)
            && let Err(error) = remove_pins(&entry.path())
        {
            tracing::warn!(name, %error, "removing what is left of a fast path");
        }
    }
}

/// Returns true if the recorded fast path can become the specified one without being remade.
fn is_of_the_same_kind(catalogue: Catalogue, recorded: &str, spec: &InstanceSpec) -> bool {
    let without_config = |text: &str| {
        let mut value: Value = serde_json::from_str(text).ok()?;
        // A change of the order does not remake the fast path.
        if let Some(attach) = value.get_mut("attach").and_then(Value::as_object_mut) {
            attach.remove("order");
        }
        let config = value.get_mut("config").map(Value::take);
        let parsed = catalogue
            .parse(spec.program.name(), &config.unwrap_or_default())
            .ok();
        let sizes = parsed.map(|config| config.sizes());
        Some((value, sizes))
    };
    let wanted = serde_json::to_string(spec);
    wanted.is_ok_and(|wanted| {
        let wanted = without_config(&wanted);
        wanted.is_some() && wanted == without_config(recorded)
    })
}
