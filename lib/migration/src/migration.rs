//! The moves of a daemon that are under way or not settled.

use crate::channel::Channel;
use crate::ledger::{Arrival, Departure, Ledger};
use crate::site::Instances;
use crate::tls::Tls;
use nfluid_control::model::{Deployment, PortRef};
use nfluid_control::state::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Connections to other daemons.
pub trait Connect: Send + Sync {
    /// Connects to the daemon at `to`, `HOST:PORT`.
    ///
    /// # Errors
    /// No daemon that is trusted answers there.
    fn connect(&self, to: &str) -> anyhow::Result<Channel>;
}

impl Connect for Tls {
    fn connect(&self, to: &str) -> anyhow::Result<Channel> {
        Tls::connect(self, to)
    }
}

/// The moves of a daemon.
pub struct Migration {
    /// Absent: the daemon has no certificate.
    pub(crate) connect: Option<Box<dyn Connect>>,
    pub(crate) ledger: Ledger,
    /// Moves from this host after which either host may have the instance, by its name.
    unsettled: Mutex<BTreeMap<String, Departure>>,
    /// Notified when there is one more.
    has_unsettled: Condvar,
    /// Conversations with daemons that have shown a certificate.
    pub(crate) conversations: Arc<AtomicUsize>,
    /// Moves to this host that are under way, by id.
    arriving: Mutex<BTreeMap<String, Arriving>>,
}

/// A move to this host before the instance is this host's.
#[derive(Clone, Debug)]
pub(crate) struct Arriving {
    /// The instance.
    pub name: String,
    /// The source was told that this move will not be completed.
    pub is_cancelled: bool,
}

/// Locks a table. A thread that panicked while it held the lock has left a table that is whole.
fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Migration {
    /// `folder`: where the moves are recorded that are not settled.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(folder: PathBuf, connect: Option<Box<dyn Connect>>) -> anyhow::Result<Self> {
        Ok(Migration {
            connect,
            ledger: Ledger::new(folder)?,
            unsettled: Mutex::default(),
            has_unsettled: Condvar::new(),
            conversations: Arc::default(),
            arriving: Mutex::default(),
        })
    }

    /// Removes from the desired state the arrivals that were not complete when an earlier daemon ended, before any of their
    /// objects is made.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn withdraw(&self, store: &mut impl Store) -> anyhow::Result<()> {
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

    /// Returns the instances that an earlier daemon may have moved away. To be asked before any instance is made.
    pub fn departed(&self) -> impl Iterator<Item = String> + use<> {
        let departures = self.ledger.departures().into_iter();
        departures.map(|departure| departure.name)
    }

    /// Recalls the moves that an earlier daemon has not settled. An instance that stood still for its move still does. An
    /// instance that was made since is another process: that instance is paused until it is known to be the only one.
    pub fn recall(&self, instances: &impl Instances) {
        for departure in self.ledger.departures() {
            let name = &departure.name;
            let process = instances.process_of(name);
            if process.is_some_and(|process| process != departure.process)
                && let Err(why) = instances.pause(name)
            {
                tracing::warn!(instance = name, %why, "pausing it until its move is settled");
            }
            instances.unsettle(name);
            self.add_unsettled(departure);
        }
        for arrival in self.ledger.arrivals() {
            instances.reopen_ports(&arrival.name);
        }
    }

    /// Returns why the platform is not well: the instances that either host may have.
    pub fn problems(&self) -> Vec<String> {
        let problem = |departure: &Departure| {
            let why = if departure.is_damaged() {
                "whether it runs elsewhere is not known, as the record of its move is damaged"
                    .to_owned()
            } else {
                format!(
                    "whether it runs at {} is not known, as nobody answers there",
                    departure.to
                )
            };
            format!(
                "instance {}: {why}; it stands still ('nfluid migrate {} --keep' lets it go on here)",
                departure.name, departure.name
            )
        };
        self.unsettled().values().map(problem).collect()
    }

    pub(crate) fn unsettled(&self) -> MutexGuard<'_, BTreeMap<String, Departure>> {
        lock(&self.unsettled)
    }

    pub(crate) fn arriving(&self) -> MutexGuard<'_, BTreeMap<String, Arriving>> {
        lock(&self.arriving)
    }

    pub(crate) fn add_unsettled(&self, departure: Departure) {
        self.unsettled().insert(departure.name.clone(), departure);
        self.has_unsettled.notify_all();
    }

    /// Waits until there are unsettled moves.
    pub(crate) fn await_unsettled(&self) -> Vec<Departure> {
        let mut unsettled = self.unsettled();
        while unsettled.is_empty() {
            let waited = self.has_unsettled.wait(unsettled);
            unsettled = waited.unwrap_or_else(PoisonError::into_inner);
        }
        unsettled.values().cloned().collect()
    }
}

/// Removes all objects that an arrival has brought, if they exist and no other object uses them.
fn remove(desired: &mut Deployment, arrival: &Arrival) {
    for chain in &arrival.chains {
        desired.chains.remove(chain);
    }
    let is_its = |port: &PortRef| port.owner() == Some(&arrival.name);
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
