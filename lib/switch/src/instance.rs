//! The memory, sockets and doorbells of one instance, and the table by which it finds them.
//!
//! An instance gets one pool of frame slots and, per port (and queue), one ring map and one socket.
//! Nothing else of the platform is reachable through what it holds.

use crate::SwitchError;
use crate::abi::{PORT_KERNEL_BELL, PORT_LEARN, PORT_PINNED, PORT_UP, PORTS_MAX};
use crate::program::Switch;
use libbpf_rs::{MapHandle, MapType};
use nfluid_ring::attach::{ATTACH_MAGIC, PortEntry, Table, TableHead};
use nfluid_ring::layout::{BLOCK_SLOTS, RING_MAX, RING_MIN, Ring, SLOT_SIZE};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Addresses that one port may teach the switch.
pub const FDB_LIMIT_DEFAULT: u32 = 4096;
/// Ageing time of learned addresses in seconds (IEEE 802.1D).
pub const AGEING_DEFAULT_S: u32 = 300;

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
    /// TX slots of the port's own, a multiple of 64: as many frames as it makes per flush.
    pub tx_slots: u32,
    /// Queue number and number of queues; each queue is a port, with ids one after the other.
    pub queue: (u16, u16),
    /// Frames sent into a switch must carry the port's own address.
    pub pinned: bool,
    /// Source addresses seen on the port enter the FDB.
    pub learn: bool,
    /// The switch itself wakes the receiver, even on a link.
    pub kernel_bell: bool,
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
            queue: (0, 1),
            pinned: true,
            learn: false,
            kernel_bell: false,
        }
    }

    fn check(&self) -> Result<(), SwitchError> {
        let slots = self.ring_slots;
        if !slots.is_power_of_two() || !(RING_MIN as u32..=RING_MAX as u32).contains(&slots) {
            return Err(SwitchError::Limit(format!(
                "port '{}': a ring has 64, 128, 256, 512 or 1024 slots, not {slots}",
                self.name
            )));
        }
        if self.tx_slots == 0 || !self.tx_slots.is_multiple_of(BLOCK_SLOTS as u32) {
            return Err(SwitchError::Limit(format!(
                "port '{}': TX slots come in blocks of {BLOCK_SLOTS}, not {}",
                self.name, self.tx_slots
            )));
        }
        if self.id >= PORTS_MAX || self.name.len() > 31 {
            return Err(SwitchError::Limit(format!(
                "port '{}': id or name too long",
                self.name
            )));
        }
        Ok(())
    }

    pub(crate) fn flags(&self) -> u32 {
        let flag = |on, bit| if on { bit } else { 0 };
        PORT_UP
            | flag(self.pinned, PORT_PINNED)
            | flag(self.learn, PORT_LEARN)
            | flag(self.kernel_bell, PORT_KERNEL_BELL)
    }
}

/// One port's share of an instance's memory.
#[derive(Debug)]
pub struct PortParts {
    /// As asked for.
    pub spec: PortSpec,
    /// The ring map.
    pub ring: MapHandle,
    /// The capability.
    pub socket: OwnedFd,
    pub(crate) rx_base: u32,
    tx_base: u32,
}

/// Everything that an instance's ports consist of.
#[derive(Debug)]
pub struct InstanceMemory {
    /// The pool of frame slots.
    pub pool: MapHandle,
    /// Number of the pool in the switch.
    pub pool_id: u32,
    /// Slots in the pool.
    pub pool_slots: u32,
    /// The kernel's doorbell for all ports of the instance.
    pub kernel_bell: MapHandle,
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
    pub fn create(switch: &Switch, pool: u32, specs: &[PortSpec]) -> Result<Self, SwitchError> {
        let memory = Self::allocate(pool, specs)?;
        switch.enter(&[&memory])?;
        Ok(memory)
    }

    /// As [`InstanceMemory::create`], without entering the ports into the switch: [`Switch::enter`]
    /// does that, for many instances at once.
    ///
    /// # Errors
    /// As for [`InstanceMemory::create`].
    pub fn allocate(pool: u32, specs: &[PortSpec]) -> Result<Self, SwitchError> {
        specs.iter().try_for_each(PortSpec::check)?;
        let mut next_slot = 0;
        let mut take = |slots: u32| {
            let base = next_slot;
            next_slot += slots;
            base
        };
        let bases: Vec<(u32, u32)> = specs
            .iter()
            .map(|spec| (take(spec.ring_slots), take(spec.tx_slots)))
            .collect();
        let pool_slots = next_slot.max(BLOCK_SLOTS as u32);
        let pool_map = create_pool(pool_slots)?;
        let kernel_bell = create_bell()?;
        let mut ports = Vec::with_capacity(specs.len());
        for (spec, (rx_base, tx_base)) in specs.iter().zip(bases) {
            let ring = create_ring()?;
            ports.push(PortParts {
                spec: spec.clone(),
                ring,
                socket: dead_socket()?,
                rx_base,
                tx_base,
            });
        }
        Ok(InstanceMemory {
            pool: pool_map,
            pool_id: pool,
            pool_slots,
            kernel_bell,
            ports,
        })
    }

    /// The descriptors that the instance inherits, each once, in the order in which
    /// [`InstanceMemory::table`] expects their numbers: pool, kernel bell, then ring and socket of
    /// each port.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = vec![self.pool.as_fd(), self.kernel_bell.as_fd()];
        for part in &self.ports {
            fds.push(part.ring.as_fd());
            fds.push(part.socket.as_fd());
        }
        fds
    }

    /// The port table for an instance that has the descriptors of [`InstanceMemory::fds`] under
    /// `numbers`, its own doorbell pipe under `bell` and, per port, the pipe of its link's peer.
    pub fn table(&self, numbers: &[RawFd], bell: RawFd, peer_bells: &[RawFd]) -> Table {
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
                    queues: part.spec.queue.1,
                    ring_fd: number(2 + 2 * i),
                    socket_fd: number(3 + 2 * i),
                    peer_bell_fd: peer_bells.get(i).copied().unwrap_or(-1),
                    ring_slots: part.spec.ring_slots,
                    rx_base: part.rx_base,
                    tx_base: part.tx_base,
                    tx_slots: part.spec.tx_slots,
                }
            })
            .collect();
        let head = TableHead {
            magic: ATTACH_MAGIC,
            ports: ports.len() as u32,
            pool_fd: number(0),
            pool_slots: self.pool_slots,
            bell_fd: bell,
            kernel_bell_fd: number(1),
        };
        Table { head, ports }
    }

    /// Kernel memory of the maps in bytes.
    pub fn bytes(&self) -> usize {
        self.pool_slots as usize * SLOT_SIZE + self.ports.len() * size_of::<Ring>() + 4096
    }
}

/// The socket of a port: one end of a pair whose other end is closed. It can neither send nor be
/// connected anywhere; all that it is good for is the call.
fn dead_socket() -> Result<OwnedFd, SwitchError> {
    let (socket, _other) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(SwitchError::system("making a port's socket"))?;
    Ok(socket)
}

pub(crate) fn create_map(
    kind: MapType,
    name: &str,
    sizes: (u32, u32, u32),
    flags: u32,
) -> Result<MapHandle, SwitchError> {
    let (key, value, entries) = sizes;
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: flags,
        ..Default::default()
    };
    MapHandle::create(kind, Some(OsStr::new(name)), key, value, entries, &options)
        .map_err(SwitchError::bpf(format!("making map {name}")))
}

pub(crate) fn create_ring() -> Result<MapHandle, SwitchError> {
    create_map(
        MapType::Array,
        "nfl_ring",
        (4, size_of::<Ring>() as u32, 1),
        libbpf_sys::BPF_F_MMAPABLE,
    )
}

pub(crate) fn create_pool(slots: u32) -> Result<MapHandle, SwitchError> {
    let block = (BLOCK_SLOTS * SLOT_SIZE) as u32;
    let flags = libbpf_sys::BPF_F_MMAPABLE | libbpf_sys::BPF_F_INNER_MAP;
    create_map(
        MapType::Array,
        "nfl_pool",
        (4, block, slots.div_ceil(BLOCK_SLOTS as u32)),
        flags,
    )
}

pub(crate) fn create_bell() -> Result<MapHandle, SwitchError> {
    create_map(MapType::RingBuf, "nfl_bell", (0, 0, 4096), 0)
}

impl Switch {
    /// Whether the switch itself wakes the port's receiver on a link too: for a sender that cannot.
    pub fn set_kernel_bell(&self, port: u32, on: bool) {
        let flags = &self.state(port).flags;
        if on {
            flags.fetch_or(PORT_KERNEL_BELL, Release);
        } else {
            flags.fetch_and(!PORT_KERNEL_BELL, Release);
        }
    }

    /// Whether source addresses on the port are learned, or must be its own.
    pub fn set_learning(&self, port: u32, learn: bool) {
        let flags = &self.state(port).flags;
        let (on, off) = if learn {
            (PORT_LEARN, PORT_PINNED)
        } else {
            (PORT_PINNED, PORT_LEARN)
        };
        flags.fetch_or(on, Release);
        flags.fetch_and(!off, Release);
    }

    /// How long addresses learned on the port are kept, and how many.
    pub fn set_fdb_limits(&self, port: u32, ageing_s: u32, addresses: u32) {
        self.state(port).ageing.store(ageing_s, Relaxed);
        self.state(port).fdb_limit.store(addresses, Relaxed);
    }

    /// Takes the ports of an instance that has ended out of service and counts what lies unread in
    /// their rings as `reclaimed`. Its processes must be gone. The ports can be used again by
    /// [`Switch::revive`].
    pub fn reclaim(&self, memory: &InstanceMemory) -> Result<u64, SwitchError> {
        let mut lost = 0;
        for part in &memory.ports {
            self.set_up(part.spec.id, false);
            let ring = nfluid_ring::memory::RingMemory::map(part.ring.as_fd())
                .map_err(|error| SwitchError::Limit(error.to_string()))?;
            let words = ring.ring();
            let state = self.state(part.spec.id);
            let reserved = state.rx_reserved.load(Acquire) as u32;
            // The instance's word: believed only as far as its ring goes.
            let head = words.receiver.rx_head.load(Acquire);
            let unread = crate::ports::used(reserved, head, part.spec.ring_slots);
            self.count_drop(
                part.spec.id,
                crate::DropReason::Reclaimed,
                u64::from(unread),
            );
            lost += u64::from(unread);
            words.receiver.rx_head.store(reserved, Release);
            words.receiver.rx_sleep.store(0, Release);
            let consumed = state.tx_pos.load(Acquire);
            words.sender.tx_head.store(consumed, Release);
            words.switch.tx_tail.store(consumed, Release);
            state.rung.store(0, Release);
        }
        Ok(lost)
    }

    /// Puts the ports of an instance back into service, for its successor.
    pub fn revive(&self, memory: &InstanceMemory) {
        for part in &memory.ports {
            self.set_up(part.spec.id, true);
        }
    }
}

impl InstanceMemory {
    /// Pins the maps in `directory`, on a BPF file system, so that they outlive this process.
    ///
    /// # Errors
    /// When the directory cannot be made or the kernel refuses.
    pub fn pin(&mut self, directory: &std::path::Path) -> Result<(), SwitchError> {
        std::fs::create_dir_all(directory).map_err(SwitchError::system(format!(
            "creating {}",
            directory.display()
        )))?;
        let pinning = SwitchError::bpf(format!("pinning maps in {}", directory.display()));
        let mut all = vec![
            (&mut self.pool, "pool".to_owned()),
            (&mut self.kernel_bell, "bell".to_owned()),
        ];
        all.extend(
            self.ports
                .iter_mut()
                .enumerate()
                .map(|(i, part)| (&mut part.ring, format!("ring{i}"))),
        );
        all.into_iter()
            .try_for_each(|(map, name)| map.pin(directory.join(name)))
            .map_err(pinning)
    }

    /// Takes over the maps that were pinned in `directory` for ports made from `specs`: after a
    /// restart of the daemon. The ports get new sockets, for a successor of the instance; what runs
    /// keeps its own.
    ///
    /// # Errors
    /// When a pinned map is missing or the kernel refuses.
    pub fn reopen(
        switch: &Switch,
        directory: &std::path::Path,
        specs: &[PortSpec],
    ) -> Result<Self, SwitchError> {
        let open = |name: String| {
            let path = directory.join(name);
            MapHandle::from_pinned_path(&path)
                .map_err(SwitchError::bpf(format!("opening {}", path.display())))
        };
        let mut ports = Vec::with_capacity(specs.len());
        let mut next_slot = 0;
        for (i, spec) in specs.iter().enumerate() {
            let (rx_base, tx_base) = (next_slot, next_slot + spec.ring_slots);
            next_slot = tx_base + spec.tx_slots;
            let part = PortParts {
                spec: spec.clone(),
                ring: open(format!("ring{i}"))?,
                socket: dead_socket()?,
                rx_base,
                tx_base,
            };
            switch.identify(&part)?;
            ports.push(part);
        }
        let pool_slots = next_slot.max(BLOCK_SLOTS as u32);
        let first = specs.first().map(|spec| switch.state(spec.id));
        Ok(InstanceMemory {
            pool: open("pool".to_owned())?,
            pool_id: first.map_or(0, |state| state.pool.load(Acquire)),
            pool_slots,
            kernel_bell: open("bell".to_owned())?,
            ports,
        })
    }
}
