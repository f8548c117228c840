//! Settings of an instance and of the platform that change at run time.
//!
//! A setting of an instance has a variant of [`Setting`], a line in [`settings`], [`Setting::put`] and its words. The planner,
//! the transaction and its undoing know no setting by name.

use crate::congestion::Congestion;
use crate::health::Health;
use crate::inventory::{Inventory, Ways};
use crate::io::{IoModel, IoSettings};
use crate::levels::Levels;
use crate::model::Restart;
use crate::pool::Pools;
use crate::spec::{InstanceSpec, Resources};
use crate::wake::{self, Wake};
use serde_json::Value;
use std::fmt;
use std::mem::discriminant;

/// A setting of an instance that changes while the instance runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// The resources that the instance may use.
    Resources(Box<Resources>),
    /// The configuration of the NF.
    Config(Value),
    /// The restart policy.
    Restart(Restart),
    /// The condition on which the sleeping instance is woken; absent: each frame.
    Wake(Option<Wake>),
    /// The health check; absent: none.
    Health(Option<Health>),
    /// The thread that runs the switch for the instance's frames.
    Io(IoModel),
}

/// All settings of an instance, in the order in which they are changed.
pub fn settings(spec: &InstanceSpec) -> Vec<Setting> {
    vec![
        Setting::Resources(Box::new(spec.resources.clone())),
        Setting::Config(spec.config.clone()),
        Setting::Restart(spec.restart),
        Setting::Wake(spec.wake),
        Setting::Health(spec.health.clone()),
        Setting::Io(spec.io),
    ]
}

/// The settings that differ, each as it is and as it shall be.
pub fn changed(old: &InstanceSpec, new: &InstanceSpec) -> Vec<(Setting, Setting)> {
    // Most instances are as they shall be: their configurations are compared where they are.
    if old == new {
        return Vec::new();
    }
    let pairs = settings(old).into_iter().zip(settings(new));
    pairs.filter(|(old, new)| old != new).collect()
}

impl Setting {
    /// Gives an instance this setting.
    pub fn put(&self, spec: &mut InstanceSpec) {
        match self.clone() {
            Setting::Resources(resources) => spec.resources = *resources,
            Setting::Config(config) => spec.config = config,
            Setting::Restart(restart) => spec.restart = restart,
            Setting::Wake(wake) => spec.wake = wake,
            Setting::Health(health) => spec.health = health,
            Setting::Io(io) => spec.io = io,
        }
    }

    /// Returns true if an instance has this setting.
    pub fn is_of(&self, spec: &InstanceSpec) -> bool {
        settings(spec).contains(self)
    }

    /// The same setting as an instance has it.
    pub fn as_in(&self, spec: &InstanceSpec) -> Setting {
        let mut all = settings(spec).into_iter();
        let same = all.find(|other| discriminant(other) == discriminant(self));
        same.unwrap_or_else(|| self.clone())
    }

    /// The change of the instance `name` to this setting, in words. `old` is the setting as it was.
    pub fn describe(&self, f: &mut fmt::Formatter<'_>, name: &str, old: &Setting) -> fmt::Result {
        match (old, self) {
            (_, Setting::Resources(_)) => write!(f, "resize instance {name}"),
            (_, Setting::Config(_)) => write!(f, "reconfigure instance {name}"),
            (_, Setting::Restart(_)) => write!(f, "change restart policy of {name}"),
            (_, Setting::Wake(new)) => write!(f, "wake instance {name} {}", wake::words(*new)),
            (_, Setting::Health(Some(health))) => {
                write!(f, "check the health of instance {name} {health}")
            }
            (_, Setting::Health(None)) => {
                write!(f, "check the health of instance {name} no more")
            }
            (Setting::Io(old), Setting::Io(new)) => {
                write!(f, "move I/O of instance {name} from {old} to {new}")
            }
            (_, Setting::Io(new)) => write!(f, "move I/O of instance {name} to {new}"),
        }
    }
}

/// A setting of the whole platform.
#[derive(Clone, Debug, PartialEq)]
pub enum PlatformSetting {
    /// The settings of all I/O threads, running and future.
    Io(IoSettings),
    /// The congestion signals and their receivers.
    Congestion(Congestion),
    /// The order of the instances in each chain: a later instance may hold up all before it.
    Ways(Ways),
    /// The pools of prepared instances.
    Pools(Pools),
    /// Frames that the uplinks let in.
    Levels(Levels),
}

impl PlatformSetting {
    /// Gives an inventory this setting.
    pub fn put(&self, inventory: &mut Inventory) {
        match self.clone() {
            PlatformSetting::Io(settings) => inventory.io = settings,
            PlatformSetting::Congestion(congestion) => inventory.congestion = congestion,
            PlatformSetting::Ways(ways) => inventory.ways = ways,
            PlatformSetting::Pools(pools) => inventory.pools = pools,
            PlatformSetting::Levels(levels) => inventory.levels = levels,
        }
    }

    /// The same setting as an inventory has it.
    pub fn as_in(&self, inventory: &Inventory) -> PlatformSetting {
        match self {
            PlatformSetting::Io(_) => PlatformSetting::Io(inventory.io.clone()),
            PlatformSetting::Congestion(_) => {
                PlatformSetting::Congestion(inventory.congestion.clone())
            }
            PlatformSetting::Ways(_) => PlatformSetting::Ways(inventory.ways.clone()),
            PlatformSetting::Pools(_) => PlatformSetting::Pools(inventory.pools.clone()),
            PlatformSetting::Levels(_) => PlatformSetting::Levels(inventory.levels.clone()),
        }
    }
}

impl fmt::Display for PlatformSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PlatformSetting::Io(_) => "change settings of I/O threads",
            PlatformSetting::Congestion(_) => "change congestion signals",
            PlatformSetting::Ways(_) => "watch chains for congestion",
            PlatformSetting::Pools(_) => "change the pools of shells",
            PlatformSetting::Levels(_) => "change which frames uplinks let in",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{changed, settings};
    use crate::io::IoModel;
    use crate::model::{Program, Restart, RestartPolicy};
    use crate::quantity::Bytes;
    use crate::spec::InstanceSpec;
    use crate::tier::Tier;

    fn spec() -> InstanceSpec {
        let nf = "bridge".to_owned();
        InstanceSpec::bare(Program::BuiltIn { nf }, Tier::PROCESS)
    }

    #[test]
    fn what_has_changed_is_found_and_leads_from_one_to_the_other() {
        let old = spec();
        assert_eq!(changed(&old, &old), []);
        let mut new = spec();
        new.resources.memory = Bytes::mib(64);
        new.config = serde_json::json!({"rules": []});
        new.restart = Restart {
            policy: RestartPolicy::Never,
            ..Restart::default()
        };
        new.io = IoModel::Split;
        let mut reached = old.clone();
        let steps = changed(&old, &new);
        assert_eq!(steps.len(), 4);
        for (before, after) in steps {
            assert!(before.is_of(&reached) && !after.is_of(&reached));
            assert_eq!(after.as_in(&reached), before);
            after.put(&mut reached);
        }
        assert_eq!(reached, new);
    }

    #[test]
    fn putting_all_settings_of_one_into_another_makes_no_difference_in_settings() {
        let mut other = spec();
        other.io = IoModel::Merge;
        let mut one = spec();
        for setting in settings(&other) {
            setting.put(&mut one);
        }
        assert_eq!(settings(&one), settings(&other));
    }
}
