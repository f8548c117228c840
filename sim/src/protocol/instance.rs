//! Instances of one port: their memory, and the real ports that attach to it.

use super::memory::{Memory, PORT_CHECKSUMS, PORT_LONG, PORT_SUPER, Pool, RingFile, memory_file};
use nfluid_ring::attach::Attached;
use nfluid_ring::layout::{BLOCK_SLOTS, Released, rx_desc_of};
use nfluid_ring::memory::Pool as MappedPool;
use nfluid_ring::offload::Level;
use nfluid_ring::port::{Port, PortFds};
use nfluid_ring::table::{ATTACH_MAGIC, ATTACH_MAGIC_SHARED, PortEntry, TableHead};
use std::fs::File;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Slots for long frames, as `nfluid_switch::LongSlots`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongSlots {
    /// Those of frames that the port receives.
    pub rx: u32,
    /// Those of frames that its owner makes.
    pub tx: u32,
}

/// Capabilities of an instance, and the first positions of its rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// Slots for long frames.
    pub long: LongSlots,
    /// The highest level of offload metadata that it takes.
    pub level: Level,
    /// The first positions of its rings: those of an instance that has worked for long are not 0.
    pub begins: Released,
}

/// The memory and the ports of an instance.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The port's number, and its pool's.
    pub number: u32,
    /// The trust group; 0: none.
    pub group: u32,
    /// Slots of each ring, and as many TX slots.
    pub slots: u32,
    /// Slots for long frames.
    pub long: LongSlots,
    /// The highest level of offload metadata that it takes.
    pub level: Level,
    /// The first positions of its rings.
    pub begins: Released,
    /// Rings.
    pub ring: Rc<RingFile>,
    /// The instance's pool, or its group's.
    pub pool: Rc<Pool>,
}

impl Instance {
    /// Makes an instance's memory. A member of a group has its slots in `shared`.
    pub fn create(
        number: u32,
        slots: u32,
        (group, shared): (u32, Option<&Rc<Pool>>),
        form: Form,
    ) -> Self {
        let Form {
            long,
            level,
            begins,
        } = form;
        let own = || Pool::create(2 * slots + long.rx + long.tx);
        let instance = Instance {
            number,
            group,
            slots,
            long,
            level,
            begins,
            ring: RingFile::create(),
            pool: shared.cloned().unwrap_or_else(own),
        };
        instance.begin();
        instance
    }

    fn begin(&self) {
        let ring = self.ring.ring();
        let Released { head, .. } = self.begins;
        ring.receiver.rx_released.store(self.begins.word(), SeqCst);
        ring.sender.tx_head.store(head, SeqCst);
        ring.switch.tx_tail.store(head, SeqCst);
        if self.begins == Released::default() {
            return;
        }
        // The frames that were published before.
        for position in (1..=self.slots).map(|back| head.wrapping_sub(back)) {
            let index = position & (self.slots - 1);
            let desc = rx_desc_of(0, position.wrapping_add(1));
            ring.rx[index as usize].store(desc, SeqCst);
        }
    }

    /// The first slot for long frames that the port receives: behind the others, in whole blocks.
    pub fn rx_long_base(&self) -> u32 {
        match self.long.rx {
            0 => 0,
            _ => self.long_base(),
        }
    }

    fn tx_long_base(&self) -> u32 {
        match self.long.tx {
            0 => 0,
            _ => self.long_base() + self.long.rx,
        }
    }

    fn long_base(&self) -> u32 {
        (2 * self.slots).next_multiple_of(BLOCK_SLOTS as u32)
    }

    /// The flags of its port for these capabilities.
    pub(super) fn flags(&self) -> u32 {
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        flag(self.long.rx > 0, PORT_LONG)
            | flag(self.level >= Level::Checksums, PORT_CHECKSUMS)
            | flag(self.level >= Level::Super, PORT_SUPER)
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
        let pool = MappedPool::of(&head, memory_file(0).as_fd()).expect("a pool can be mapped");
        let pool = Arc::new(pool);
        [0, self.slots].map(|tx_slots| {
            let tx_long_slots = if tx_slots > 0 { self.long.tx } else { 0 };
            let entry = PortEntry {
                name: [0; 32],
                mac: [0; 6],
                mtu: 1500,
                queue: 0,
                queues: 1,
                level: self.level as u8,
                socket_fd: -1,
                ring_fd: -1,
                peer_doorbell_fd: -1,
                ring_slots: self.slots,
                rx_base: 0,
                tx_base: self.slots,
                tx_slots,
                rx_long_base: self.rx_long_base(),
                rx_long_slots: self.long.rx,
                tx_long_base: self.tx_long_base(),
                tx_long_slots,
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
