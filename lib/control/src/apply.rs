//! Carrying out a plan as one transaction.

use crate::action::Action;
use crate::diff::Diff;
use crate::group::Group;
use crate::inventory::Inventory;
use crate::model::{PortRef, Switch};
use crate::setting::{PlatformSetting, Setting};
use crate::spec::{InstanceSpec, UplinkSpec};
use crate::stopwatch::Lap;
use crate::wiring::Destination;
use thiserror::Error;

/// The reason why the platform could not carry out an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlatformErrorKind {
    /// An object that the action needs does not exist, for example an interface.
    NotFound,
    /// Another party uses the object.
    Busy,
    /// Memory, ports or another resource ran out.
    Exhausted,
    /// The NF refused, for example a configuration.
    Refused,
    /// This kernel or machine does not support the action.
    Unsupported,
    /// None of the above.
    Failed,
}

/// The failure of an action, for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct PlatformError {
    /// The kind of failure.
    pub kind: PlatformErrorKind,
    /// The cause, in words.
    pub message: String,
    /// The operator's remedy; empty if there is none.
    pub remedy: String,
}

impl PlatformError {
    /// A failure without a remedy.
    pub fn new(kind: PlatformErrorKind, message: impl Into<String>) -> Self {
        PlatformError {
            kind,
            message: message.into(),
            remedy: String::new(),
        }
    }

    /// The same failure with a remedy.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

/// Returns the failure of an action on an instance that does not exist.
pub fn no_instance(name: &str) -> PlatformError {
    PlatformError::new(
        PlatformErrorKind::NotFound,
        format!("there is no instance {name}"),
    )
}

/// The actuator: carries out one action at a time on the real host.
///
/// A method that returns an error has changed nothing: it undoes its own halves. Names are those
/// of the deployment. Calls come from one thread at a time.
pub trait Platform {
    /// Announces the whole list before the first action, for allocations in bulk. Allocations that are unused at
    /// [`Platform::finish`] do no harm.
    ///
    /// # Errors
    /// The plan cannot be carried out; nothing has been done.
    fn prepare(&mut self, _actions: &[Action]) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Called after the last action, or after the last one was undone.
    fn finish(&mut self) {}

    /// Checks that an instance is not on its way to another host, which would not hear of a change.
    ///
    /// # Errors
    /// The instance may be there already.
    fn check_stays(&self, instance: &str) -> Result<(), PlatformError>;

    /// Returns the instances that are on their way to another host now. That host is told of an instance's links and chains once.
    fn leaving(&self) -> Vec<String>;

    /// Returns the number of CPUs, of which shares are parts.
    fn cpus(&self) -> usize;

    /// Takes the CPU share that all objects together need for guarantees to hold, in hundredths of a percent of a core. The
    /// controller calls this after each change.
    fn guarantee(&mut self, hundredths: u64);

    /// Creates an empty group of tenants, changes a group while its instances run, or removes an empty group.
    ///
    /// # Errors
    /// The group is as before.
    fn group(&mut self, change: &Diff<Group>) -> Result<(), PlatformError>;

    /// Creates a switch without ports, changes a switch - its ports and learned addresses stay -, or removes a switch
    /// without ports.
    ///
    /// # Errors
    /// The switch is as before.
    fn switch(&mut self, change: &Diff<Switch>) -> Result<(), PlatformError>;

    /// Creates an uplink - frames that its interface receives are dropped until it is wired -, or removes an uplink
    /// and all changes to its interface.
    ///
    /// # Errors
    /// The interface is as before.
    fn uplink(&mut self, change: &Diff<UplinkSpec>) -> Result<(), PlatformError>;

    /// Creates and starts an instance, removes an instance, or replaces one. Frames that a new instance sends are
    /// dropped until its ports are wired. An instance to be removed has no incoming wires. An instance to be replaced
    /// has no wires; the new one may be started before the old one is stopped.
    ///
    /// # Errors
    /// No such instance exists, or the old instance runs as before.
    fn instance(&mut self, change: &Diff<Box<InstanceSpec>>) -> Result<(), PlatformError>;

    /// Replaces an instance on the same ports, which stay wired: no frame is lost. See
    /// [`crate::plan::is_handed_over`].
    ///
    /// # Errors
    /// The old instance runs as before.
    fn upgrade(&mut self, name: &str, new: &InstanceSpec) -> Result<(), PlatformError>;

    /// Changes a setting of a running instance, without stopping it and without losing a frame.
    ///
    /// # Errors
    /// The old setting is in force.
    fn set(&mut self, name: &str, setting: &Setting) -> Result<(), PlatformError>;

    /// Changes the place of a fast path among those of its interfaces: each packet passes them in the old order or in
    /// the new one.
    ///
    /// # Errors
    /// The packets pass in the old order.
    fn set_order(&mut self, name: &str, order: Option<u16>) -> Result<(), PlatformError>;

    /// Changes a setting of the platform.
    ///
    /// # Errors
    /// The old setting is in force.
    fn set_platform(&mut self, setting: &PlatformSetting) -> Result<(), PlatformError>;

    /// Divides the flows of an instance among `new` of its members instead of `old`; all of them run.
    ///
    /// # Errors
    /// The flows are divided as before.
    fn scale(&mut self, name: &str, old: u16, new: u16) -> Result<(), PlatformError>;

    /// Waits until instances have passed on what was sent to them before, for a bounded time. One that does not pass on its
    /// frames keeps nobody from going on.
    ///
    /// # Errors
    /// It cannot be known whether frames are on their way.
    fn drain(&mut self, instances: &[String]) -> Result<(), PlatformError>;

    /// Changes the destination of a port's frames, from one frame to the next: no frame is lost, and none goes to
    /// both.
    ///
    /// # Errors
    /// The frames have their old destination.
    fn wire(&mut self, port: &PortRef, to: Option<&Destination>) -> Result<(), PlatformError>;

    /// Returns the steps since the last call, as far as the platform measures them.
    fn laps(&mut self) -> Vec<Lap> {
        Vec::new()
    }
}

/// Carries out one action.
///
/// # Errors
/// The platform's error; nothing has changed.
pub fn perform<P: Platform + ?Sized>(
    platform: &mut P,
    action: &Action,
) -> Result<(), PlatformError> {
    match action {
        Action::Group(change) => platform.group(change),
        Action::Switch(change) => platform.switch(change),
        Action::Uplink(change) => platform.uplink(change),
        Action::Instance(change) => platform.instance(change),
        Action::Upgrade { name, new, .. } => platform.upgrade(name, new),
        Action::Set { name, new, .. } => platform.set(name, new),
        Action::Order { name, new, .. } => platform.set_order(name, *new),
        Action::Platform { new, .. } => platform.set_platform(new),
        Action::Scale { name, old, new } => platform.scale(name, *old, *new),
        Action::Drain { instances } => platform.drain(instances),
        Action::Wire { port, new, .. } => platform.wire(port, new.as_ref()),
    }
}

/// A plan that failed.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("cannot {action}: {cause}")]
pub struct ApplyError {
    /// The action that failed, in words.
    pub action: String,
    /// The cause.
    pub cause: PlatformError,
    /// The actions that could not be undone, in words; empty: everything is as before.
    pub not_undone: Vec<String>,
}

/// Carries out all actions, or none: when one fails, those before it are undone, last first.
/// `present` follows what is done and undone.
///
/// # Errors
/// Names the action that failed, why, and what could not be undone.
pub fn execute<P: Platform + ?Sized>(
    platform: &mut P,
    actions: &[Action],
    present: &mut Inventory,
) -> Result<(), ApplyError> {
    if actions.is_empty() {
        return Ok(());
    }
    platform.prepare(actions).map_err(|cause| ApplyError {
        action: "prepare the changes".into(),
        cause,
        not_undone: Vec::new(),
    })?;
    let result = run(platform, actions, present);
    platform.finish();
    result
}

fn run<P: Platform + ?Sized>(
    platform: &mut P,
    actions: &[Action],
    present: &mut Inventory,
) -> Result<(), ApplyError> {
    for (done, action) in actions.iter().enumerate() {
        if let Err(cause) = perform(platform, action) {
            let before = actions.get(..done).unwrap_or_default();
            return Err(ApplyError {
                action: action.to_string(),
                cause,
                not_undone: undo(platform, before, present),
            });
        }
        present.record(action);
    }
    Ok(())
}

/// Undoes the actions. Goes on after a step that cannot be undone, to restore as much of the old state as possible.
fn undo<P: Platform + ?Sized>(
    platform: &mut P,
    actions: &[Action],
    present: &mut Inventory,
) -> Vec<String> {
    let mut not_undone = Vec::new();
    for action in actions.iter().rev() {
        let inverse = action.inverse();
        if !present.allows(&inverse) {
            not_undone.push(format!("cannot {inverse}: what was not undone needs it"));
            continue;
        }
        match perform(platform, &inverse) {
            Ok(()) => present.record(&inverse),
            Err(error) => not_undone.push(format!("cannot {inverse}: {error}")),
        }
    }
    not_undone
}
