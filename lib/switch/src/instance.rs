//! The ports of one instance and their memory, and the table by which it finds them.
//!
//! The descriptors that the instance finds there are its [`Handover`]: the process that has started the instance can
//! close them.

use crate::SwitchError;
use crate::abi::{
    PORT_CHECKSUMS, PORT_KERNEL_DOORBELL, PORT_LEARN, PORT_LONG, PORT_PINNED, PORT_SUPER, PORT_UP,
    PORTS_MAX,
};
use crate::group::Group;
use crate::handover::{Handover, Maps};
use crate::maps::create_pool;
use crate::program::Switch;
use nfluid_ring::Level;
use nfluid_ring::layout::{BLOCK_SLOTS, RING_MAX, RING_MIN, Ring, SLOT_SIZE, is_long_area};
use nfluid_ring::table::{ATTACH_MAGIC, ATTACH_MAGIC_SHARED, PortEntry, Table, TableHead};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

/// Addresses that one port may teach the switch.
pub const FDB_LIMIT_DEFAULT: u32 = 4096;
/// Longest that a frame may wait for others before its sleeping receiver is woken.
pub const WAKE_AFTER_MAX: Duration = Duration::from_secs(1);
/// TX slots of a port are a multiple of so many: those of two ports fill blocks.
const TX_STEP: u32 = 32;
/// Ageing time of learned addresses in seconds (IEEE 802.1D).
pub const AGEING_DEFAULT_S: u32 = 300;

/// Condition on which a sleeping receiver is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// As soon as so many frames wait; 0 and 1: for each. At most half of the ring.
    pub frames: u32,
    /// At the latest so long after the first of them.
    pub after: Duration,
}

impl Wake {
    /// For each frame, at once.
    pub const AT_ONCE: Wake = Wake {
        frames: 1,
        after: Duration::ZERO,
    };

    pub(crate) fn check(self, port: &str, ring_slots: u32) -> Result<(), SwitchError> {
        if self.frames <= 1 {
            return Ok(());
        }
        if self.frames > ring_slots / 2 {
            return Err(SwitchError::Limit(format!(
                "port '{port}': a receiver can wait for at most half of its ring of {ring_slots} slots, not for {} frames",
                self.frames
            )));
        }
        if self.after.is_zero() || self.after > WAKE_AFTER_MAX {
            return Err(SwitchError::Limit(format!(
                "port '{port}': a receiver that waits for several frames is woken after 1 us to {} ms, not {:?}",
                WAKE_AFTER_MAX.as_millis(),
                self.after
            )));
        }
        Ok(())
    }
}

/// A port's slots for long frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongSlots {
    /// For frames that the port receives: 0, or a power of two, 64..=4096. A frame takes up to 32 of them, and up to half
    /// of them stay empty, because no frame crosses a block of 64.
    pub rx: u32,
    /// For frames that the port's owner makes, as `rx`.
    pub tx: u32,
}

impl LongSlots {
    /// None: no frame is longer than a slot.
    pub const NONE: LongSlots = LongSlots { rx: 0, tx: 0 };
}

/// A port to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Platform-wide number of the port, below [`PORTS_MAX`], chosen by the caller.
    pub id: u32,
    /// Name within the instance, at most 31 bytes.
    pub name: String,
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Slots of the ring: a power of two, 64..=1024.
    pub ring_slots: u32,
    /// TX slots of the port's own, a multiple of 32: as many frames as it makes per flush. 0 for one that only forwards.
    pub tx_slots: u32,
    /// Slots for long frames.
    pub long: LongSlots,
    /// What the port's owner takes of frames to which something is still to be done. [`Level::Super`] needs slots for long
    /// frames.
    pub level: Level,
    /// Queue number and number of queues; each queue is a port, with ids one after the other.
    pub queue: (u16, u16),
    /// Frames sent into a switch must carry the port's own address.
    pub pinned: bool,
    /// Source addresses seen on the port enter the FDB.
    pub learn: bool,
    /// The switch itself wakes the receiver, even on a link.
    pub kernel_doorbell: bool,
    /// Condition on which the receiver is woken if it sleeps.
    pub wake: Wake,
}

impl PortSpec {
    /// A pinned port with one queue and a pool of 64 TX slots.
    pub fn new(id: u32, name: &str, mac: [u8; 6], ring_slots: u32) -> Self {
        PortSpec {
            id,
            name: name.to_owned(),
            mac,
            mtu: 1500,
            ring_slots,
            tx_slots: BLOCK_SLOTS as u32,
            long: LongSlots::NONE,
            level: Level::Plain,
            queue: (0, 1),
            pinned: true,
            learn: false,
            kernel_doorbell: false,
            wake: Wake::AT_ONCE,
        }
    }

    pub(crate) fn check(&self) -> Result<(), SwitchError> {
        let slots = self.ring_slots;
        if !slots.is_power_of_two() || !(RING_MIN as u32..=RING_MAX as u32).contains(&slots) {
            return Err(SwitchError::Limit(format!(
                "port '{}': a ring has 64, 128, 256, 512 or 1024 slots, not {slots}",
                self.name
            )));
        }
        if !self.tx_slots.is_multiple_of(TX_STEP) {
            return Err(SwitchError::Limit(format!(
                "port '{}': TX slots come in multiples of {TX_STEP}, not {}",
                self.name, self.tx_slots
            )));
        }
        for long in [self.long.rx, self.long.tx] {
            if !is_long_area(long) {
                return Err(SwitchError::Limit(format!(
                    "port '{}': a port has 64, 128, 256, 512, 1024, 2048 or 4096 slots for long frames, or 0, not {long}",
                    self.name
                )));
            }
        }
        if self.level == Level::Super && self.long.rx == 0 {
            return Err(SwitchError::Limit(format!(
                "port '{}': super-frames need slots for long frames",
                self.name
            )));
        }
        self.wake.check(&self.name, slots)?;
        if self.id >= PORTS_MAX || self.name.len() > 31 {
            return Err(SwitchError::Limit(format!(
                "port '{}': id or name too long",
                self.name
            )));
        }
        Ok(())
    }

    /// Members of a group find their TX slots in the TX ring.
    fn check_shared(&self) -> Result<(), SwitchError> {
        self.check()?;
        if self.long != LongSlots::NONE || self.level != Level::Plain {
            return Err(SwitchError::Limit(format!(
                "port '{}': a member of a trust group takes no long frames, partial checksums or super-frames",
                self.name
            )));
        }
        if self.tx_slots > self.ring_slots {
            return Err(SwitchError::Limit(format!(
                "port '{}': a member of a trust group has at most as many TX slots as its ring, {}, not {}",
                self.name, self.ring_slots, self.tx_slots
            )));
        }
        Ok(())
    }

    pub(crate) fn flags(&self) -> u32 {
        let flag = |on, bit| if on { bit } else { 0 };
        PORT_UP
            | flag(self.pinned, PORT_PINNED)
            | flag(self.learn, PORT_LEARN)
            | flag(self.kernel_doorbell, PORT_KERNEL_DOORBELL)
            | flag(self.long.rx > 0, PORT_LONG)
            | level_flags(self.level)
    }
}

pub(crate) fn level_flags(level: Level) -> u32 {
    match level {
        Level::Plain => 0,
        Level::Checksums => PORT_CHECKSUMS,
        Level::Super => PORT_CHECKSUMS | PORT_SUPER,
    }
}

/// The memory of a single port of an instance.
#[derive(Clone, Debug)]
pub struct PortParts {
    /// As asked for.
    pub spec: PortSpec,
    pub(crate) bases: Bases,
}

/// The first slots of a port in its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bases {
    /// Of its RX slots.
    pub(crate) rx: u32,
    /// Of its TX slots.
    pub(crate) tx: u32,
    /// Of its slots for long frames that it receives.
    pub(crate) rx_long: u32,
    /// Of its slots for long frames that its owner makes.
    pub(crate) tx_long: u32,
}

/// Numbers under which an instance has the descriptors of doorbells; -1: it has none.
#[derive(Clone, Copy, Debug)]
pub struct Doorbells<'a> {
    /// Read end of its own doorbell pipe.
    pub own: RawFd,
    /// The eventfd of its I/O thread.
    pub io: RawFd,
    /// Per port, write end of the pipe of its link's peer.
    pub peers: &'a [RawFd],
}

/// The ports of an instance, and their places in its memory. No descriptor of the instance is in here.
#[derive(Debug)]
pub struct InstanceMemory {
    /// Number of the pool in the switch.
    pub pool_id: u32,
    /// Slots in the pool.
    pub pool_slots: u32,
    /// The trust group whose pool it is.
    pub group: Option<Arc<Group>>,
    /// The ports, in the order in which they were asked for.
    pub ports: Vec<PortParts>,
}

impl InstanceMemory {
    /// Makes the maps and sockets of an instance and enters its ports, up and not connected, into
    /// the switch. `pool` is the id of its pool, below [`PORTS_MAX`], chosen by the caller. The
    /// calling process must be in the switch's cgroup.
    ///
    /// # Errors
    /// When a spec is wrong, or the kernel refuses (memory, limits).
    pub fn create(
        switch: &Switch,
        pool: u32,
        specs: &[PortSpec],
    ) -> Result<(Self, Handover), SwitchError> {
        let (memory, handover) = Self::allocate(pool, specs)?;
        switch.enter(&[(&memory, &handover)])?;
        Ok((memory, handover))
    }

    /// As [`InstanceMemory::create`], without entering the ports into the switch: [`Switch::enter`]
    /// does that, for many instances at once.
    ///
    /// # Errors
    /// As for [`InstanceMemory::create`].
    pub fn allocate(pool: u32, specs: &[PortSpec]) -> Result<(Self, Handover), SwitchError> {
        specs.iter().try_for_each(PortSpec::check)?;
        let pool_slots = slots_of(specs).max(BLOCK_SLOTS as u32);
        let memory = InstanceMemory {
            pool_id: pool,
            pool_slots,
            group: None,
            ports: parts_of(specs, &bases(specs)),
        };
        let maps = Maps::create(create_pool(pool_slots)?, specs.len())?;
        Ok((memory, Handover::of(maps)?))
    }

    /// As [`InstanceMemory::allocate`], of an instance that joins `group`: its slots are the group's.
    ///
    /// # Errors
    /// As for [`InstanceMemory::create`], and when the group has too few slots left.
    pub fn allocate_in(
        group: &Arc<Group>,
        pool: u32,
        specs: &[PortSpec],
    ) -> Result<(Self, Handover), SwitchError> {
        specs.iter().try_for_each(PortSpec::check_shared)?;
        let memory = InstanceMemory {
            pool_id: pool,
            pool_slots: group.slots(),
            group: Some(Arc::clone(group)),
            ports: parts_of(specs, &vec![Bases::default(); specs.len()]),
        };
        let handover = Handover::of(Maps::create(group.pool()?, specs.len())?)?;
        group.join(&memory, &handover.maps)?;
        Ok((memory, handover))
    }

    /// Opens the ports made from `specs` whose maps were pinned in `directory`, after a restart of the daemon;
    /// `group` is the trust group of the instance. A running process keeps its sockets; a successor of the process
    /// gets others by [`Switch::hand_over`].
    ///
    /// # Errors
    /// When a pinned map is missing or the kernel refuses.
    pub fn reopen(
        switch: &Switch,
        directory: &Path,
        specs: &[PortSpec],
        group: Option<Arc<Group>>,
    ) -> Result<(Self, Maps), SwitchError> {
        let maps = Maps::open(directory, specs.len())?;
        let bases = match group {
            Some(_) => vec![Bases::default(); specs.len()],
            None => bases(specs),
        };
        let own = slots_of(specs).max(BLOCK_SLOTS as u32);
        let pool_slots = group.as_ref().map_or(own, |group| group.slots());
        let first = specs.first().map(|spec| switch.state(spec.id));
        let memory = InstanceMemory {
            pool_id: first.map_or(0, |state| state.pool.load(Acquire)),
            pool_slots,
            group,
            ports: parts_of(specs, &bases),
        };
        Ok((memory, maps))
    }

    /// Slots that are the instance's: those of its pool, or its part of its group's.
    pub(crate) fn own_slots(&self) -> u32 {
        slots_of(self.ports.iter().map(|part| &part.spec))
    }

    /// The port table for an instance that has the descriptors of [`Handover::fds`] under
    /// `numbers`, and its doorbells.
    pub fn table(&self, numbers: &[RawFd], doorbells: &Doorbells<'_>) -> Table {
        let number = |index: usize| numbers.get(index).copied().unwrap_or(-1);
        let ports: Vec<PortEntry> = self
            .ports
            .iter()
            .enumerate()
            .map(|(i, part)| {
                let mut name = [0u8; 32];
                name[..part.spec.name.len()].copy_from_slice(part.spec.name.as_bytes());
                PortEntry {
                    name,
                    mac: part.spec.mac,
                    mtu: part.spec.mtu,
                    queue: part.spec.queue.0,
                    // An instance has at most 64 ports, queues counted.
                    queues: u8::try_from(part.spec.queue.1).unwrap_or(u8::MAX),
                    level: part.spec.level as u8,
                    ring_fd: number(2 + 2 * i),
                    socket_fd: number(3 + 2 * i),
                    peer_doorbell_fd: doorbells.peers.get(i).copied().unwrap_or(-1),
                    ring_slots: part.spec.ring_slots,
                    rx_base: part.bases.rx,
                    tx_base: part.bases.tx,
                    tx_slots: part.spec.tx_slots,
                    rx_long_base: part.bases.rx_long,
                    rx_long_slots: part.spec.long.rx,
                    tx_long_base: part.bases.tx_long,
                    tx_long_slots: part.spec.long.tx,
                }
            })
            .collect();
        let head = TableHead {
            magic: if self.group.is_some() {
                ATTACH_MAGIC_SHARED
            } else {
                ATTACH_MAGIC
            },
            ports: ports.len() as u32,
            pool_fd: number(0),
            pool_slots: self.pool_slots,
            doorbell_fd: doorbells.own,
            kernel_doorbell_fd: number(1),
            io_doorbell_fd: doorbells.io,
        };
        Table { head, ports }
    }

    /// Kernel memory of the maps in bytes; of a group's pool, the instance's part.
    pub fn bytes(&self) -> usize {
        let slots = if self.group.is_some() {
            self.own_slots()
        } else {
            self.pool_slots
        };
        slots as usize * SLOT_SIZE + self.ports.len() * size_of::<Ring>() + 4096
    }
}

/// Slots that ports with these specs need.
pub fn slots_of<'a>(specs: impl IntoIterator<Item = &'a PortSpec>) -> u32 {
    let (mut short, mut long) = (0u32, 0);
    for spec in specs {
        short += spec.ring_slots + spec.tx_slots;
        long += spec.long.rx + spec.long.tx;
    }
    match long {
        0 => short,
        long => short.next_multiple_of(BLOCK_SLOTS as u32) + long,
    }
}

/// Where the slots of each port are: those of all ports one after the other, then, in whole blocks, those for long frames.
fn bases(specs: &[PortSpec]) -> Vec<Bases> {
    let mut next = 0;
    let mut take = |slots: u32| {
        let base = next;
        next += slots;
        base
    };
    let short = |spec: &PortSpec| (take(spec.ring_slots), take(spec.tx_slots));
    let short: Vec<_> = specs.iter().map(short).collect();
    let mut next = next.next_multiple_of(BLOCK_SLOTS as u32);
    let mut take_long = |slots: u32| {
        let base = if slots > 0 { next } else { 0 };
        next += slots;
        base
    };
    let places = specs.iter().zip(short);
    places
        .map(|(spec, (rx, tx))| Bases {
            rx,
            tx,
            rx_long: take_long(spec.long.rx),
            tx_long: take_long(spec.long.tx),
        })
        .collect()
}

fn parts_of(specs: &[PortSpec], bases: &[Bases]) -> Vec<PortParts> {
    let part = |(spec, bases): (&PortSpec, &Bases)| PortParts {
        spec: spec.clone(),
        bases: *bases,
    };
    specs.iter().zip(bases).map(part).collect()
}
