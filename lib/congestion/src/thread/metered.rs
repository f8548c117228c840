//! A measured instance.

use super::figures::InstanceCost;
use super::subject::Subject;
use crate::{Meter, PortSample};
use nfluid_sandbox::ThreadUse;
use nfluid_switch::{Switch, WatchedRing};

/// An instance, its meter, and its mapped rings while it is busy.
#[derive(Debug)]
pub struct Metered {
    pub subject: Subject,
    pub meter: Meter,
    pub rings: Vec<WatchedRing>,
    pub is_busy: bool,
    /// The core on which the process ran last, as of the last measurement while marks are on.
    core: Option<u32>,
    is_reported: bool,
    /// The frames that had been delivered at the first measurement, until more are delivered. Measuring begins only then, so
    /// that thousands of instances that start at once cost no descriptor and no mapping.
    delivered_at_first: Option<Vec<u64>>,
    has_received: bool,
}

impl Metered {
    /// An instance that was not measured before.
    pub fn new(subject: Subject) -> Self {
        Metered {
            meter: Meter::new(subject.rings().count()),
            subject,
            rings: Vec::new(),
            is_busy: false,
            core: None,
            is_reported: false,
            delivered_at_first: None,
            has_received: false,
        }
    }

    /// The same instance as `subject` describes it now. The meter goes on if program and ports are the same.
    pub fn renewed(self, subject: Subject) -> Self {
        let is_same =
            self.subject.program == subject.program && self.subject.ports == subject.ports;
        if is_same {
            Metered {
                subject,
                rings: Vec::new(),
                is_reported: false,
                ..self
            }
        } else {
            Metered::new(subject)
        }
    }

    /// Reads what the instance has used and received. Returns true if there is something to report.
    pub fn measure(&mut self, switch: &Switch, now_ns: u64) -> bool {
        let delivered: Vec<u64> = self
            .subject
            .rings()
            .map(|id| switch.delivered(id))
            .collect();
        if !self.has_received {
            let at_first = self
                .delivered_at_first
                .get_or_insert_with(|| delivered.clone());
            self.has_received = *at_first != delivered;
            if !self.has_received {
                return !std::mem::replace(&mut self.is_reported, true);
            }
            self.delivered_at_first = None;
        }
        let Metered {
            subject,
            meter,
            rings,
            ..
        } = self;
        self.is_busy = meter.measure(now_ns, &delivered, |waiting| {
            if rings.is_empty() {
                *rings = watch(switch, subject);
            }
            waiting.extend(rings.iter().map(|ring| switch.look_at(ring).waiting));
            cpu_ns(subject)
        });
        let is_known = std::mem::replace(&mut self.is_reported, true);
        self.is_busy || !is_known
    }

    /// Maps the rings of the instance, or unmaps them.
    pub fn set_mapped(&mut self, switch: &Switch, is_mapped: bool) {
        if !is_mapped {
            self.rings.clear();
            if let Some(clock) = &mut self.subject.clock {
                clock.rest();
            }
        } else if self.rings.is_empty() {
            self.rings = watch(switch, &self.subject);
        }
    }

    /// Finds the core on which the instance runs.
    pub fn find_core(&mut self) {
        let pid = self.subject.pid.filter(|_| self.is_busy);
        let main_thread = pid.and_then(|pid| ThreadUse::of(pid, i32::try_from(pid).ok()?));
        self.core = main_thread.map(|used| used.core).or(self.core);
    }

    /// Returns what the controller has to know of one of the instance's rings.
    pub fn port_sample(&self, switch: &Switch, ring: &WatchedRing) -> PortSample {
        let found = switch.look_at(ring);
        PortSample {
            port: ring.port(),
            core: self.core,
            waiting: found.waiting,
            slots: found.slots,
            read_to: found.read_to,
            cost_ns: self.meter.cost_ns().map_or(0, |cost| cost as u64),
        }
    }

    /// Returns the cost of the instance's packets.
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

/// Maps all rings of an instance. Empty if a ring is missing.
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
