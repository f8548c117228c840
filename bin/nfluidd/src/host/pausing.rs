//! Instances that stand still, and what becomes of frames for them meanwhile.

use super::Host;
use super::errors::{one_of_several, refused};
use nfluid_api::types::{EventKind, InstanceState, Kind, PausedTraffic};
use nfluid_control::apply::no_instance;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_sandbox::cgroup::CgroupError;

fn not_done(why: CgroupError) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Failed, why.to_string())
}

impl Host {
    /// Stops an instance where it is, until [`Host::unpause`]; also beyond the daemon's end.
    ///
    /// # Errors
    /// It does not run, is paused already, or frames cannot be treated so; it is as before.
    pub fn pause(&mut self, name: &str, traffic: PausedTraffic) -> Result<(), PlatformError> {
        self.check_settled(name)?;
        if self.is_one_of_several(name) {
            return Err(one_of_several(name, "paused"));
        }
        let running = self.instances.get(name).ok_or_else(|| no_instance(name))?;
        if running.record.paused.is_some() {
            let remedy = format!("'nfluid unpause {name}' first, to treat frames otherwise");
            return Err(refused(
                format!("instance {name} is paused already"),
                &remedy,
            ));
        }
        if running.process.is_none() {
            let remedy = format!("'nfluid restart {name}' starts it");
            return Err(refused(format!("instance {name} does not run"), &remedy));
        }
        if traffic == PausedTraffic::Bypass {
            self.check_bypass(name)?;
        }
        if let Err(why) = self.stand_still(name, traffic) {
            self.let_go_on(name, traffic);
            return Err(why);
        }
        self.event(
            EventKind::Changed,
            Some((Kind::Instance, name)),
            format!("paused, traffic: {traffic}"),
        );
        Ok(())
    }

    /// Lets a paused instance go on, because somebody asks for that.
    ///
    /// # Errors
    /// It is not paused, cannot be let go, or may be another host's by now.
    pub fn unpause(&mut self, name: &str) -> Result<(), PlatformError> {
        self.check_settled(name)?;
        self.go_on(name)
    }

    /// Lets a paused instance go on.
    ///
    /// # Errors
    /// It is not paused, or cannot be let go.
    pub fn go_on(&mut self, name: &str) -> Result<(), PlatformError> {
        let running = self.instances.get(name).ok_or_else(|| no_instance(name))?;
        let Some(traffic) = running.record.paused else {
            return Err(refused(
                format!("instance {name} is not paused"),
                "'nfluid get instances' shows how instances are",
            ));
        };
        // First: one that stands still and is not written down as paused is let go by the next daemon, and once it runs it
        // may have this core for a while.
        self.forget_pause(name);
        if let Err(why) = self.thaw(name) {
            self.note_pause(name, Some(traffic))?;
            return Err(why);
        }
        self.resume(name, traffic);
        self.event(
            EventKind::Changed,
            Some((Kind::Instance, name)),
            "goes on after its pause",
        );
        Ok(())
    }

    /// Why nothing can be asked of an instance that stands still.
    ///
    /// # Errors
    /// It is paused.
    pub fn check_awake(&self, name: &str) -> Result<(), PlatformError> {
        match self.instances.get(name) {
            Some(running) if running.record.paused.is_some() => {
                let remedy = format!("'nfluid unpause {name}', and try again");
                Err(refused(format!("instance {name} is paused"), &remedy))
            }
            _ => Ok(()),
        }
    }

    /// Undoes a pause, as far as there is one: before the instance is ended, or after it has.
    pub(super) fn end_pause(&mut self, name: &str) {
        let running = self.instances.get(name);
        let Some(traffic) = running.and_then(|running| running.record.paused) else {
            return;
        };
        self.let_go_on(name, traffic);
    }

    /// Undoes a pause however far it has come.
    fn let_go_on(&mut self, name: &str, traffic: PausedTraffic) {
        if let Err(error) = self.thaw(name) {
            tracing::warn!(instance = name, %error, "thawing");
        }
        self.forget_pause(name);
        self.resume(name, traffic);
    }

    /// Writes down that there is no pause. Where that fails, the next daemon pauses the instance again.
    fn forget_pause(&mut self, name: &str) {
        if let Err(error) = self.note_pause(name, None) {
            tracing::warn!(instance = name, %error, "writing down that it goes on");
        }
    }

    /// It runs, and frames get to it.
    fn resume(&mut self, name: &str, traffic: PausedTraffic) {
        if let Some(running) = self.instances.get_mut(name)
            && running.state == InstanceState::Paused
        {
            running.state = InstanceState::Running;
        }
        if let Err(error) = self.resume_traffic(name, traffic) {
            tracing::warn!(instance = name, %error, "sending frames to it again");
        }
    }

    /// Takes over an instance as an earlier daemon has left it: paused, or, if that was killed between the two, standing
    /// still without anybody's having been told so.
    pub(super) fn adopt_pause(&mut self, name: &str) -> Result<(), PlatformError> {
        let running = self.instances.get(name).ok_or_else(|| no_instance(name))?;
        let Some(traffic) = running.record.paused else {
            return self.thaw(name);
        };
        if traffic == PausedTraffic::Bypass {
            // Its wires come later, and lead past it from the start.
            self.begin_bypass(name)?;
        } else {
            self.stop_traffic(name, traffic)?;
        }
        self.begin_freeze(name)?;
        self.await_frozen(name)
    }

    /// Everything that a pause is.
    fn stand_still(&mut self, name: &str, traffic: PausedTraffic) -> Result<(), PlatformError> {
        if traffic == PausedTraffic::Hold {
            // Until it stands still there is time to write it down.
            self.begin_freeze(name)?;
            self.note_pause(name, Some(traffic))?;
        } else {
            // What is done to ports and wires is undone by what was written down.
            self.note_pause(name, Some(traffic))?;
            self.stop_traffic(name, traffic)?;
            self.begin_freeze(name)?;
        }
        self.await_frozen(name)
    }

    fn begin_freeze(&self, name: &str) -> Result<(), PlatformError> {
        let running = self.instances.get(name).ok_or_else(|| no_instance(name))?;
        running.cgroup.begin_freeze().map_err(not_done)
    }

    fn await_frozen(&mut self, name: &str) -> Result<(), PlatformError> {
        let running = self.instances.get_mut(name);
        let running = running.ok_or_else(|| no_instance(name))?;
        running.cgroup.await_frozen().map_err(not_done)?;
        running.state = InstanceState::Paused;
        Ok(())
    }

    fn thaw(&self, name: &str) -> Result<(), PlatformError> {
        let running = self.instances.get(name).ok_or_else(|| no_instance(name))?;
        running.cgroup.thaw().map_err(not_done)
    }

    fn note_pause(
        &mut self,
        name: &str,
        traffic: Option<PausedTraffic>,
    ) -> Result<(), PlatformError> {
        let path = self.settings.paths.record(name);
        let running = self
            .instances
            .get_mut(name)
            .ok_or_else(|| no_instance(name))?;
        let before = std::mem::replace(&mut running.record.paused, traffic);
        nfluid_records::save(&running.record, &path).map_err(|error| {
            if traffic.is_some() {
                running.record.paused = before;
            }
            PlatformError::new(
                PlatformErrorKind::Failed,
                format!("writing down the instance: {error}"),
            )
        })
    }

    fn stop_traffic(&mut self, name: &str, traffic: PausedTraffic) -> Result<(), PlatformError> {
        match traffic {
            PausedTraffic::Hold => Ok(()),
            PausedTraffic::Drop => {
                self.set_ports_up(name, false);
                Ok(())
            }
            PausedTraffic::Bypass => self.begin_bypass(name),
        }
    }

    fn resume_traffic(&mut self, name: &str, traffic: PausedTraffic) -> Result<(), PlatformError> {
        match traffic {
            PausedTraffic::Hold => Ok(()),
            PausedTraffic::Drop => {
                let runs = self.instances.get(name);
                // One that has ended gets its ports back with its successor.
                if runs.is_some_and(|running| running.process.is_some()) {
                    self.set_ports_up(name, true);
                }
                Ok(())
            }
            PausedTraffic::Bypass => self.end_bypass(name),
        }
    }

    pub(super) fn set_ports_up(&self, name: &str, up: bool) {
        let running = self.instances.get(name);
        for part in running.iter().flat_map(|running| &running.memory.ports) {
            self.switch.set_up(part.spec.id, up);
        }
    }
}
