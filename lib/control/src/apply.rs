//! Carrying out a plan as one transaction.

use crate::action::Action;
use crate::congestion::Congestion;
use crate::group::Group;
use crate::health::Health;
use crate::inventory::{Inventory, Ways};
use crate::io::{IoModel, IoSettings};
use crate::model::{PortRef, Restart, Switch};
use crate::pool::Pools;
use crate::spec::{InstanceSpec, Resources, UplinkSpec};
use crate::stopwatch::Lap;
use crate::wake::Wake;
use crate::wiring::Destination;
use serde_json::Value;
use thiserror::Error;

/// Why the platform could not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlatformErrorKind {
    /// Something that it needs is not there, for example an interface.
    NotFound,
    /// Somebody else has it.
    Busy,
    /// Memory, ports or another resource ran out.
    Exhausted,
    /// The NF refused, for example a configuration.
    Refused,
    /// This kernel or machine cannot.
    Unsupported,
    /// None of the above.
    Failed,
}

/// Why an action failed, for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct PlatformError {
    /// What sort of failure.
    pub kind: PlatformErrorKind,
    /// What went wrong.
    pub message: String,
    /// What to do; empty if there is nothing to be done.
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
    /// Told the whole list before the first action, to allocate in bulk. Allocating here what
    /// [`Platform::finish`] then does not find used is fine.
    ///
    /// # Errors
    /// The plan cannot be carried out; nothing has been done.
    fn prepare(&mut self, _actions: &[Action]) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Told after the last action, or after the last one was undone.
    fn finish(&mut self) {}

    /// Makes a group of tenants, with nothing in it.
    ///
    /// # Errors
    /// No group was made.
    fn create_group(&mut self, name: &str, spec: &Group) -> Result<(), PlatformError>;

    /// Changes a group while its instances run, also which group it is in.
    ///
    /// # Errors
    /// The group is as before.
    fn change_group(&mut self, name: &str, new: &Group) -> Result<(), PlatformError>;

    /// Removes a group that nothing is in.
    ///
    /// # Errors
    /// The group is as before.
    fn remove_group(&mut self, name: &str) -> Result<(), PlatformError>;

    /// Makes a switch without ports.
    ///
    /// # Errors
    /// No switch was made.
    fn create_switch(&mut self, name: &str, spec: &Switch) -> Result<(), PlatformError>;

    /// Changes a switch; its ports and learned addresses stay.
    ///
    /// # Errors
    /// The switch is as before.
    fn update_switch(&mut self, name: &str, new: &Switch) -> Result<(), PlatformError>;

    /// Removes a switch that no port is on.
    ///
    /// # Errors
    /// The switch is as before.
    fn remove_switch(&mut self, name: &str) -> Result<(), PlatformError>;

    /// Makes an uplink; frames that its interface receives are dropped until it is wired.
    ///
    /// # Errors
    /// The interface is as before.
    fn create_uplink(&mut self, name: &str, spec: &UplinkSpec) -> Result<(), PlatformError>;

    /// Removes an uplink and everything that was done to its interface.
    ///
    /// # Errors
    /// The uplink is as before.
    fn remove_uplink(&mut self, name: &str) -> Result<(), PlatformError>;

    /// Makes and starts an instance; frames that it sends are dropped until its ports are wired.
    ///
    /// # Errors
    /// There is no such instance.
    fn create_instance(&mut self, name: &str, spec: &InstanceSpec) -> Result<(), PlatformError>;

    /// Puts another instance in the place of one, whose ports are not wired. The new one may be
    /// started before the old one is stopped.
    ///
    /// # Errors
    /// The old one runs as before.
    fn replace_instance(
        &mut self,
        name: &str,
        old: &InstanceSpec,
        new: &InstanceSpec,
    ) -> Result<(), PlatformError>;

    /// Puts another instance in the place of one, on the same ports, which stay wired: no frame is lost. See
    /// [`crate::plan::is_handed_over`].
    ///
    /// # Errors
    /// The old one runs as before.
    fn upgrade_instance(
        &mut self,
        name: &str,
        old: &InstanceSpec,
        new: &InstanceSpec,
    ) -> Result<(), PlatformError>;

    /// Hands a running NF a new configuration.
    ///
    /// # Errors
    /// The old configuration is in force.
    fn reconfigure(&mut self, name: &str, config: &Value) -> Result<(), PlatformError>;

    /// Changes what a running instance may use.
    ///
    /// # Errors
    /// The old limits are in force.
    fn resize(&mut self, name: &str, resources: &Resources) -> Result<(), PlatformError>;

    /// Changes what happens when an instance ends.
    ///
    /// # Errors
    /// The old policy is in force.
    fn set_restart(&mut self, name: &str, restart: &Restart) -> Result<(), PlatformError>;

    /// Changes when a running instance that sleeps is woken; absent: for each frame.
    ///
    /// # Errors
    /// It is as before.
    fn set_wake(&mut self, name: &str, wake: Option<Wake>) -> Result<(), PlatformError>;

    /// Changes how a running instance is looked after; absent: not at all.
    ///
    /// # Errors
    /// It is as before.
    fn set_health(&mut self, name: &str, health: Option<&Health>) -> Result<(), PlatformError>;

    /// Changes the place of a fast path among those of its interfaces: each packet meets them in the old order or in the new one.
    ///
    /// # Errors
    /// They are in the old one.
    fn set_order(&mut self, name: &str, order: Option<u16>) -> Result<(), PlatformError>;

    /// Changes who executes the switch for a running instance, which is not stopped for that and loses
    /// no frame.
    ///
    /// # Errors
    /// It is as before.
    fn set_io(&mut self, name: &str, model: IoModel) -> Result<(), PlatformError>;

    /// Changes how I/O threads are, those that run and those to come.
    ///
    /// # Errors
    /// They are as before.
    fn set_io_settings(&mut self, settings: &IoSettings) -> Result<(), PlatformError>;

    /// Changes who is told of congestion, and how.
    ///
    /// # Errors
    /// It is as before.
    fn set_congestion(&mut self, congestion: &Congestion) -> Result<(), PlatformError>;

    /// Changes which chains are watched for an instance that holds up those before it.
    ///
    /// # Errors
    /// They are as before.
    fn set_ways(&mut self, ways: &Ways) -> Result<(), PlatformError>;

    /// Changes which prepared instances are kept. They are made, or taken down, in the background.
    ///
    /// # Errors
    /// It is as before.
    fn set_pools(&mut self, pools: &Pools) -> Result<(), PlatformError>;

    /// Divides the flows of an instance among `new` of its members instead of `old`; all of them run.
    ///
    /// # Errors
    /// They are divided as before.
    fn scale(&mut self, name: &str, old: u16, new: u16) -> Result<(), PlatformError>;

    /// Stops and removes an instance that nothing is wired to.
    ///
    /// # Errors
    /// It runs as before.
    fn remove_instance(&mut self, name: &str) -> Result<(), PlatformError>;

    /// Sends the frames of a port elsewhere, or nowhere. From one frame to the next: none is lost
    /// and none goes to both.
    ///
    /// # Errors
    /// They go where they went before.
    fn wire(&mut self, port: &PortRef, to: Option<&Destination>) -> Result<(), PlatformError>;

    /// What it has done since it was asked last, as far as it measures that.
    fn laps(&mut self) -> Vec<Lap> {
        Vec::new()
    }
}

/// Carries out one action.
///
/// # Errors
/// What the platform says; nothing has changed.
pub fn perform<P: Platform + ?Sized>(
    platform: &mut P,
    action: &Action,
) -> Result<(), PlatformError> {
    match action {
        Action::CreateGroup { name, spec } => platform.create_group(name, spec),
        Action::ChangeGroup { name, new, .. } => platform.change_group(name, new),
        Action::RemoveGroup { name, .. } => platform.remove_group(name),
        Action::CreateSwitch { name, spec } => platform.create_switch(name, spec),
        Action::UpdateSwitch { name, new, .. } => platform.update_switch(name, new),
        Action::RemoveSwitch { name, .. } => platform.remove_switch(name),
        Action::CreateUplink { name, spec } => platform.create_uplink(name, spec),
        Action::RemoveUplink { name, .. } => platform.remove_uplink(name),
        Action::CreateInstance { name, spec } => platform.create_instance(name, spec),
        Action::ReplaceInstance { name, old, new } => platform.replace_instance(name, old, new),
        Action::UpgradeInstance { name, old, new } => platform.upgrade_instance(name, old, new),
        Action::Reconfigure { name, new, .. } => platform.reconfigure(name, new),
        Action::Resize { name, new, .. } => platform.resize(name, new),
        Action::SetRestart { name, new, .. } => platform.set_restart(name, new),
        Action::SetWake { name, new, .. } => platform.set_wake(name, *new),
        Action::SetHealth { name, new, .. } => platform.set_health(name, new.as_ref()),
        Action::SetOrder { name, new, .. } => platform.set_order(name, *new),
        Action::SetIo { name, new, .. } => platform.set_io(name, *new),
        Action::SetIoSettings { new, .. } => platform.set_io_settings(new),
        Action::SetCongestion { new, .. } => platform.set_congestion(new),
        Action::SetWays { new, .. } => platform.set_ways(new),
        Action::SetPools { new, .. } => platform.set_pools(new),
        Action::Scale { name, old, new } => platform.scale(name, *old, *new),
        Action::RemoveInstance { name, .. } => platform.remove_instance(name),
        Action::Wire { port, new, .. } => platform.wire(port, new.as_ref()),
    }
}

/// A plan that failed.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("cannot {action}: {cause}")]
pub struct ApplyError {
    /// The action that failed, in words.
    pub action: String,
    /// Why.
    pub cause: PlatformError,
    /// What could not be undone, in words; empty: everything is as before.
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

/// Goes on after a step that cannot be undone: the more of the old state returns, the better.
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
