//! Trust groups: instances that share a pool, so that a frame goes from one to the next by an exchange
//! of slots (`bpf/switch/exchange.h`, `docs/adr/0009-trust-groups.md`).
//!
//! The table of owners contains the owner of each slot. Only the switch and the platform can write the table. A member
//! owns as many slots as it was given when it joined, whatever it writes into its rings. When the member ends in any
//! way, the table shows the slots that it owned.

use crate::SwitchError;
use crate::abi::{GROUPS_MAX, OWNER_MOVING, OWNERS};
use crate::handover::Maps;
use crate::instance::InstanceMemory;
use crate::maps::{create_map, create_pool, open_pinned, pin_maps};
use crate::program::Switch;
use crate::tables::insert;
use libbpf_rs::{MapCore, MapHandle, MapType};
use nfluid_ring::layout::{BLOCK_SLOTS, SHARED_SLOTS_MAX, rx_desc_with_slot, tx_desc};
use nfluid_ring::memory::RingMemory;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The owner word of a free slot.
const FREE: u32 = 0;

/// A pool that instances share.
#[derive(Debug)]
pub struct Group {
    id: u32,
    slots: u32,
    pool: MapHandle,
    table: MapHandle,
    owners: Owners,
    /// Slots that no member owns: each end of a member needs to know if the group is empty.
    free: AtomicU32,
}

impl Group {
    /// Makes the pool of group `id`, from 1 to [`GROUPS_MAX`] - 1, chosen by the caller, with at least
    /// `slots` slots, and enters it into the switch.
    ///
    /// # Errors
    /// When these are too many slots, or the kernel refuses (memory, limits).
    pub fn create(switch: &Switch, id: u32, slots: u32) -> Result<Self, SwitchError> {
        if id == 0 || id >= GROUPS_MAX {
            return Err(SwitchError::Limit(format!(
                "a platform has at most {} trust groups",
                GROUPS_MAX - 1
            )));
        }
        let slots = slots.div_ceil(BLOCK_SLOTS as u32).max(1) * BLOCK_SLOTS as u32;
        if slots > SHARED_SLOTS_MAX {
            return Err(SwitchError::Limit(format!(
                "a trust group shares at most {SHARED_SLOTS_MAX} slots, not {slots}: make rings shorter (flavor) or the group smaller"
            )));
        }
        let table = create_map(
            MapType::Array,
            "nfl_owners",
            (4, (OWNERS * size_of::<u32>()) as u32, 1),
            libbpf_sys::BPF_F_MMAPABLE,
        )?;
        let group = Group {
            id,
            slots,
            pool: create_pool(slots)?,
            owners: Owners::map(table.as_fd())?,
            table,
            free: AtomicU32::new(slots),
        };
        insert(
            &switch.owners,
            &[(id, group.table.as_fd())],
            "entering a trust group",
        )?;
        Ok(group)
    }

    /// Pins the maps in `directory`, on a BPF file system, so that they outlive this process.
    ///
    /// # Errors
    /// When the directory cannot be made or the kernel refuses.
    pub fn pin(&mut self, directory: &Path) -> Result<(), SwitchError> {
        pin_maps(
            directory,
            [(&mut self.pool, "pool"), (&mut self.table, "owners")],
        )
    }

    /// Takes over the group that was pinned in `directory`.
    ///
    /// # Errors
    /// When a pinned map is missing or the kernel refuses.
    pub fn reopen(directory: &Path, id: u32) -> Result<Self, SwitchError> {
        let open = |name: &str| open_pinned(&directory.join(name));
        let (pool, table) = (open("pool")?, open("owners")?);
        let group = Group {
            id,
            slots: pool.max_entries() * BLOCK_SLOTS as u32,
            owners: Owners::map(table.as_fd())?,
            pool,
            table,
            free: AtomicU32::new(0),
        };
        group.count_free();
        Ok(group)
    }

    /// The group's number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Slots of the pool.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Slots that no member owns.
    pub fn free_slots(&self) -> u32 {
        self.free.load(Relaxed)
    }

    fn count_free(&self) {
        let of = self.owners.of(self.slots);
        let free = of.filter(|(_, owner)| owner.load(Relaxed) == FREE).count();
        self.free.store(free as u32, Relaxed);
    }

    /// Slots that the instance with pool number `pool` owns.
    pub fn slots_of(&self, pool: u32) -> Vec<u32> {
        self.owned_by(pool).collect()
    }

    fn owned_by(&self, pool: u32) -> impl Iterator<Item = u32> {
        let of = self.owners.of(self.slots);
        of.filter(move |(_, owner)| owner.load(Acquire) == pool + 1)
            .map(|(slot, _)| slot)
    }

    /// Frees the slots of all owners but the instances with these pool numbers, which may be at work.
    pub fn keep_only(&self, pools: &BTreeSet<u32>) {
        for (_, owner) in self.owners.of(self.slots) {
            let is = owner.load(Acquire);
            if is != FREE && is != OWNER_MOVING && !pools.contains(&(is - 1)) {
                let _ = owner.compare_exchange(is, FREE, AcqRel, Relaxed);
            }
        }
        self.count_free();
    }

    pub(crate) fn pool(&self) -> Result<MapHandle, SwitchError> {
        MapHandle::try_from(&self.pool).map_err(SwitchError::bpf("opening a trust group's pool"))
    }

    /// Gives the instance, whose ports are in no service yet, as many slots as it needs.
    pub(crate) fn join(&self, memory: &InstanceMemory, maps: &Maps) -> Result<(), SwitchError> {
        let need = memory.own_slots();
        let me = memory.pool_id + 1;
        let taken = self
            .owners
            .of(self.slots)
            .filter(|(_, owner)| owner.compare_exchange(FREE, me, AcqRel, Relaxed).is_ok())
            .take(need as usize)
            .count() as u32;
        self.free.fetch_sub(taken, Relaxed);
        if taken < need {
            self.leave(memory.pool_id, taken);
            return Err(SwitchError::Limit(format!(
                "the trust group's pool of {} slots has {taken} left, the instance needs {need}",
                self.slots
            )));
        }
        self.deal(memory, maps)
    }

    /// Frees the slots of a member, as many as the member was given. No frame may be delivered to the member or from
    /// it any more. The slots are only found by looking at the owners: as far as the last slot of the member, and at
    /// most at the group's own.
    fn leave(&self, pool: u32, given: u32) {
        let is_left = |(_, owner): &(u32, &AtomicU32)| {
            let left = owner.compare_exchange(pool + 1, FREE, AcqRel, Relaxed);
            left.is_ok()
        };
        let of = self.owners.of(self.slots).filter(is_left);
        let left = of.take(given as usize).count();
        self.free.fetch_add(left as u32, Relaxed);
    }

    /// Writes into the rings of a member that is out of service which slots the member has: one per RX position, the
    /// others in the TX ring. Only the table knows where the slots were when the member's process ended.
    pub(crate) fn deal(&self, memory: &InstanceMemory, maps: &Maps) -> Result<(), SwitchError> {
        let owned = self.owned_by(memory.pool_id);
        let mut slots = owned.take(memory.own_slots() as usize);
        for (part, ring) in memory.ports.iter().zip(&maps.rings) {
            let ring = RingMemory::map(ring.as_fd())
                .map_err(|error| SwitchError::Limit(error.to_string()))?;
            let words = ring.ring();
            let mask = part.spec.ring_slots - 1;
            for (desc, slot) in words.rx.iter().zip(&mut slots).take(mask as usize + 1) {
                desc.store(rx_desc_with_slot(desc.load(Relaxed), slot), Release);
            }
            let first = words.switch.tx_tail.load(Acquire);
            for (i, slot) in (0..part.spec.tx_slots).zip(&mut slots) {
                let index = (first.wrapping_add(i) & mask) as usize;
                words.tx[index].store(tx_desc(0, slot), Release);
            }
        }
        Ok(())
    }
}

impl Switch {
    /// Returns the slots of members that were removed, once no call uses their ports any more.
    pub(crate) fn leave_groups(&self, memories: &[&InstanceMemory]) {
        for memory in memories {
            if let Some(group) = &memory.group {
                group.leave(memory.pool_id, memory.own_slots());
            }
        }
    }

    /// The number of the trust group that the port's instance is in; 0: none.
    pub fn group_of(&self, port: u32) -> u32 {
        self.state(port).group.load(Acquire)
    }

    /// Takes the group out of the switch; it must have no members.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_group(&self, group: &Group) -> Result<(), SwitchError> {
        self.owners
            .delete(&group.id.to_ne_bytes())
            .map_err(SwitchError::bpf("removing a trust group"))
    }
}

/// The mapping of a group's table of owners: only the platform has it.
#[derive(Debug)]
struct Owners(NonNull<[AtomicU32; OWNERS]>);

// SAFETY: the table is made of atomics in a shared mapping that lives as long as `self`.
unsafe impl Send for Owners {}
// SAFETY: as above.
unsafe impl Sync for Owners {}

impl Owners {
    fn map(fd: BorrowedFd<'_>) -> Result<Self, SwitchError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe {
            mmap(
                null_mut(),
                size_of::<[AtomicU32; OWNERS]>(),
                access,
                MapFlags::SHARED,
                fd,
                0,
            )
        }
        .map_err(SwitchError::system("mapping a trust group's owners"))?;
        let start = NonNull::new(start.cast()).expect("mmap returns no null pointer on success");
        Ok(Owners(start))
    }

    /// The first `slots` slots with their owners.
    fn of(&self, slots: u32) -> impl Iterator<Item = (u32, &AtomicU32)> {
        // SAFETY: the mapping has the size of the table, is page-aligned, and lives as long as `self`;
        // the table is made of atomics, valid for any bits.
        let table = unsafe { self.0.as_ref() };
        (0..slots).zip(table)
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        // SAFETY: we made this mapping, and all borrows of it end with `self`.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<[AtomicU32; OWNERS]>()) };
    }
}
