//! Watching instances and uplinks: what ends is reclaimed at once, and started again as its policy
//! says.

use super::{Host, Shared, lock, placing};
use nfluid_api::types::{EventKind, InstanceState, Kind};
use nfluid_control::supervise::{Decision, Exit};
use nfluid_instance::doorbell;
use nfluid_instance::running::{exit_of, supervisor_time};
use nfluid_sandbox::Instance;
use nfluid_switch::Gaps;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often the list of instances is looked at anew, when nothing ends and nothing is due.
const LOOK: Duration = Duration::from_millis(200);
/// How often some instances are looked at whose end may not have been told,
const ROUND: Duration = Duration::from_secs(1);
/// and how many: all of thousands would hold up everybody else for milliseconds.
const TURN: usize = 256;
/// How often aged addresses are removed, and rings looked at that may be stuck.
const SWEEP: Duration = Duration::from_secs(5);

/// Supervises the host's instances; never returns.
pub fn run(host: &Shared) -> ! {
    let mut last_sweep = Instant::now();
    let mut last_look = Instant::now();
    let mut last_balance = Instant::now();
    let mut gaps = Gaps::default();
    let exits = lock(host).exits.readable();
    loop {
        let (pidfds, wait) = lock(host).watched();
        let mut fds: Vec<PollFd<'_>> = pidfds
            .iter()
            .chain([&*exits])
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec::try_from(wait).unwrap_or_default();
        // Interrupted or not: look.
        let _ = poll(&mut fds, Some(&timeout));
        let mut host = lock(host);
        let ended = host.exits.ended();
        host.note_exits(&ended);
        host.start_what_is_due();
        host.watch_uplinks();
        host.meter_uplinks();
        host.watch_io();
        if last_look.elapsed() > ROUND {
            last_look = Instant::now();
            host.look_at_some();
        }
        if last_balance.elapsed() > placing::ROUND {
            last_balance = Instant::now();
            host.balance();
            host.tell_of_guarantees();
        }
        if last_sweep.elapsed() > SWEEP {
            last_sweep = Instant::now();
            host.maker.connectors.reap();
            if let Err(error) = host.switch.fdb_sweep() {
                tracing::warn!(%error, "removing aged addresses");
            }
            host.heal_rings(&mut gaps);
        }
    }
}

impl Host {
    /// Makes holes in rings whose receivers wait for what nobody will publish any more.
    fn heal_rings(&self, gaps: &mut Gaps) {
        let of_instances = self.instances.values().flat_map(|it| &it.memory.ports);
        let of_uplinks = self.uplinks.port_ids();
        let ports = of_instances.map(|part| part.spec.id).chain(of_uplinks);
        match self.switch.heal(gaps, ports) {
            Ok(healed) => {
                for (port, frames) in healed {
                    tracing::error!(
                        port,
                        frames,
                        "a ring was stuck; the frames are counted as reclaimed"
                    );
                }
            }
            Err(error) => tracing::warn!(%error, "looking for rings that are stuck"),
        }
    }

    /// Descriptors that become readable when a process of an uplink or of the I/O threads ends, and how long to wait at
    /// most.
    fn watched(&self) -> (Vec<OwnedFd>, Duration) {
        let now = supervisor_time(self.started);
        let ended = self.ended_names.iter();
        let due = ended.filter_map(|name| self.instances.get(name)?.supervisor.due_at());
        let (uplinks, uplink_due) = self.uplinks.watched();
        let (io, io_due) = self.watched_io();
        let wait = due
            .chain(uplink_due)
            .chain(io_due)
            .map(|at| Duration::from_millis(at.0.saturating_sub(now.0)))
            .min();
        (
            uplinks.into_iter().chain(io).collect(),
            wait.unwrap_or(LOOK).clamp(Duration::from_millis(1), LOOK),
        )
    }

    /// Notes which of these instances have ended, and what becomes of each.
    pub(super) fn note_exits(&mut self, names: &[String]) {
        for name in names {
            // An instance that is upgraded gives its ports away and ends as it should. One that moves may be another host's.
            if self.upgrading.contains(name) || self.moving.contains(name) {
                continue;
            }
            let running = self.instances.get(name);
            let process = running.and_then(|running| running.process.as_ref());
            if let Some(Ok(Some(ended))) = process.map(Instance::try_wait) {
                self.note_exit(name, &ended.to_string(), exit_of(ended));
            }
        }
    }

    /// The same for some instances in turn: the end of a process that the kernel did not tell is found later.
    fn look_at_some(&mut self) {
        let behind = (Bound::Excluded(self.looked_at.as_str()), Bound::Unbounded);
        let names = self.instances.range::<str, _>(behind).map(|(name, _)| name);
        let names: Vec<String> = names.take(TURN).cloned().collect();
        self.note_exits(&names);
        // After the last instance comes the first.
        self.looked_at = names.into_iter().nth(TURN - 1).unwrap_or_default();
    }

    /// Reclaims the ports of an instance that has ended, and asks its restart policy.
    pub(super) fn note_exit(&mut self, name: &str, how: &str, exit: Exit) {
        let time = supervisor_time(self.started);
        let Some(running) = self.instances.get_mut(name) else {
            return;
        };
        if let Some(process) = running.process.take() {
            self.exits.forget(&process);
        }
        self.ended_names.insert(name.to_owned());
        // What it has sent and not rung for any more would wait until its peers look by themselves.
        for peer in running.record.bells.iter().flatten() {
            doorbell::ring(&self.settings.paths.bell(peer));
        }
        running.last_exit = Some(how.to_owned());
        // Its successor would be born standing still.
        self.end_pause(name);
        let Some(running) = self.instances.get_mut(name) else {
            return;
        };
        // Whatever it had started is gone as well: it was process 1 of its pid namespace. Its cgroup
        // must not be told to kill: Linux 6.15 and newer then kill whatever is cloned into it later.
        let lost = running
            .maps(&self.settings.paths, name)
            .and_then(|maps| self.switch.reclaim(&running.memory, &maps));
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
        let is_there = |name: &String| self.instances.contains_key(name);
        let is_due = |name: &&String| {
            let running = self.instances.get(*name);
            running.is_some_and(|running| running.supervisor.is_due(now))
        };
        let gone = self.ended_names.iter().any(|name| !is_there(name));
        let due: Vec<String> = self.ended_names.iter().filter(is_due).cloned().collect();
        if gone {
            let instances = &self.instances;
            self.ended_names.retain(|name| instances.contains_key(name));
        }
        for name in due {
            match self.start_again(&name) {
                Ok(()) => self.event(
                    EventKind::Started,
                    Some((Kind::Instance, &name)),
                    "runs again",
                ),
                Err(error) => self.note_exit(
                    &name,
                    &format!("could not be started: {error:#}"),
                    Exit::Failure,
                ),
            }
        }
    }
}
