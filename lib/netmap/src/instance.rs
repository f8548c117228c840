//! The instance that this process is: its ports, as netmap's.

use crate::buffers::Buffers;
use crate::lane::Lane;
use crate::region::{INTERFACES, Region};
use nfluid_ring::Level;
use nfluid_ring::attach::Attached;
use nfluid_ring::bells::Bells;
use nfluid_ring::table::PortEntry;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What all descriptors of the process share.
#[derive(Debug)]
pub struct Instance {
    entries: Vec<PortEntry>,
    lanes: Vec<Mutex<Lane>>,
    pub buffers: Buffers,
    pub region: Region,
    pub bells: Arc<Bells>,
    /// Which interfaces of the region are in use.
    interfaces: Mutex<[bool; INTERFACES]>,
}

/// Attaches at the first call; `None`: the process has no ports, and the reason was said.
pub fn instance() -> Option<&'static Instance> {
    static INSTANCE: OnceLock<Option<Instance>> = OnceLock::new();
    INSTANCE
        .get_or_init(|| match Instance::attach() {
            Ok(instance) => Some(instance),
            Err(why) => {
                crate::say(format_args!("{why}"));
                None
            }
        })
        .as_ref()
}

impl Instance {
    fn attach() -> Result<Self, String> {
        let Attached {
            ports,
            doorbell,
            pool,
        } = Attached::from_env().map_err(|error| error.to_string())?;
        let entries: Vec<PortEntry> = ports.iter().map(|port| *port.entry()).collect();
        let Some(ring_slots) = entries.first().map(|entry| entry.ring_slots) else {
            return Err("the instance has no ports".to_owned());
        };
        if pool.is_shared() {
            return Err(
                "a program on netmap cannot be in a trust group: remove 'trust' in the deployment"
                    .to_owned(),
            );
        }
        if entries.iter().any(|entry| entry.level() != Level::Plain) {
            return Err("a program on netmap takes frames as they are on a wire: remove 'frames' in the deployment".to_owned());
        }
        let (start, bytes) = pool.as_raw_parts();
        let start = NonNull::new(start).ok_or("the pool is not mapped")?;
        let region = Region::new(2 * ports.len(), ring_slots, (start, bytes))
            .map_err(|errno| format!("memory for rings: {errno}"))?;
        let buffers = Buffers::new(&pool, &entries);
        let lanes = ports.into_iter().enumerate();
        let lanes = lanes
            .map(|(index, port)| Mutex::new(Lane::new(port, &region, 2 * index)))
            .collect();
        let instance = Instance {
            entries,
            lanes,
            buffers,
            region,
            bells: Arc::new(doorbell.into_bells()),
            interfaces: Mutex::new([false; INTERFACES]),
        };
        instance.reset_if_unused();
        Ok(instance)
    }

    /// If no descriptor has a port, all buffers are where they were at first: a program may have closed its ports with
    /// buffers in its hands.
    pub fn reset_if_unused(&self) {
        let lanes = (0..self.lanes.len()).map(|lane| self.lane(lane));
        let mut lanes: Vec<_> = lanes.collect();
        if lanes.iter().all(|lane| lane.users == 0) {
            self.buffers.reset();
            for lane in &mut lanes {
                lane.reset(&self.buffers);
            }
        }
    }

    /// The queues of the port of this name, as numbers of lanes, in order. `None`: there is no such port.
    pub fn port(&self, name: &str) -> Option<Vec<usize>> {
        let of_name = |(_, entry): &(usize, &PortEntry)| entry.name() == name;
        let entries = self.entries.iter().enumerate();
        let lanes: Vec<usize> = entries.filter(of_name).map(|(lane, _)| lane).collect();
        (!lanes.is_empty()).then_some(lanes)
    }

    /// The names of all ports, for an error.
    pub fn port_names(&self) -> String {
        let first = self.entries.iter().filter(|entry| entry.queue == 0);
        let names: Vec<&str> = first.map(PortEntry::name).collect();
        names.join(", ")
    }

    /// Slots of each ring.
    pub fn ring_slots(&self) -> u32 {
        self.entries.first().map_or(0, |entry| entry.ring_slots)
    }

    /// Buffers that are not lent as extra ones: each receive ring can have its own.
    pub fn reserved_buffers(&self) -> usize {
        self.lanes.len() * self.ring_slots() as usize
    }

    pub fn lane(&self, number: usize) -> MutexGuard<'_, Lane> {
        self.lanes[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a frame wait in the lane that the program has not been shown? A thread that has the lane will see to it.
    pub fn has_arrived(&self, number: usize) -> bool {
        let lane = self.lanes[number].try_lock();
        lane.is_ok_and(|lane| lane.has_arrived())
    }

    /// A free interface of the region.
    pub fn take_interface(&self) -> Option<usize> {
        let mut interfaces = self
            .interfaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let free = interfaces.iter().position(|is_used| !is_used)?;
        interfaces[free] = true;
        Some(free)
    }

    pub fn give_interface_back(&self, number: usize) {
        let mut interfaces = self
            .interfaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        interfaces[number] = false;
    }
}
