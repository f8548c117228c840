//! Instances of one port: their memory, and the real ports that attach to it.

use super::memory::{Memory, Pool, RingFile, memory_file};
use nfluid_ring::attach::Attached;
use nfluid_ring::memory::Pool as MappedPool;
use nfluid_ring::port::{Port, PortFds};
use nfluid_ring::table::{ATTACH_MAGIC, ATTACH_MAGIC_SHARED, PortEntry, TableHead};
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;

/// The memory and the ports of an instance.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The port's number, and its pool's.
    pub number: u32,
    /// The trust group; 0: none.
    pub group: u32,
    /// Slots of each ring, and as many TX slots.
    pub slots: u32,
    /// Rings.
    pub ring: Rc<RingFile>,
    /// The instance's pool, or its group's.
    pub pool: Rc<Pool>,
}

impl Instance {
    /// Makes an instance's memory. A member of a group has its slots in `shared`.
    pub fn create(number: u32, slots: u32, (group, shared): (u32, Option<&Rc<Pool>>)) -> Self {
        Instance {
            number,
            group,
            slots,
            ring: RingFile::create(),
            pool: shared.cloned().unwrap_or_else(|| Pool::create(2 * slots)),
        }
    }

    /// Attaches twice: to receive, and to send. Both are the same process.
    ///
    /// # Panics
    /// When the kernel has no memory.
    pub fn attach(&self) -> [Port; 2] {
        let head = TableHead {
            magic: if self.group > 0 {
                ATTACH_MAGIC_SHARED
            } else {
                ATTACH_MAGIC
            },
            ports: 1,
            pool_fd: -1,
            pool_slots: self.pool.slots(),
            doorbell_fd: -1,
            kernel_doorbell_fd: -1,
            io_doorbell_fd: -1,
        };
        use std::os::fd::AsFd;
        let pool = MappedPool::of(&head, memory_file(0).as_fd()).expect("a pool can be mapped");
        let pool = Arc::new(pool);
        [0, self.slots].map(|tx_slots| {
            let entry = PortEntry {
                name: [0; 32],
                mac: [0; 6],
                mtu: 1500,
                queue: 0,
                queues: 1,
                socket_fd: -1,
                ring_fd: -1,
                peer_doorbell_fd: -1,
                ring_slots: self.slots,
                rx_base: 0,
                tx_base: self.slots,
                tx_slots,
                ..PortEntry::default()
            };
            let fds = PortFds {
                socket: File::open("/dev/null").expect("it is there").into(),
                ring: self.ring.fd().try_clone_to_owned().expect("a descriptor"),
                peer_doorbell: None,
                io_doorbell: None,
            };
            Attached::port(&entry, fds, Arc::clone(&pool)).expect("rings can be mapped")
        })
    }

    /// Slots of a group that are the instance's.
    pub fn owned(&self, m: &Memory) -> Vec<u32> {
        let owners = m.owners[self.group as usize].iter().zip(0..);
        let own = owners.filter(|(owner, _)| owner.get() == self.number + 1);
        own.map(|(_, slot)| slot).collect()
    }
}
