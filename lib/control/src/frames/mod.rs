//! Super-frames and jumbo frames: which objects take them, and the memory for them.
//!
//! A kernel's TCP sends up to 64 KiB at once, with the transport checksum and the cut into packets left to be done. Where
//! all that such a frame can reach takes it, it crosses the platform as one frame. So the objects between which frames can
//! pass decide together: they are a *domain* ([`domain`]). `memory` gives the ports of a domain slots for long frames.

pub mod domain;
mod memory;
mod sets;

pub use crate::levels::{Level, Levels};
pub use crate::model::Frames;
pub use domain::{Domain, Node, domains, levels_between};
pub use sets::Sets;

use crate::inventory::Inventory;
use crate::spec::InstanceSpec;

/// Longest packet in bytes of a frame that fits into one slot: longer ones need memory of their own.
pub const SLOT_MTU_MAX: u16 = 2018;

/// Fewest slots for long frames of a port that takes super-frames: eight frames of 64 KiB.
pub const LONG_MIN: u32 = 256;
/// Most of them.
pub const LONG_MAX: u32 = 4096;

/// Returns the slots for long frames that an instance with this much memory can have at each of its `queues` ports: a
/// quarter of the memory.
pub fn affordable(memory: u64, queues: u64) -> u32 {
    const SLOT_BYTES: u64 = 2048;
    let each = memory / 4 / SLOT_BYTES / queues.max(1);
    floor(each.min(LONG_MAX.into()) as u32)
}

/// The largest power of two that is not above `slots`; 0 for 0.
fn floor(slots: u32) -> u32 {
    slots.checked_ilog2().map_or(0, |log| 1 << log)
}

impl Inventory {
    /// Makes all frames plain.
    pub(crate) fn forget_frames(&mut self) {
        self.levels = Levels::default();
        for spec in self.uplinks.values_mut() {
            spec.long = 0;
        }
        for spec in self.instances.values_mut() {
            spec.ports.iter_mut().for_each(|port| port.long = 0);
        }
        self.pools.values_mut().for_each(|pool| pool.long = 0);
    }

    /// Gives all ports their memory for long frames, and decides what the uplinks let in.
    pub(crate) fn assign_frames(&mut self) {
        let domains = domain::entitled(self);
        memory::assign(self, &domains);
        self.levels = domain::levels_of(&domains);
    }

    /// Leaves the objects that stay the memory that they were made with: nothing is made again for long frames, save uplinks
    /// whose frames have memory everywhere else. `stays` says whether an instance can go on as it is.
    pub(crate) fn keep_memory(
        &mut self,
        current: &Inventory,
        stays: impl Fn(&InstanceSpec, &InstanceSpec) -> bool,
    ) {
        for (name, spec) in &mut self.instances {
            if let Some(old) = current.instances.get(name)
                && stays(old, spec)
            {
                spec.keep_long(old);
            }
        }
        let mut domains = domains(&[self]);
        for domain in &mut domains {
            // Levels change slowly, and an instance may come back to the uplink that the last one has left.
            if let Some(alone) = domain.uplink_alone() {
                domain.frames = current.levels.of_uplink(alone);
            }
            for name in &domain.uplinks {
                if let Some(spec) = self.uplinks.get_mut(name)
                    && let Some(old) = current.uplinks.get(name)
                    && (domain.frames.is_plain() || old.long > 0)
                {
                    spec.long = old.long;
                }
            }
        }
        self.levels = domain::levels_of(&domains);
    }
}
