//! The uplinks as they are, for the API.

use crate::Uplinks;
use crate::running::RunningUplink;
use nfluid_api::types::{Counters, PortState, UplinkStatus};
use nfluid_control::quantity::Mac;

impl Uplinks {
    /// Returns all uplinks. The caller fills in destination and counters.
    pub fn statuses(&self) -> Vec<UplinkStatus> {
        let all = self.running.iter();
        all.map(|(name, uplink)| self.status(name, uplink))
            .collect()
    }

    fn status(&self, name: &str, uplink: &RunningUplink) -> UplinkStatus {
        let (mode, mode_reason) = uplink.mode();
        let (pid, cpu_time) = uplink.process_use();
        let problem = uplink.problem();
        UplinkStatus {
            name: name.to_owned(),
            interface: uplink.spec.interface.clone(),
            netns: uplink.spec.netns.clone(),
            kind: uplink.kind().to_owned(),
            mode,
            mode_reason,
            state: match problem {
                None => PortState::Up,
                Some(_) => PortState::Down,
            },
            reason: problem,
            mac: Mac(uplink.mac()).to_string(),
            destination: String::new(),
            pid,
            cpu_seconds: cpu_time.map(|time| time.as_secs_f64()),
            steering: self.steering_status(uplink),
            counters: Counters::default(),
        }
    }
}
