//! `nf: efw`: the host's own rules, split, for each interface.

mod config;
mod figures;
mod rules;

use crate::figures::{Exits, named};
use crate::function::{Changed, Context, Entry, Exchanged, FastFunction, Reading, Site};
use crate::record::Record;
use crate::slow::Entrance;
use nfluid_api::types::FastPathStatus;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_evnf::chain::Member;
use nfluid_evnf::hook::Hook;
use nfluid_netdev::Place;
use rules::{Before, Common, Splitting, splittings};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The entry of the catalogue.
pub const ENTRY: Entry = Entry {
    name: "efw",
    has_slow_path: true,
    check_attach: |_| Ok(()),
    parse: |config| Ok(Box::new(config::parse(config)?)),
};

/// The host's rules, for each interface. Absent: the rules could not be read, and those that an earlier daemon has
/// loaded are in force.
///
/// A reading in progress shares them. The lock is taken after that of [`FastPaths`](crate::FastPaths), or without it,
/// and never held while rules are read.
#[derive(Clone)]
struct Loaded(Arc<Mutex<Vec<Option<Splitting>>>>);

impl Loaded {
    fn new(loaded: Vec<Option<Splitting>>) -> Self {
        Loaded(Arc::new(Mutex::new(loaded)))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Splitting>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the fingerprints of the programs, for each of `interfaces` interfaces.
    fn prints(&self, interfaces: usize) -> Vec<Option<u64>> {
        let loaded = self.lock();
        let print = |number: usize| Some(loaded.get(number)?.as_ref()?.print());
        (0..interfaces).map(print).collect()
    }
}

/// A running firewall.
struct Efw {
    loaded: Loaded,
}

impl Efw {
    fn load(site: &Site<'_>) -> Result<Self, PlatformError> {
        let common = Common::of(site.pins, site.slow);
        let loaded = splittings(site.places, site.hook, &common, &[])?;
        Ok(Efw {
            loaded: Loaded::new(loaded),
        })
    }

    /// Makes a firewall whose rules have not been read.
    fn unread(site: &Site<'_>) -> Self {
        Efw {
            loaded: Loaded::new(site.places.iter().map(|_| None).collect()),
        }
    }
}

impl FastFunction for Efw {
    fn rewrites(&self) -> bool {
        false
    }

    fn member(
        &mut self,
        hook: Hook,
        number: usize,
        before_senders: bool,
    ) -> Result<Member, PlatformError> {
        let unread = || {
            let message = "the host's rules could not be read";
            PlatformError::new(PlatformErrorKind::Failed, message)
        };
        let mut loaded = self.loaded.lock();
        let splitting = loaded.get_mut(number).and_then(Option::as_mut);
        splitting.ok_or_else(unread)?.member(hook, before_senders)
    }

    /// There is no configuration.
    fn change(&mut self, _: &Value, _: &mut Context<'_>) -> Changed {
        Ok(None)
    }

    fn restart(&mut self, _: &mut Context<'_>) -> Changed {
        self.loaded.lock().iter_mut().for_each(|one| *one = None);
        Ok(None)
    }

    fn lead_to(&self, slow: &Entrance, name: &str) {
        for splitting in self.loaded.lock().iter().flatten() {
            if let Err(error) = slow.lead(&splitting.firewall) {
                tracing::warn!(instance = name, %error, "leading to its slow path");
            }
        }
    }

    fn has_host_rules(&self) -> bool {
        true
    }

    fn has_unread_rules(&self) -> bool {
        self.loaded.lock().iter().any(Option::is_none)
    }

    fn reading(&self, site: &Site<'_>, sends_behind: &[bool]) -> Option<Box<dyn Reading>> {
        let prints = self.loaded.prints(site.places.len());
        let before = prints.into_iter().zip(sends_behind);
        let before = before.map(|(print, senders)| Before {
            print,
            senders: *senders,
        });
        Some(Box::new(RuleReading {
            loaded: self.loaded.clone(),
            places: site.places.to_vec(),
            hook: site.hook,
            common: Common::of(site.pins, site.slow),
            before: before.collect(),
            read: Vec::new(),
        }))
    }

    fn exits(&self) -> Exits {
        // The programs of all interfaces share the counters.
        let loaded = self.loaded.lock();
        let first = loaded.iter().flatten().next();
        let exits = first.and_then(|splitting| splitting.firewall.exits().ok());
        exits.map_or_else(Vec::new, |exits| named(exits, figures::verdict))
    }

    fn add_status(&self, _: &Record, places: &[Place], status: &mut FastPathStatus) {
        status.rules = Some(figures::rules(&self.loaded.lock(), places));
    }

    fn add_metrics(&self, _: &Record, places: &[Place], metrics: &mut BTreeMap<String, f64>) {
        figures::add_metrics(&figures::rules(&self.loaded.lock(), places), metrics);
    }
}

/// A reading of the rules that is being loaded into the kernel.
struct RuleReading {
    loaded: Loaded,
    places: Vec<Place>,
    hook: Hook,
    common: Common,
    before: Vec<Before>,
    /// For each interface: the rules that were read, if they differ; after an exchange the former rules.
    read: Vec<Option<Splitting>>,
}

impl Reading for RuleReading {
    fn read(&mut self) -> Result<(), PlatformError> {
        self.read = splittings(&self.places, self.hook, &self.common, &self.before)?;
        Ok(())
    }

    fn is_current(&self) -> bool {
        let prints = self.loaded.prints(self.places.len());
        let before = self.before.iter().map(|before| before.print);
        prints.into_iter().eq(before)
    }

    fn exchange(&mut self, number: usize) -> Exchanged {
        let mut loaded = self.loaded.lock();
        let (Some(fresh), Some(there)) = (self.read.get_mut(number), loaded.get_mut(number)) else {
            return Exchanged::Nothing;
        };
        if fresh.is_none() {
            return Exchanged::Nothing;
        }
        std::mem::swap(fresh, there);
        match fresh {
            Some(_former) => Exchanged::Other,
            None => Exchanged::First,
        }
    }
}
