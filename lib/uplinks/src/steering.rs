//! Classification by the NIC of an uplink (`steering: nic | hybrid`).
//!
//! The uplink's process configures the NIC and gives the queues to their ports; this module names the entries to be
//! steered. The queues are taken back before anything else changes: from then on XDP classifies every frame, whatever
//! becomes of the request.

use crate::Uplinks;
use crate::rules::rules;
use crate::running::RunningUplink;
use nfluid_api::types::{EventKind, SteeringStatus};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::model::Steering;
use nfluid_process::End;
use nfluid_process::uplink::{UplinkAnswer, UplinkOrder, UplinkProcess};
use nfluid_switch::Switch;
use nfluid_switch::classifier::Rule;
use nfluid_uplink::{Choice, Steered};
use nfluid_wiring::Entry;

/// Number of rules that are left to XDP, and the reason.
pub(crate) type Left = (u32, String);

impl Uplinks {
    /// Makes the NIC of the uplink `name` classify `entries`.
    ///
    /// # Errors
    /// With `steering: nic`, the NIC cannot classify some entries. The NIC then classifies `before` again.
    pub fn steer(
        &mut self,
        name: &str,
        entries: &[Entry],
        before: &[Entry],
    ) -> Result<(), PlatformError> {
        let Some(mode) = self.running.get(name).map(|running| running.spec.steering) else {
            return Ok(());
        };
        let left = self.steer_rules(name, &rules(entries))?;
        if left.0 == 0 {
            return Ok(());
        }
        let (count, why) = left;
        if mode == Steering::Hybrid {
            let message = format!("{count} rules are classified by XDP, not by the NIC: {why}");
            self.event(EventKind::Warning, name, message);
            return Ok(());
        }
        self.steer_rules(name, &rules(before))?;
        let message =
            format!("uplink '{name}': {count} rules cannot be left to the NIC alone: {why}");
        Err(
            PlatformError::new(PlatformErrorKind::Unsupported, message).with_remedy(
                "write 'steering: hybrid', so that XDP classifies the rest, or 'steering: xdp'",
            ),
        )
    }

    /// Makes the NIC of an uplink whose process was started again classify as many of `entries` as it can.
    pub fn steer_again(&mut self, name: &str, entries: &[Entry]) {
        let problem = match self.steer_rules(name, &rules(entries)) {
            Ok((0, _)) => return,
            Ok((_, why)) => why,
            Err(error) => error.to_string(),
        };
        let message = format!("not all is classified by the NIC: {problem}");
        self.event(EventKind::Warning, name, message);
    }

    fn steer_rules(&mut self, name: &str, rules: &[Rule]) -> Result<Left, PlatformError> {
        let Some(running) = self.running.get_mut(name) else {
            return Ok(Left::default());
        };
        let port = running.port_id();
        take_queues_back(&self.handles.switch, port)?;
        let choice = Choice::among(rules);
        let mut left = (choice.left as u32, choice.why);
        running.left = left.clone();
        let Some(process) = &running.process else {
            // The NIC is configured after the process has been started again.
            return Ok(left);
        };
        if choice.rules.is_empty() && !running.has_steered {
            return Ok(left);
        }
        let asked = choice.rules.len() as u32;
        running.has_steered = asked > 0;
        match process.order(UplinkOrder::Steer(choice.rules), &[]) {
            Ok(Ok(UplinkAnswer::Steered(steered))) => add(&mut left, steered.left, &steered.why),
            Ok(Ok(UplinkAnswer::Levels { .. })) => {}
            Ok(Err(why)) => add(&mut left, asked, &why),
            Err(error) => self.end_failed(name, &format!("{error:#}"))?,
        }
        Ok(left)
    }

    /// Ends a process that may have carried out a request in part. The next process begins anew.
    fn end_failed(&mut self, name: &str, why: &str) -> Result<(), PlatformError> {
        let Some(running) = self.running.get_mut(name) else {
            return Ok(());
        };
        let port = running.port_id();
        let process = running.process.take();
        if let Some(Err(error)) = process.map(|process: UplinkProcess| process.end(End::Leave)) {
            tracing::debug!(uplink = name, "ending its process: {error:#}");
        }
        take_queues_back(&self.handles.switch, port)?;
        self.note_failure(name, &format!("did not do what it was told: {why}"));
        Ok(())
    }

    /// Returns how the NIC of an uplink classifies; `None`: XDP classifies all frames.
    pub(crate) fn steering_status(&self, running: &RunningUplink) -> Option<SteeringStatus> {
        let mode = match running.spec.steering {
            Steering::Xdp => return None,
            Steering::Nic => "nic",
            Steering::Hybrid => "hybrid",
        };
        let status = running.process.as_ref().map(UplinkProcess::status);
        let steered: Steered = status
            .and_then(|status| status.steering)
            .unwrap_or_default();
        let mut left = running.left.clone();
        add(&mut left, steered.left, &steered.why);
        let port = running.port_id();
        let frames = self.handles.switch.steered_frames(port);
        let entered = self.handles.switch.counters(port).tx_frames;
        Some(SteeringStatus {
            mode: mode.to_owned(),
            queues: steered.queues.len() as u32,
            rules: steered.rules,
            flows: steered.flows,
            rules_by_xdp: left.0,
            reason: Some(left.1).filter(|why| !why.is_empty()),
            frames,
            frames_by_xdp: entered.saturating_sub(frames),
        })
    }
}

fn add(left: &mut Left, rules: u32, why: &str) {
    left.0 += rules;
    if left.1.is_empty() {
        why.clone_into(&mut left.1);
    }
}

/// Makes XDP classify all frames of a port.
fn take_queues_back(switch: &Switch, port: u32) -> Result<(), PlatformError> {
    let taken = switch.set_queues(port, &[]);
    taken.map_err(|error| PlatformError::new(PlatformErrorKind::Failed, error.to_string()))
}
