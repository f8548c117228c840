//! NFs in a row, joined by links, and the process that sends to them.

use crate::io_model::Model;
use crate::peer::Peer;
use crate::roles::work::Waits;
use crate::roles::{Role, Task};
use crate::workload::Workload;
use nfluid_switch::Group;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use std::sync::Arc;

pub const BATCH: usize = 64;
pub const RING: u32 = 128;
/// TX slots of a port of an NF in a chain.
const TX_SLOTS: u32 = 64;

/// The NFs of a chain, and the owner of their memory.
#[derive(Clone, Debug)]
pub struct Links {
    /// The workload of each NF.
    pub workload: Workload,
    /// The trust group of the NFs; the traffic is outside of it.
    pub group: Option<Arc<Group>>,
}

impl Links {
    /// Returns firewalls of 10 rules, each with its own memory.
    pub fn firewalls() -> Self {
        Links {
            workload: Workload::Firewall {
                rules: 10,
                flows: 1000,
            },
            group: None,
        }
    }

    /// Returns the slots that `count` NFs in a row need.
    pub fn slots(count: usize) -> u32 {
        count as u32 * 2 * (RING + TX_SLOTS)
    }
}

/// The cores of a chain.
#[derive(Clone, Copy)]
pub enum Placement {
    /// All processes, including the traffic, on core 1.
    OneCore,
    /// The firewalls on core 0, the traffic on core 1.
    TrafficApart,
    /// The first half of the firewalls on core 0, the rest and the traffic on core 1.
    Halves,
}

impl Placement {
    pub fn name(self) -> &'static str {
        match self {
            Placement::OneCore => "all on one core",
            Placement::TrafficApart => "firewalls on one core, traffic on the other",
            Placement::Halves => {
                "half of the firewalls and the traffic on one core, half on the other"
            }
        }
    }

    /// Returns the core of firewall `index` of `count`.
    fn core(self, index: usize, count: usize) -> usize {
        match self {
            Placement::OneCore => 1,
            Placement::TrafficApart => 0,
            Placement::Halves => usize::from(2 * index >= count),
        }
    }
}

/// Processes of the firewalls, then that of the traffic, and then that of the I/O threads, if there is one.
pub struct Chain {
    pub peers: Vec<Peer>,
    /// The instances that the peers use; they live as long as the peers.
    instances: Vec<ScratchInstance>,
}

impl Chain {
    /// Makes `count` NFs for single frames of 64 B.
    pub fn pinged(
        scratch: &mut Scratch,
        count: usize,
        placement: Placement,
        links: &Links,
    ) -> anyhow::Result<Self> {
        let workload = links.workload;
        Chain::new(scratch, count, placement, links, &|to| Task::Ping {
            workload,
            to,
        })
    }

    /// Makes `count` NFs for up to [`RING`] frames of `len` bytes in flight.
    pub fn loaded(
        scratch: &mut Scratch,
        count: usize,
        placement: Placement,
        links: &Links,
        len: usize,
    ) -> anyhow::Result<Self> {
        let workload = links.workload;
        Chain::new(scratch, count, placement, links, &|to| Task::Around {
            workload,
            to,
            len,
            batch: BATCH,
            window: RING,
            waits: Waits::Sleeping,
        })
    }

    /// Makes `count` NFs and the process of `task`, which gets its destination.
    fn new(
        scratch: &mut Scratch,
        count: usize,
        placement: Placement,
        links: &Links,
        task: &dyn Fn([u8; 6]) -> Task,
    ) -> anyhow::Result<Self> {
        let mut instances = match &links.group {
            Some(group) => (0..count)
                .map(|_| scratch.member(group, 2, RING, TX_SLOTS))
                .collect::<Result<_, _>>()?,
            None => scratch.instances(count, 2, RING, TX_SLOTS)?,
        };
        let mut traffic = scratch.instance(2, RING, RING)?;
        scratch.link((&mut traffic, 0), (&mut instances[0], 0))?;
        for index in 1..count {
            let (before, after) = instances.split_at_mut(index);
            scratch.link((&mut before[index - 1], 1), (&mut after[0], 0))?;
        }
        scratch.link((&mut instances[count - 1], 1), (&mut traffic, 1))?;
        let to = instances[0].mac(0);
        let mut peers = Vec::with_capacity(count + 1);
        for (index, instance) in instances.iter().enumerate() {
            let role = Role {
                core: placement.core(index, count),
                task: Task::Nf {
                    workload: links.workload,
                },
            };
            peers.push(Peer::start(instance, &role)?);
        }
        let driver = Role {
            core: 1,
            task: task(to),
        };
        peers.push(Peer::start(&traffic, &driver)?);
        instances.push(traffic);
        Ok(Chain { peers, instances })
    }

    /// Starts the I/O threads of `model` for the firewalls; a split's I/O thread is on `core`.
    pub fn served(mut self, scratch: &Scratch, model: Model, core: usize) -> anyhow::Result<Self> {
        let firewalls = self.instances.split_last().map_or(&[][..], |(_, all)| all);
        let firewalls: Vec<&ScratchInstance> = firewalls.iter().collect();
        let io = model.start_on(core, scratch, &firewalls)?;
        self.peers.extend(io);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::Placement;

    #[test]
    fn halves_are_halves() {
        let cores: Vec<_> = (0..4).map(|i| Placement::Halves.core(i, 4)).collect();
        assert_eq!(cores, [0, 0, 1, 1]);
    }
}
