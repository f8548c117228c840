//! The table of the host's instances.

use crate::errors::refused;
use crate::running::{Running, supervisor_time};
use nfluid_api::types::ScaleReport;
use nfluid_control::apply::{PlatformError, no_instance};
use nfluid_control::members::Members;
use nfluid_control::quantity::Millis;
use nfluid_control::spec::InstanceSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

/// The way of an instance that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From another host to this host.
    Here,
    /// From this host to another host.
    Away,
    /// From this host to another host, which does not answer.
    Unsettled,
    /// Another host has the instance, and this host removes it.
    Gone,
}

/// The instances of a host, and the operations under way.
pub struct Instances {
    running: BTreeMap<String, Running>,
    /// Instances whose process has ended and was not started again.
    pub(crate) ended: BTreeSet<String>,
    /// For each instance, the instances that were given its doorbell when they started.
    doorbell_holders: BTreeMap<String, BTreeSet<String>>,
    /// Instances whose ports a successor is about to take over.
    pub(crate) upgrading: BTreeSet<String>,
    /// Instances that either of two hosts may have.
    pub(crate) moving: BTreeMap<String, Way>,
    /// Instances that may run elsewhere: their ports are closed as soon as they are created again.
    pub(crate) doubtful: BTreeSet<String>,
    /// Instances whose flows are divided among several members, with the number of members.
    pub members: Members,
    /// The instance of the last division of flows, and the report of the division.
    pub(crate) scaled: Option<(String, ScaleReport)>,
    /// Instances for which a violated guarantee was reported.
    pub(crate) violated_guarantees: BTreeSet<String>,
    /// The instance whose process was checked last.
    pub(crate) last_checked: String,
    started: Instant,
}

impl Default for Instances {
    fn default() -> Self {
        Instances {
            running: BTreeMap::new(),
            ended: BTreeSet::new(),
            doorbell_holders: BTreeMap::new(),
            upgrading: BTreeSet::new(),
            moving: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            members: Members::new(),
            scaled: None,
            violated_guarantees: BTreeSet::new(),
            last_checked: String::new(),
            started: Instant::now(),
        }
    }
}

impl Instances {
    /// Returns the time on the clock of the supervisors.
    pub fn now(&self) -> Millis {
        supervisor_time(self.started)
    }

    /// Returns the origin of the supervisors' clock.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Returns all instances by name.
    pub fn table(&self) -> &BTreeMap<String, Running> {
        &self.running
    }

    /// Returns an instance.
    pub fn get(&self, name: &str) -> Option<&Running> {
        self.running.get(name)
    }

    /// Returns an instance, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Running> {
        self.running.get_mut(name)
    }

    /// Returns an instance.
    ///
    /// # Errors
    /// No instance has this name.
    pub fn find(&self, name: &str) -> Result<&Running, PlatformError> {
        self.get(name).ok_or_else(|| no_instance(name))
    }

    /// Returns an instance, to be changed.
    ///
    /// # Errors
    /// No instance has this name.
    pub fn find_mut(&mut self, name: &str) -> Result<&mut Running, PlatformError> {
        self.get_mut(name).ok_or_else(|| no_instance(name))
    }

    /// Returns true if there is an instance of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.running.contains_key(name)
    }

    /// Returns all instances, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Running)> {
        self.running.iter()
    }

    /// Returns all instances by name, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&String, &mut Running)> {
        self.running.iter_mut()
    }

    /// Returns all instances, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Running> {
        self.running.values_mut()
    }

    /// Returns all instances.
    pub fn values(&self) -> impl Iterator<Item = &Running> {
        self.running.values()
    }

    /// Returns the socket on which an instance listens for the daemon.
    pub fn control(&self, name: &str) -> Option<PathBuf> {
        Some(self.get(name)?.workload.control().to_owned())
    }

    /// Adds a running instance.
    pub fn insert(&mut self, name: &str, running: Running) {
        self.note_doorbells(name, &running.record().doorbells);
        self.running.insert(name.to_owned(), running);
    }

    /// Removes an instance.
    pub fn remove(&mut self, name: &str) -> Option<Running> {
        let running = self.running.remove(name)?;
        self.ended.remove(name);
        for peer in running.record().doorbells.iter().flatten() {
            if let Some(holders) = self.doorbell_holders.get_mut(peer) {
                holders.remove(name);
                if holders.is_empty() {
                    self.doorbell_holders.remove(peer);
                }
            }
        }
        Some(running)
    }

    /// Records which doorbells an instance was given.
    pub(crate) fn note_doorbells(&mut self, name: &str, doorbells: &[Option<String>]) {
        for peer in doorbells.iter().flatten() {
            let holders = self.doorbell_holders.entry(peer.clone()).or_default();
            holders.insert(name.to_owned());
        }
    }

    /// Returns true if `holder` has the doorbell of `peer`, and `peer` was not removed since.
    pub(crate) fn holds_doorbell(&self, holder: &str, peer: &str) -> bool {
        let holders = self.doorbell_holders.get(peer);
        holders.is_some_and(|holders| holders.contains(holder))
    }

    /// Returns true if a running instance has the doorbell of this name.
    pub fn is_doorbell_held(&self, name: &str) -> bool {
        self.doorbell_holders.contains_key(name)
    }

    /// Notes that no running instance holds the doorbell of instance `name` any more: a later instance of that name
    /// has another doorbell.
    pub fn forget_doorbell(&mut self, name: &str) {
        for holder in self.doorbell_holders.remove(name).unwrap_or_default() {
            let Some(running) = self.running.get_mut(&holder) else {
                continue;
            };
            for doorbell in &mut running.workload.record_mut().doorbells {
                doorbell.take_if(|peer| peer == name);
            }
            if let Err(error) = running.workload.save_record() {
                tracing::warn!(instance = holder, %error, "writing down a doorbell that is gone");
            }
        }
    }

    /// Writes a change of an instance's specification to the record, and then makes the change.
    ///
    /// # Errors
    /// Another operation on the instance is under way, or the record cannot be written.
    pub fn change_spec(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut InstanceSpec),
    ) -> anyhow::Result<()> {
        self.check_settled(name)?;
        let running = self.find_mut(name)?;
        let mut spec = running.spec.clone();
        change(&mut spec);
        let text = serde_json::to_string(&spec)?;
        running
            .change_record(|record| record.spec = text)
            .map_err(|why| anyhow::Error::from(why).context("writing down the instance"))?;
        running.spec = spec;
        Ok(())
    }

    /// Checks that an instance is neither upgraded nor moved.
    ///
    /// # Errors
    /// An upgrade or a move is under way.
    pub fn check_settled(&self, name: &str) -> Result<(), PlatformError> {
        if self.is_moving(name) {
            return Err(refused(
                format!("instance {name} is being moved to or from another host"),
                "try again in a moment; 'nfluid events' reports a move that is not settled",
            ));
        }
        if self.upgrading.contains(name) {
            let message = format!("instance {name} is being upgraded");
            return Err(refused(message, "try again in a moment"));
        }
        Ok(())
    }

    /// Checks that an instance is not on its way to another host, which knows the instance as it was.
    ///
    /// # Errors
    /// The instance may be there already.
    pub fn check_stays(&self, name: &str) -> Result<(), PlatformError> {
        match self.moving.get(name) {
            Some(Way::Here) | None => Ok(()),
            Some(_) => self.check_settled(name),
        }
    }

    /// Returns the instances that are on their way to another host, or that this host has not removed yet.
    pub fn leaving(&self) -> impl Iterator<Item = &String> {
        let all = self.moving.iter();
        let leaving = all.filter(|(_, way)| matches!(way, Way::Away | Way::Gone));
        leaving.map(|(name, _)| name)
    }

    /// Checks that an instance can be removed.
    ///
    /// # Errors
    /// An upgrade or a move is under way.
    pub(crate) fn check_removable(&self, name: &str) -> Result<(), PlatformError> {
        match self.moving.get(name) {
            Some(Way::Gone) => Ok(()),
            _ => self.check_settled(name),
        }
    }

    /// Checks that an instance can answer: a paused instance does not.
    ///
    /// # Errors
    /// The instance is paused.
    pub fn check_awake(&self, name: &str) -> Result<(), PlatformError> {
        match self.get(name) {
            Some(running) if running.is_paused() => {
                let remedy = format!("'nfluid unpause {name}', and try again");
                Err(refused(format!("instance {name} is paused"), &remedy))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if either of two hosts may have the instance.
    pub fn is_moving(&self, name: &str) -> bool {
        self.moving.contains_key(name)
    }

    /// Returns true if an instance may run on another host.
    pub fn is_doubtful(&self, name: &str) -> bool {
        self.doubtful.contains(name)
    }
}
