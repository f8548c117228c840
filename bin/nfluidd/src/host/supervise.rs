//! Watching instances and uplinks: what ends is reclaimed at once, and started again as its policy
//! says.

use super::instance::{exit_of, supervisor_time};
use super::{Host, Shared, lock};
use nfluid_api::types::{EventKind, InstanceState, Kind};
use nfluid_control::supervise::{Decision, Exit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How often the list of instances is looked at anew, when nothing ends and nothing is due.
const LOOK: Duration = Duration::from_millis(200);
/// How often aged addresses are removed.
const SWEEP: Duration = Duration::from_secs(5);

/// Supervises the host's instances; never returns.
pub fn run(host: &Shared) -> ! {
    let mut last_sweep = Instant::now();
    loop {
        let (pidfds, wait) = lock(host).watched();
        let mut fds: Vec<PollFd<'_>> = pidfds
            .iter()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec::try_from(wait).unwrap_or_default();
        // Interrupted or not: look.
        let _ = poll(&mut fds, Some(&timeout));
        let mut host = lock(host);
        host.bury_the_dead();
        host.start_what_is_due();
        host.watch_uplinks();
        if last_sweep.elapsed() > SWEEP {
            last_sweep = Instant::now();
            if let Err(error) = host.switch.fdb_sweep() {
                tracing::warn!(%error, "removing aged addresses");
            }
        }
    }
}

impl Host {
    /// Descriptors that become readable when an instance ends, and how long to wait at most.
    fn watched(&self) -> (Vec<OwnedFd>, Duration) {
        let now = supervisor_time(self.started);
        let due = self
            .instances
            .values()
            .filter_map(|running| running.supervisor.due_at());
        let (uplinks, uplink_due) = self.watched_uplinks();
        let wait = due
            .chain(uplink_due)
            .map(|at| Duration::from_millis(at.0.saturating_sub(now.0)))
            .min();
        let processes = self
            .instances
            .values()
            .filter_map(|running| running.process.as_ref());
        let pidfds = processes
            .filter_map(|process| process.as_fd().try_clone_to_owned().ok())
            .chain(uplinks)
            .collect();
        (
            pidfds,
            wait.unwrap_or(LOOK).clamp(Duration::from_millis(1), LOOK),
        )
    }

    fn bury_the_dead(&mut self) {
        let ended: Vec<_> = self
            .instances
            .iter()
            .filter_map(|(name, running)| {
                let ended = running.process.as_ref()?.try_wait().ok()??;
                Some((name.clone(), ended))
            })
            .collect();
        for (name, ended) in ended {
            self.bury(&name, &ended.to_string(), exit_of(ended));
        }
    }

    /// Reclaims the ports of an instance that has ended, and asks its policy.
    fn bury(&mut self, name: &str, how: &str, exit: Exit) {
        let time = supervisor_time(self.started);
        let Some(running) = self.instances.get_mut(name) else {
            return;
        };
        running.process = None;
        running.last_exit = Some(how.to_owned());
        // Whatever it had started is gone as well: it was process 1 of its pid namespace. Its cgroup
        // must not be told to kill: Linux 6.15 and newer then kill whatever is cloned into it later.
        let lost = self.switch.reclaim(&running.memory);
        let decision = running.supervisor.ended(time, exit);
        running.state = match decision {
            Decision::RestartAt(_) => InstanceState::Waiting,
            Decision::Stop => InstanceState::Stopped,
            Decision::GiveUp { .. } => InstanceState::Failed,
        };
        let kind = if exit == Exit::Success {
            EventKind::Exited
        } else {
            EventKind::Crashed
        };
        let lost = match lost {
            Ok(frames) => format!("{frames} frames lost in its rings"),
            Err(error) => format!("reclaiming its ports failed: {error}"),
        };
        let message = match decision {
            Decision::RestartAt(at) => {
                format!("{how}; {lost}; again in {} ms", at.0.saturating_sub(time.0))
            }
            Decision::Stop => format!("{how}; {lost}; its policy asks for no restart"),
            Decision::GiveUp { restarts } => {
                format!("{how}; {lost}; given up after {restarts} restarts")
            }
        };
        self.event(kind, Some((Kind::Instance, name)), message);
        if matches!(decision, Decision::GiveUp { .. }) {
            self.event(
                EventKind::CrashLoop,
                Some((Kind::Instance, name)),
                "no more restarts",
            );
        }
    }

    fn start_what_is_due(&mut self) {
        let now = supervisor_time(self.started);
        let due = self
            .instances
            .iter()
            .filter(|(_, running)| running.supervisor.is_due(now));
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            match self.start_again(&name) {
                Ok(()) => self.event(
                    EventKind::Started,
                    Some((Kind::Instance, &name)),
                    "runs again",
                ),
                Err(error) => self.bury(
                    &name,
                    &format!("could not be started: {error:#}"),
                    Exit::Failure,
                ),
            }
        }
    }
}
