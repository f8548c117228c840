//! An instance whose health is checked, with the time of its next check.

use super::Subject;
use nfluid_control::health::{Answer, Check, Checkup, Health, Look, RingFound, Turn};
use nfluid_control::quantity::Millis;
use nfluid_protocol::daemon::Beat;
use nfluid_sandbox::OwnTime;
use nfluid_switch::{Switch, WatchedRing};
use std::time::{Duration, Instant};

/// A run of a process whose health is checked.
pub struct CheckedInstance {
    pid: u32,
    rings: Vec<u32>,
    health: Health,
    watched: Vec<WatchedRing>,
    beat: Option<Beat>,
    own_time: OwnTime,
    started: Instant,
    due: Instant,
    checkup: Checkup,
    looks: u64,
}

impl CheckedInstance {
    /// Creates the record of a run. The first check is due after one interval.
    pub fn new(subject: Subject, switch: &Switch) -> Self {
        let makes = |check| subject.health.makes(check, subject.is_hosted);
        let rings = subject.rings.iter();
        let watched = if makes(Check::Progress) {
            rings.filter_map(|id| switch.watch_ring(*id)).collect()
        } else {
            Vec::new()
        };
        let now = Instant::now();
        let age = subject.age.duration();
        CheckedInstance {
            pid: subject.pid,
            watched,
            beat: makes(Check::Process).then(|| Beat::new(subject.control.clone())),
            own_time: OwnTime::of(subject.pid),
            started: now.checked_sub(age).unwrap_or(now),
            due: now + subject.health.interval.duration(),
            checkup: Checkup::default(),
            looks: 0,
            rings: subject.rings,
            health: subject.health,
        }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns true if no check was done yet.
    pub fn is_new(&self) -> bool {
        self.looks == 0
    }

    /// Returns true if `subject` is the same run with the same checks.
    pub fn is_of(&self, subject: &Subject) -> bool {
        self.pid == subject.pid && self.rings == subject.rings && self.health == subject.health
    }

    /// Returns the time of the next check.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Checks the instance if a check is due. Returns a change of its health.
    pub fn look_if_due(&mut self, switch: &Switch) -> Option<Turn> {
        let now = Instant::now();
        if now < self.due {
            return None;
        }
        self.due = now + self.health.interval.duration();
        self.looks += 1;
        let found = self.find(switch);
        self.checkup.look(&self.health, &found)
    }

    fn find(&mut self, switch: &Switch) -> Look {
        let found: Vec<_> = self
            .watched
            .iter()
            .map(|ring| switch.look_at(ring))
            .collect();
        let rings = found.iter().map(|ring| RingFound {
            waiting: ring.waiting,
            read_to: ring.read_to,
        });
        Look {
            age: millis(self.started.elapsed()),
            had: millis(self.own_time.since_last()),
            answer: self.beat.as_mut().map_or(Answer::NotAsked, Beat::look),
            rings: rings.collect(),
            is_held_up: found.iter().any(|ring| ring.sends),
        }
    }
}

fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
