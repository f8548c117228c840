//! An instance under the meter.

use super::figures::InstanceCost;
use super::subject::Subject;
use nfluid_congestion::{Meter, PortLook};
use nfluid_sandbox::ThreadUse;
use nfluid_switch::{Switch, WatchedRing};

/// An instance, its meter, and its rings while it is at work.
#[derive(Debug)]
pub struct Metered {
    pub subject: Subject,
    pub meter: Meter,
    pub rings: Vec<WatchedRing>,
    pub is_at_work: bool,
    /// The core on which its process ran last, as of the last look while marks are on.
    core: Option<u32>,
    is_told: bool,
    /// What had been delivered to it when it was seen first, until it gets more: only then it is measured. Of thousands that
    /// come at once none costs a descriptor or a mapping.
    at_first: Option<Vec<u64>>,
    has_begun: bool,
}

impl Metered {
    /// An instance that was not seen before.
    pub fn new(subject: Subject) -> Self {
        Metered {
            meter: Meter::new(subject.rings().count()),
            subject,
            rings: Vec::new(),
            is_at_work: false,
            core: None,
            is_told: false,
            at_first: None,
            has_begun: false,
        }
    }

    /// The same instance, as it is now: its meter goes on if it is the same program on the same ports.
    pub fn renewed(self, subject: Subject) -> Self {
        let is_same =
            self.subject.program == subject.program && self.subject.ports == subject.ports;
        if is_same {
            Metered {
                subject,
                rings: Vec::new(),
                is_told: false,
                ..self
            }
        } else {
            Metered::new(subject)
        }
    }

    /// Looks at what it has used and received; whether there is something to be told.
    pub fn look(&mut self, switch: &Switch, now_ns: u64) -> bool {
        let delivered: Vec<u64> = self
            .subject
            .rings()
            .map(|id| switch.delivered(id))
            .collect();
        if !self.has_begun {
            let at_first = self.at_first.get_or_insert_with(|| delivered.clone());
            self.has_begun = *at_first != delivered;
            if !self.has_begun {
                return !std::mem::replace(&mut self.is_told, true);
            }
            self.at_first = None;
        }
        let Metered {
            subject,
            meter,
            rings,
            ..
        } = self;
        self.is_at_work = meter.look(now_ns, &delivered, |waiting| {
            if rings.is_empty() {
                *rings = watch(switch, subject);
            }
            waiting.extend(rings.iter().map(|ring| switch.look_at(ring).waiting));
            cpu_ns(subject)
        });
        let is_known = std::mem::replace(&mut self.is_told, true);
        self.is_at_work || !is_known
    }

    /// Keeps its rings mapped while that `is_wanted`, and no longer.
    pub fn follow(&mut self, switch: &Switch, is_wanted: bool) {
        if !is_wanted {
            self.rings.clear();
            if let Some(clock) = &mut self.subject.clock {
                clock.rest();
            }
        } else if self.rings.is_empty() {
            self.rings = watch(switch, &self.subject);
        }
    }

    /// Finds out where it runs.
    pub fn locate(&mut self) {
        let pid = self.subject.pid.filter(|_| self.is_at_work);
        let main_thread = pid.and_then(|pid| ThreadUse::of(pid, i32::try_from(pid).ok()?));
        self.core = main_thread.map(|used| used.core).or(self.core);
    }

    /// One of its rings, for the controller.
    pub fn port_look(&self, switch: &Switch, ring: &WatchedRing) -> PortLook {
        let found = switch.look_at(ring);
        PortLook {
            port: ring.port(),
            core: self.core,
            waiting: found.waiting,
            slots: found.slots,
            read_to: found.read_to,
            cost_ns: self.meter.cost_ns().map_or(0, |cost| cost as u64),
        }
    }

    /// What was found.
    pub fn cost(&self) -> InstanceCost {
        let mut used = self.meter.ports().iter();
        let ports = self.subject.ports.iter().map(|(port, ids)| {
            let queues = used.by_ref().take(ids.len());
            let cpu_ns: f64 = queues.map(|queue| queue.cpu_ns).sum();
            (port.clone(), cpu_ns as u64)
        });
        InstanceCost {
            ports: ports.collect(),
            cost_ns: self.meter.cost_ns(),
            mean_cost_ns: self.meter.mean_cost_ns(),
        }
    }
}

/// All rings of an instance, or none if one is missing.
fn watch(switch: &Switch, subject: &Subject) -> Vec<WatchedRing> {
    let rings: Option<Vec<WatchedRing>> = subject.rings().map(|id| switch.watch_ring(id)).collect();
    rings.unwrap_or_default()
}

/// CPU time of an instance and of the I/O thread that works for it alone.
fn cpu_ns(subject: &mut Subject) -> Option<u64> {
    let own = subject.clock.as_mut()?.read_ns()?;
    let io = match subject.io {
        Some((pid, tid)) => ThreadUse::of(pid, tid)?.cpu_time.as_nanos() as u64,
        None => 0,
    };
    Some(own.saturating_add(io))
}
