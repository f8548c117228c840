//! Classification by the NIC of an uplink (`steering: nic | hybrid`).
//!
//! The uplink's process tells the NIC and gives the queues to their ports; the daemon says what is to be steered. The
//! queues are taken back before anything else changes: from then on every frame is classified by XDP, as it would be
//! without all this, whatever becomes of the order.

use super::Host;
use super::errors::failed;
use super::uplinks::{RunningUplink, rules};
use nfluid_api::types::{EventKind, Kind, SteeringStatus};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::model::{PortRef, Steering};
use nfluid_process::End;
use nfluid_process::uplink::{UplinkOrder, UplinkProcess};
use nfluid_switch::classifier::Rule;
use nfluid_uplink::{Choice, Steered};
use nfluid_wiring::{Entry, Ports as _};

/// What is left to XDP, and why; empty: nothing.
type Left = (u32, String);

impl Host {
    /// Has the NIC of the uplink `name` classify `entries`.
    ///
    /// # Errors
    /// With `steering: nic` when there is something that it does not classify. The NIC classifies `before` again then.
    pub(super) fn steer(
        &mut self,
        name: &str,
        entries: &[Entry],
        before: &[Entry],
    ) -> Result<(), PlatformError> {
        let Some(mode) = self.uplinks.get(name).map(|running| running.spec.steering) else {
            return Ok(());
        };
        let left = self.steer_rules(name, &rules(entries))?;
        if left.0 == 0 {
            return Ok(());
        }
        let (count, why) = left;
        if mode == Steering::Hybrid {
            let message = format!("{count} rules are classified by XDP, not by the NIC: {why}");
            self.event(EventKind::Warning, Some((Kind::Uplink, name)), message);
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

    /// The same for an uplink whose process was started again: what can be steered is.
    pub(super) fn steer_again(&mut self, name: &str) {
        let to = self.wires.get(&PortRef::Uplink(name.to_owned()));
        if to.is_none() || !self.ports().steers(name) {
            return;
        }
        let entries = self.wires.entries(&self.ports(), to);
        let outcome = self.steer_rules(name, &rules(&entries));
        let problem = match outcome {
            Ok((0, _)) => return,
            Ok((_, why)) => why,
            Err(error) => error.to_string(),
        };
        let message = format!("not all is classified by the NIC: {problem}");
        self.event(EventKind::Warning, Some((Kind::Uplink, name)), message);
    }

    fn steer_rules(&mut self, name: &str, rules: &[Rule]) -> Result<Left, PlatformError> {
        let Some(running) = self.uplinks.get_mut(name) else {
            return Ok(Left::default());
        };
        let port = running.port_id();
        self.switch.set_queues(port, &[]).map_err(failed)?;
        let choice = Choice::among(rules);
        let mut left = (choice.left as u32, choice.why);
        running.left = left.clone();
        let Some(process) = &running.process else {
            // Steered when it has been started again.
            return Ok(left);
        };
        if choice.rules.is_empty() && !running.steers {
            return Ok(left);
        }
        let asked = choice.rules.len() as u32;
        running.steers = asked > 0;
        match process.order(UplinkOrder::Steer(choice.rules), &[]) {
            Ok(Ok(steered)) => add(&mut left, steered.left, &steered.why),
            Ok(Err(why)) => add(&mut left, asked, &why),
            Err(error) => self.end_disobedient(name, &format!("{error:#}"))?,
        }
        Ok(left)
    }

    /// Ends a process of which it is not known what it has done: its successor begins anew.
    fn end_disobedient(&mut self, name: &str, why: &str) -> Result<(), PlatformError> {
        let Some(running) = self.uplinks.get_mut(name) else {
            return Ok(());
        };
        let port = running.port_id();
        let process = running.process.take();
        if let Some(Err(error)) = process.map(|process: UplinkProcess| process.end(End::Leave)) {
            tracing::debug!(uplink = name, "ending its process: {error:#}");
        }
        self.switch.set_queues(port, &[]).map_err(failed)?;
        self.uplink_failed_at(name, &format!("did not do what it was told: {why}"));
        Ok(())
    }

    /// What an uplink's NIC classifies; `None`: it is not asked to.
    pub(super) fn steering_status(&self, running: &RunningUplink) -> Option<SteeringStatus> {
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
        let frames = self.switch.steered_frames(port);
        let entered = self.switch.counters(port).tx_frames;
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
