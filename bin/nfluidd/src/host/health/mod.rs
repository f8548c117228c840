//! Health checks: a thread that checks the instances with `health`, and restarts those that hang.
//!
//! The thread checks without the host's lock, and waits for no instance.

mod checked;

use super::{Host, Shared, lock};
use checked::CheckedInstance;
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::changes::Changed;
use nfluid_control::health::{Health, Remedy, Turn};
use nfluid_control::quantity::Millis;
use nfluid_lifecycle::supervision::note_exit;
use nfluid_lifecycle::workload::Exited;
use nfluid_switch::Switch;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Interval at which the list of instances is read while no instance is checked.
const LOOK: Duration = Duration::from_millis(200);

/// An instance that is to be checked.
struct Subject {
    pid: u32,
    /// nfluid's own program runs in it.
    is_hosted: bool,
    health: Health,
    control: PathBuf,
    /// The numbers of its rings.
    rings: Vec<u32>,
    age: Millis,
}

/// Checks the host's instances; never returns.
pub fn run(host: &Shared) -> ! {
    let switch = lock(host).switch();
    let mut checked: HashMap<String, CheckedInstance> = HashMap::new();
    let mut seen = None;
    loop {
        let changed = {
            let host = lock(host);
            match host.events.changes_since(seen) {
                Changed::Nothing => None,
                Changed::All(newest) => Some((newest, None, host.health_subjects())),
                Changed::Some(newest, names) => {
                    let subjects = names.iter().filter_map(|name| host.health_subject(name));
                    let subjects = subjects.collect();
                    Some((newest, Some(names), subjects))
                }
            }
        };
        if let Some((newest, names, subjects)) = changed {
            seen = Some(newest);
            let before = match names {
                Some(names) => names
                    .iter()
                    .filter_map(|name| checked.remove_entry(name))
                    .collect(),
                None => std::mem::take(&mut checked),
            };
            checked.extend(renewed(before, subjects, &switch, host));
        }
        for (name, instance) in &mut checked {
            if let Some(turn) = instance.look_if_due(&switch) {
                lock(host).take_turn(name, instance.pid(), &turn);
            }
        }
        let next = checked.values().map(CheckedInstance::due).min();
        let wait = next.map_or(LOOK, |due| due.saturating_duration_since(Instant::now()));
        std::thread::sleep(wait.clamp(Duration::from_millis(1), LOOK));
    }
}

/// Returns the instances to be checked now. Runs that have not been replaced keep their history.
fn renewed(
    mut before: HashMap<String, CheckedInstance>,
    subjects: BTreeMap<String, Subject>,
    switch: &Switch,
    host: &Shared,
) -> HashMap<String, CheckedInstance> {
    let mut now = HashMap::with_capacity(subjects.len());
    for (name, subject) in subjects {
        let known = before.remove(&name).filter(|known| known.is_of(&subject));
        let instance = known.unwrap_or_else(|| CheckedInstance::new(subject, switch));
        if instance.is_new() {
            lock(host).forget_condition(&name);
        }
        now.insert(name, instance);
    }
    for name in before.keys() {
        lock(host).forget_condition(name);
    }
    now
}

impl Host {
    /// Returns the running instances that have health checks. A paused or moving instance counts as healthy.
    fn health_subjects(&self) -> BTreeMap<String, Subject> {
        let names = self.instances.table().keys();
        names.filter_map(|name| self.health_subject(name)).collect()
    }

    fn health_subject(&self, name: &str) -> Option<(String, Subject)> {
        let running = self.instances.get(name)?;
        let health = running.spec.health.clone()?;
        if running.is_paused() || self.instances.is_moving(name) {
            return None;
        }
        let rings = running.port_numbers();
        let subject = Subject {
            pid: running.pid()?,
            is_hosted: running.spec.is_hosted(),
            health,
            control: running.workload.control().to_owned(),
            rings: rings.collect(),
            age: Millis(running.since.elapsed().as_millis() as u64),
        };
        Some((name.to_owned(), subject))
    }

    /// Forgets the health of an instance, since another run begins or the checks end.
    fn forget_condition(&mut self, name: &str) {
        if let Some(running) = self.instances.get_mut(name) {
            running.condition.unhealthy = None;
        }
    }

    /// Records a change of the health of the instance that ran as `pid` when it was checked.
    fn take_turn(&mut self, name: &str, pid: u32, turn: &Turn) {
        let is_moving = self.instances.is_moving(name);
        let Some(running) = self.instances.get_mut(name) else {
            return;
        };
        let stands_still = running.is_paused() || running.is_ending || is_moving;
        if running.pid() != Some(pid) || stands_still {
            return;
        }
        let subject = Some((Kind::Instance, name));
        match turn {
            Turn::Recovered => {
                running.condition.unhealthy = None;
                self.event(EventKind::Healthy, subject, "it is well again");
            }
            Turn::Fell(why) | Turn::Late(why) => {
                running.condition.unhealthy = Some(why.clone());
                running.condition.times += 1;
                let health = running.spec.health.as_ref();
                let action = health.map(|health| health.action);
                let hangs = matches!(turn, Turn::Fell(_));
                self.event(EventKind::Unhealthy, subject, why);
                if hangs && action == Some(Remedy::Restart) {
                    self.end_unhealthy(name);
                }
            }
        }
    }

    /// Ends an instance that hangs. Its restart policy decides about a new start.
    fn end_unhealthy(&mut self, name: &str) {
        let Some(running) = self.instances.get_mut(name) else {
            return;
        };
        match running.workload.stop() {
            Ok(()) => note_exit(self, name, Exited::failed("killed, as it was unhealthy")),
            Err(why) => self.event(
                EventKind::Warning,
                Some((Kind::Instance, name)),
                format!("it is unhealthy and cannot be ended: {why:#}"),
            ),
        }
    }
}
