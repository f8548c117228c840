//! Settings of instances and of the platform that a plan changes.

use super::Host;
use nfluid_control::apply::PlatformError;
use nfluid_control::frames::Levels;
use nfluid_control::setting::{PlatformSetting, Setting};
use nfluid_control::wake::Wake;
use nfluid_lifecycle::errors::failed;
use nfluid_lifecycle::limits;
use nfluid_lifecycle::services::Services as _;
use nfluid_ring::Level;

impl Host {
    /// Changes a setting of a running instance. `HostPlatform` changes the configuration of an NF, without the lock
    /// of the host.
    ///
    /// # Errors
    /// The setting is as before.
    pub(super) fn set(&mut self, name: &str, setting: &Setting) -> Result<(), PlatformError> {
        self.instances.find(name)?;
        let set = match setting {
            Setting::Resources(resources) => limits::resize(self, name, resources),
            Setting::Io(model) => {
                let set = self.io.change_model(&mut self.instances, name, *model);
                // A change that has failed may have started the threads.
                self.set_io_weights();
                set
            }
            Setting::Wake(wake) => self.set_wake(name, *wake),
            Setting::Restart(restart) => self.note_setting(name, setting).map(|()| {
                if let Some(running) = self.instances.get_mut(name) {
                    running.supervisor.set_restart(*restart);
                }
            }),
            // The threads that follow instances read the other settings from the specification.
            _ => self.note_setting(name, setting),
        };
        set.map_err(failed)
    }

    fn note_setting(&mut self, name: &str, setting: &Setting) -> anyhow::Result<()> {
        self.instances.change_spec(name, |spec| setting.put(spec))
    }

    fn set_wake(&mut self, name: &str, wake: Option<Wake>) -> anyhow::Result<()> {
        let running = self.instances.find(name)?;
        let old = running.spec.wake;
        let set = running.workload.set_wake(wake);
        let set = set.and_then(|()| self.note_setting(name, &Setting::Wake(wake)));
        if set.is_err()
            && let Some(running) = self.instances.get(name)
            && let Err(again) = running.workload.set_wake(old)
        {
            tracing::warn!(instance = name, "some ports keep the new wake: {again:#}");
        }
        set
    }

    /// Sets the frames that instances on a network stack of their own may send; no more than `at_most` says.
    pub(super) fn settle_stacks(&mut self, at_most: Option<&Levels>) {
        for (name, running) in self.instances.iter_mut() {
            if !running.spec.tier.capabilities().own_stack {
                continue;
            }
            let allowed = self.uplinks.level_of_stack(name);
            let level = match at_most.map(|levels| levels.of_stack(name)) {
                None => allowed,
                Some(None) => Level::Plain,
                Some(Some(most)) => allowed.min(Level::numbered(most.frames.number())),
            };
            if let Err(why) = running.workload.let_in(level) {
                tracing::warn!(instance = name, "its frames are not {level:?}: {why:#}");
            }
        }
    }

    /// Changes a setting of the platform.
    ///
    /// # Errors
    /// The setting is as before.
    pub(super) fn set_platform(&mut self, setting: &PlatformSetting) -> Result<(), PlatformError> {
        match setting {
            PlatformSetting::Io(settings) => self.io.change_settings(settings).map_err(failed)?,
            PlatformSetting::Congestion(congestion) => {
                let state = self.congestion();
                state.change_orders(|orders| orders.set_laws(congestion));
            }
            PlatformSetting::Ways(ways) => {
                let state = self.congestion();
                state.change_orders(|orders| orders.set_ways(ways));
            }
            // The shells that this ends are removed without the lock, by `HostPlatform`.
            PlatformSetting::Pools(pools) => self.maker.groups.plan_pools(pools),
            // A level that an uplink cannot have is reported as an event, and costs speed and nothing else.
            PlatformSetting::Levels(levels) => {
                // First nothing lets in what somebody will no longer take.
                self.settle_stacks(Some(levels));
                self.uplinks.set_levels(levels);
                self.settle_stacks(None);
            }
        }
        Ok(())
    }
}
