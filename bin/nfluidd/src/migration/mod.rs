//! Instances move between hosts (docs/adr/0021): over TLS, from the daemon that has one to a daemon that listens.
//!
//! | | source | target |
//! |---|---|---|
//! | before it stops | `hello`: specification, links, chains | makes all of it, its ports shut: `prepared` |
//! | | `rehearsal`: the state that it has now | takes it in and forgets it: the memory is there then: `rehearsed` |
//! | it stands still | `state` | takes it in: `ready` |
//! | | holds the instance for good: `go` | writes down that it has it, opens the ports: `started` |
//! | it runs there | hands on the frames that waited: `frames`; those were all: `announce`; and what still comes: `frames`, `end` | puts them into the rings; tells the network; all is on the disk: `kept` |
//! | | removes it: `done` | forgets the move |
//!
//! **Who has it**: before `go` the source, whatever happens; the target withdraws when the conversation ends. From then on the
//! target, if it has written so down. A source that does not hear `started` lets the instance stand still, asks the target
//! until it answers, and goes on if the answer is no: after that answer the move cannot be completed.

mod handing;
mod source;
mod target;

pub use source::settle_moves;
pub use target::listen;

use anyhow::Context;
use nfluid_control::model::Deployment;
use nfluid_control::state::{FileStore, Store};
use nfluid_migration::ledger::{self, Departure, Ledger};
use nfluid_migration::tls::{Files, Tls};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use target::Arriving;

/// What the daemon has for moving instances.
pub struct Migration {
    tls: Option<Tls>,
    ledger: Ledger,
    /// Moves of which it is not settled who has the instance, by its name.
    doubts: Mutex<BTreeMap<String, Departure>>,
    doubted: Condvar,
    /// Daemons that are known and call at the moment.
    conversing: Arc<AtomicUsize>,
    /// Moves to this host that are under way, by id.
    arriving: Mutex<BTreeMap<String, Arriving>>,
}

impl Migration {
    /// With the certificates in `files`, or none; what must not be forgotten is written to `folder`.
    ///
    /// # Errors
    /// A file is none, or the folder cannot be made.
    pub fn new(folder: PathBuf, files: Option<&Files>) -> anyhow::Result<Self> {
        let tls = files.map(Tls::load).transpose();
        Ok(Migration {
            tls: tls.context("the certificates for moving instances")?,
            ledger: Ledger::new(folder)?,
            doubts: Mutex::default(),
            doubted: Condvar::new(),
            conversing: Arc::default(),
            arriving: Mutex::default(),
        })
    }

    /// Removes from the desired state what has not arrived whole when an earlier daemon ended, before any of it is made.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn withdraw(&self, store: &mut FileStore) -> anyhow::Result<()> {
        let mut arrivals = self.ledger.arrivals();
        arrivals.retain(|arrival| !arrival.taken);
        if arrivals.is_empty() {
            return Ok(());
        }
        let mut desired = store.load()?.unwrap_or_default();
        for arrival in &arrivals {
            tracing::warn!(
                instance = arrival.name,
                "it had not arrived whole, and stays where it is"
            );
            remove(&mut desired, arrival);
        }
        store.stage(&desired)?;
        store.commit()?;
        for arrival in &arrivals {
            self.ledger.forget_arrival(&arrival.id);
        }
        Ok(())
    }

    /// Why the platform is not well: instances of which it is not settled who has them.
    pub fn problems(&self) -> Vec<String> {
        let problem = |doubt: &Departure| {
            let why = if doubt.is_damaged() {
                "whether it runs elsewhere is not known, as the record of its move is damaged"
                    .to_owned()
            } else {
                format!(
                    "whether it runs at {} is not known, as nobody answers there",
                    doubt.to
                )
            };
            format!(
                "instance {}: {why}; it stands still ('nfluid migrate {} --keep' lets it go on here)",
                doubt.name, doubt.name
            )
        };
        self.doubts().values().map(problem).collect()
    }

    fn doubts(&self) -> MutexGuard<'_, BTreeMap<String, Departure>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arriving(&self) -> MutexGuard<'_, BTreeMap<String, Arriving>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doubt(&self, departure: Departure) {
        self.doubts().insert(departure.name.clone(), departure);
        self.doubted.notify_all();
    }

    /// Waits until there are doubts.
    fn await_doubts(&self) -> Vec<Departure> {
        let mut doubts = self.doubts();
        while doubts.is_empty() {
            let waited = self.doubted.wait(doubts);
            doubts = waited.unwrap_or_else(PoisonError::into_inner);
        }
        doubts.values().cloned().collect()
    }
}

/// Removes all that an arrival has brought, as far as it is there and nobody else uses it.
fn remove(desired: &mut Deployment, arrival: &ledger::Arrival) {
    for chain in &arrival.chains {
        desired.chains.remove(chain);
    }
    let is_its = |port: &nfluid_control::model::PortRef| port.owner() == Some(&arrival.name);
    desired
        .links
        .retain(|link| !is_its(&link.0) && !is_its(&link.1));
    desired.instances.remove(&arrival.name);
    for flavor in &arrival.flavors {
        let mut instances = desired.instances.iter();
        if !instances.any(|(_, instance)| instance.flavor == *flavor) {
            desired.flavors.remove(flavor);
        }
    }
}
