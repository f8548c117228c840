//! Interface between this crate and an XDP network function: an entry of the catalogue, a configuration, and a running
//! function.
//!
//! A function has one folder (`efw`, `elb`, `edpi`, `guard`), each with the same files: `config.rs` parses the
//! configuration, `mod.rs` implements [`FastFunction`], `figures.rs` has status and metrics. Further files are private
//! to the function. No code outside of that folder knows the function by name, except the catalogue
//! ([`crate::catalogue`]).
//!
//! This crate makes fast paths, attaches them to interfaces, keeps their records, and monitors what they depend on. The
//! function owns the program in the kernel, its tables, and what belongs to these.

use crate::figures::Exits;
use crate::processes::Processes;
use crate::record::{Numbers, Record};
use crate::slow::{Entrance, Slow};
use nfluid_api::types::{EventKind, FastPathStatus};
use nfluid_control::apply::PlatformError;
use nfluid_control::events::Events;
use nfluid_control::fast::Attach;
use nfluid_control::host::{NfAttachError, NfConfigError};
use nfluid_evnf::chain::Member;
use nfluid_evnf::hook::Hook;
use nfluid_netdev::Place;
use nfluid_sandbox::cgroup::CgroupStats;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// An entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name in a deployment: `nf: efw`.
    pub name: &'static str,
    /// True if packets that the function hands up can go to a slow path other than the kernel's stack
    /// ([`FastFunction::lead_to`]).
    pub has_slow_path: bool,
    /// Checks whether the function supports the hooks and directions of an attachment.
    pub check_attach: fn(&Attach) -> Result<(), NfAttachError>,
    /// Parses a configuration, or refuses it with the wrong key. A configuration that was left out is `{}`.
    pub parse: fn(&Value) -> Result<Box<dyn FunctionConfig>, NfConfigError>,
}

/// Where a function is loaded.
pub struct Site<'a> {
    /// The interfaces, all of one namespace.
    pub places: &'a [Place],
    /// The hook there.
    pub hook: Hook,
    /// The folder of pins of the fast path.
    pub pins: &'a Path,
    /// The slow path, if it is not the kernel's stack.
    pub slow: Option<&'a Slow>,
}

/// A parsed configuration.
pub trait FunctionConfig: Send {
    /// Returns the sizes of the tables, which are fixed for the function's life.
    fn sizes(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Assigns numbers to the entries of kernel tables. Entries with a number keep it.
    ///
    /// # Errors
    /// When there are more entries than the tables can hold.
    fn number(&self, _numbers: &mut Numbers) -> anyhow::Result<()> {
        Ok(())
    }

    /// Checks whether the host of these interfaces supports the configuration.
    ///
    /// # Errors
    /// When the host does not; the error has the remedy.
    fn check_host(&self, _places: &[Place]) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Loads the function, on the pinned tables if there are any.
    ///
    /// # Errors
    /// When the kernel refuses, or the pinned tables are of another version.
    fn load(
        &self,
        site: &Site<'_>,
        numbers: &mut Numbers,
    ) -> Result<Box<dyn FastFunction>, PlatformError>;

    /// Makes the function without the host's data (rules) that it depends on: programs of an earlier daemon keep
    /// running until the data can be read. `None`: the function needs no data of the host.
    fn load_unread(&self, _site: &Site<'_>) -> Option<Box<dyn FastFunction>> {
        None
    }
}

/// A running function.
///
/// All methods are called under the lock of [`FastPaths`](crate::FastPaths).
pub trait FastFunction: Send {
    /// Returns true if the function changes or sends packets.
    fn rewrites(&self) -> bool {
        true
    }

    /// Returns true if the function has a form for tc.
    fn has_tc_form(&self) -> bool {
        true
    }

    /// Returns the program for the interface of this number in the specification. `before_senders`: a function behind
    /// it forwards the packets that it passes.
    ///
    /// # Errors
    /// When the kernel refuses, or the function has no form for the hook.
    fn member(
        &mut self,
        hook: Hook,
        number: usize,
        before_senders: bool,
    ) -> Result<Member, PlatformError>;

    /// Begins, after the function was loaded for a new instance and before it is attached.
    ///
    /// # Errors
    /// The reason why it cannot; the instance is not made.
    fn begin(&mut self, _context: &mut Context<'_>) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Takes over the processes and records of an earlier daemon. `kept`: the tables are those of the earlier daemon.
    fn adopt(&mut self, _context: &mut Context<'_>, _kept: bool) {}

    /// Puts another configuration in force. Returns the function that replaces this one on the interfaces, if the
    /// change needs another function.
    ///
    /// # Errors
    /// When the configuration is refused; then the former one is in force.
    fn change(&mut self, config: &Value, context: &mut Context<'_>) -> Changed;

    /// Reads and enters everything anew, for an operator's restart. Returns the same as [`FastFunction::change`].
    ///
    /// # Errors
    /// When the restart fails.
    fn restart(&mut self, context: &mut Context<'_>) -> Changed;

    /// Hands packets up to the fast path's own slow path, or to none, according to the state of `slow`.
    fn lead_to(&self, _slow: &Entrance, _name: &str) {}

    /// Returns true if the function depends on the host's rules, whose changes are then monitored.
    fn has_host_rules(&self) -> bool {
        false
    }

    /// Returns true if the host's rules could not be read the last time.
    fn has_unread_rules(&self) -> bool {
        false
    }

    /// Returns a reading of the host's rules. `sends_behind`: for each interface, true if a function behind this one
    /// forwards the packets that it passes. `None`: the function does not depend on rules.
    fn reading(&self, _site: &Site<'_>, _sends_behind: &[bool]) -> Option<Box<dyn Reading>> {
        None
    }

    /// Starts the threads that monitor what the function depends on, and ends those that are no longer wanted. Called
    /// repeatedly. The threads of a function end when it is dropped.
    fn follow(&mut self, _name: &str, _place: &Place, _waker: &Waker) {}

    /// Returns descriptors that become readable when [`FastFunction::look`] has work.
    fn descriptors(&self) -> Vec<OwnedFd> {
        Vec::new()
    }

    /// Handles events of the function's processes, and findings of its threads.
    fn look(&mut self, _context: &mut Context<'_>) {}

    /// Returns true if the function has a process, which writes a log.
    fn has_process(&self) -> bool {
        false
    }

    /// Returns the resources that the process has used, and its memory limit.
    fn usage(&self) -> (CgroupStats, Option<u64>) {
        (CgroupStats::default(), None)
    }

    /// Returns the packets counted per exit since the tables were made.
    fn exits(&self) -> Exits;

    /// Adds the status that only this function has.
    fn add_status(&self, _record: &Record, _places: &[Place], _status: &mut FastPathStatus) {}

    /// Adds metrics other than exits, by name with labels.
    fn add_metrics(
        &self,
        _record: &Record,
        _places: &[Place],
        _metrics: &mut BTreeMap<String, f64>,
    ) {
    }
}

/// Result of a change: the function that replaces the former one, if the change needs another function.
pub type Changed = Result<Option<Box<dyn FastFunction>>, PlatformError>;

/// A reading of the host's rules, which are read and loaded without the lock.
pub trait Reading: Send {
    /// Reads the rules, and loads programs for the interfaces whose rules differ.
    ///
    /// # Errors
    /// When the rules cannot be read or loaded.
    fn read(&mut self) -> Result<(), PlatformError>;

    /// Returns true if the function still has the programs that it had when the reading was made.
    fn is_current(&self) -> bool;

    /// Swaps the program that was read for an interface and the function's own.
    fn exchange(&mut self, number: usize) -> Exchanged;
}

/// Result of [`Reading::exchange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// No change: the rules are already in force.
    Nothing,
    /// The function has its first program for the interface.
    First,
    /// The function has another program. A second exchange restores the former one.
    Other,
}

/// Handle by which a thread of a function triggers [`FastFunction::look`].
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    pub(crate) fn new(look: impl Fn() + Send + Sync + 'static) -> Self {
        Waker(Arc::new(look))
    }

    /// Triggers `look`. A method of the function must not call this: it holds the lock.
    pub fn wake(&self) {
        (self.0)();
    }
}

/// The parts of a fast path that its function may use.
pub struct Context<'a> {
    /// The instance.
    pub name: &'a str,
    /// Its interfaces.
    pub places: &'a [Place],
    /// The folder of its pins.
    pub pins: &'a Path,
    /// The record of the fast path for a later daemon.
    pub record: &'a mut Record,
    /// Starts and ends processes.
    pub processes: &'a dyn Processes,
    pub(crate) file: &'a Path,
    pub(crate) problem: &'a mut Option<String>,
    pub(crate) events: &'a dyn Events,
}

impl Context<'_> {
    /// Writes the record.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self) -> io::Result<()> {
        nfluid_records::save(self.record, self.file)
    }

    /// Writes the record. A failure is logged, with what was `done`.
    pub fn save_or_warn(&self, done: &str) {
        if let Err(error) = self.save() {
            tracing::warn!(instance = self.name, %error, "{done}");
        }
    }

    /// Reports an event.
    pub fn event(&self, kind: EventKind, message: impl Into<String>) {
        self.events.of_instance(kind, self.name, message.into());
    }

    /// Notes a problem of the fast path, or that it has ended.
    pub fn note_problem(&mut self, problem: Option<String>) {
        if *self.problem == problem {
            return;
        }
        self.problem.clone_from(&problem);
        let (kind, message) = match problem {
            Some(why) => (EventKind::Unhealthy, why),
            None => (EventKind::Healthy, "it is well again".to_owned()),
        };
        self.event(kind, message);
    }
}
