//! What an XDP network function is to this room: an entry of the catalogue, a configuration, and a function at work.
//!
//! A function has one folder (`efw`, `elb`, `edpi`, `guard`), each with the same files: `config.rs` reads the configuration,
//! `mod.rs` implements [`FastFunction`], `figures.rs` says what the function has done. What a function has beside these is its
//! own business. Nothing outside of that folder knows the function by name, but the catalogue ([`crate::catalogue`]).
//!
//! The room makes fast paths, attaches them to interfaces, keeps their records, and follows what they depend on. The function
//! has the program in the kernel, its tables, and what belongs to these.

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
    /// True if a slow path other than the kernel's stack can have what the function hands up ([`FastFunction::lead_to`]).
    pub has_slow_path: bool,
    /// Checks whether the function has a form for the hooks and directions where it is asked for.
    pub check_attach: fn(&Attach) -> Result<(), NfAttachError>,
    /// Reads a configuration, and refuses it with the key that is wrong. A configuration that was left out is `{}`.
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
    /// The slow path, if that is one of its own.
    pub slow: Option<&'a Slow>,
}

/// A configuration that has been read.
pub trait FunctionConfig: Send {
    /// Returns the sizes of the tables, which stay as they are while the function is there.
    fn sizes(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Gives what is entered into tables of the kernel its numbers there. What has numbers keeps them.
    ///
    /// # Errors
    /// When there is more than the tables have room for.
    fn number(&self, _numbers: &mut Numbers) -> anyhow::Result<()> {
        Ok(())
    }

    /// Checks whether the host of these interfaces goes along with it.
    ///
    /// # Errors
    /// When the host does not; the remedy is in the error.
    fn check_host(&self, _places: &[Place]) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Loads the function, on the tables that are pinned, if they are.
    ///
    /// # Errors
    /// When the kernel refuses, or the pinned tables are of another version.
    fn load(
        &self,
        site: &Site<'_>,
        numbers: &mut Numbers,
    ) -> Result<Box<dyn FastFunction>, PlatformError>;

    /// Makes the function without what it reads of the host: programs of an earlier daemon go on until that can be read.
    /// `None`: the function reads nothing of the host.
    fn load_unread(&self, _site: &Site<'_>) -> Option<Box<dyn FastFunction>> {
        None
    }
}

/// A function at work.
///
/// All methods are called under the lock of [`FastPaths`](crate::FastPaths).
pub trait FastFunction: Send {
    /// Returns true if the function changes packets, or sends some.
    fn rewrites(&self) -> bool {
        true
    }

    /// Returns true if the function has a form for tc.
    fn has_tc_form(&self) -> bool {
        true
    }

    /// Returns the program for the interface of this number in the specification. `before_senders`: a function behind it
    /// sends on what it lets pass.
    ///
    /// # Errors
    /// When the kernel refuses, or the function has no form for the hook.
    fn member(
        &mut self,
        hook: Hook,
        number: usize,
        before_senders: bool,
    ) -> Result<Member, PlatformError>;

    /// Begins, after it was loaded for a new instance and before it is attached.
    ///
    /// # Errors
    /// Why it cannot; the instance is not made.
    fn begin(&mut self, _context: &mut Context<'_>) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Takes over what an earlier daemon has left beside the tables. `kept`: the tables are those of the earlier daemon.
    fn adopt(&mut self, _context: &mut Context<'_>, _kept: bool) {}

    /// Puts another configuration in force. Returns the function that is to take the place of this one on the interfaces, if
    /// the change takes one.
    ///
    /// # Errors
    /// When the configuration is refused; the former one is in force.
    fn change(&mut self, config: &Value, context: &mut Context<'_>) -> Changed;

    /// Reads and enters everything anew: an operator's restart. Returns the same as [`FastFunction::change`].
    ///
    /// # Errors
    /// When that cannot be.
    fn restart(&mut self, context: &mut Context<'_>) -> Changed;

    /// Hands up to the slow path of the fast path's own, or to none, as the slow path says.
    fn lead_to(&self, _slow: &Entrance, _name: &str) {}

    /// Returns true if the function goes by the rules of the host, whose changes are followed.
    fn has_host_rules(&self) -> bool {
        false
    }

    /// Returns true if rules of the host could not be read the last time.
    fn has_unread_rules(&self) -> bool {
        false
    }

    /// Returns what reading the rules of the host anew needs. `sends_behind`: for each interface, whether a function behind
    /// this one sends on what it lets pass. `None`: the function does not go by rules.
    fn reading(&self, _site: &Site<'_>, _sends_behind: &[bool]) -> Option<Box<dyn Reading>> {
        None
    }

    /// Starts the threads that follow what the function depends on, and ends those that are not wanted any more. It is
    /// called again and again. The threads of a function end when it is dropped.
    fn follow(&mut self, _name: &str, _place: &Place, _waker: &Waker) {}

    /// Returns descriptors that become readable when [`FastFunction::look`] has something to see.
    fn descriptors(&self) -> Vec<OwnedFd> {
        Vec::new()
    }

    /// Looks at what has happened: to processes of the function, and what its threads have found.
    fn look(&mut self, _context: &mut Context<'_>) {}

    /// Returns true if the function has a process, which writes a log.
    fn has_process(&self) -> bool {
        false
    }

    /// Returns what the process has used, and how much memory it may take.
    fn usage(&self) -> (CgroupStats, Option<u64>) {
        (CgroupStats::default(), None)
    }

    /// Returns how packets have left, since the tables were made.
    fn exits(&self) -> Exits;

    /// Adds what only this function has to say of itself.
    fn add_status(&self, _record: &Record, _places: &[Place], _status: &mut FastPathStatus) {}

    /// Adds figures, by name with labels, beside those of its exits.
    fn add_metrics(
        &self,
        _record: &Record,
        _places: &[Place],
        _metrics: &mut BTreeMap<String, f64>,
    ) {
    }
}

/// What has become of a change: the function that takes the place of the former one, if the change takes one.
pub type Changed = Result<Option<Box<dyn FastFunction>>, PlatformError>;

/// Rules of the host on their way into the kernel. They are read and loaded without the lock.
pub trait Reading: Send {
    /// Reads the rules, and loads programs for the interfaces where they are others than before.
    ///
    /// # Errors
    /// When they cannot be read or loaded.
    fn read(&mut self) -> Result<(), PlatformError>;

    /// Returns true if the function has the same programs still as when the reading was made.
    fn is_current(&self) -> bool;

    /// Puts the program that was read for an interface and the function's own in the place of each other.
    fn exchange(&mut self, number: usize) -> Exchanged;
}

/// What [`Reading::exchange`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// Nothing: the rules are those that are in force.
    Nothing,
    /// The function has a program for the interface, and had none before.
    First,
    /// The function has another program. Exchanging once more puts the former one back.
    Other,
}

/// By which a thread of a function has [`FastFunction::look`] called.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    pub(crate) fn new(look: impl Fn() + Send + Sync + 'static) -> Self {
        Waker(Arc::new(look))
    }

    /// Has the function look. Not to be called by a method of the function: that has the lock.
    pub fn wake(&self) {
        (self.0)();
    }
}

/// What a function gets of the fast path that it belongs to.
pub struct Context<'a> {
    /// The instance.
    pub name: &'a str,
    /// Its interfaces.
    pub places: &'a [Place],
    /// The folder of its pins.
    pub pins: &'a Path,
    /// What is kept of it for a later daemon.
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

    /// Notes that the fast path is not as it should be, or is again.
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
