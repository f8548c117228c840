//! The uplinks as they are, for the API.

use crate::Uplinks;
use crate::running::RunningUplink;
use nfluid_api::types::{Counters, PortState, UplinkStatus};
use nfluid_control::quantity::Mac;
use nfluid_uplink::SLOT_SIZE;

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
        let path = uplink.path();
        let held_back = self.levels.why(name).map(str::to_owned);
        let own = path.as_ref().map(|path| path.levels_why.clone());
        let level = path.map_or(self.levels.of(name), |path| path.levels.enter);
        UplinkStatus {
            name: name.to_owned(),
            // The deployment says it.
            owner: None,
            interface: uplink.spec.interface.clone(),
            netns: uplink.spec.netns.clone(),
            kind: uplink.kind().to_owned(),
            mode,
            mode_reason,
            frames: level.name().to_owned(),
            frames_reason: held_back.or(own).filter(|why| !why.is_empty()),
            long_bytes: u64::from(uplink.spec.long) * SLOT_SIZE as u64,
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
