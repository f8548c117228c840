//! Entering instances into the switch's tables and taking them out, many at once.
//!
//! Each change of a table of maps waits for a grace period of the kernel, 10 ms and more: the tables
//! are changed by one batch each, however many instances there are.

use crate::SwitchError;
use crate::abi::{dest, mac_word};
use crate::instance::{
    AGEING_DEFAULT_S, FDB_LIMIT_DEFAULT, InstanceMemory, PortParts, create_bell, create_pool,
    create_ring,
};
use crate::program::Switch;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nfluid_ring::layout::BLOCK_SLOTS;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// What takes the place of the maps of removed instances: a deletion would wait for a grace period
/// each.
#[derive(Debug)]
pub(crate) struct Placeholders {
    ring: MapHandle,
    bell: MapHandle,
    pool: MapHandle,
}

impl Placeholders {
    pub(crate) fn create() -> Result<Self, SwitchError> {
        Ok(Placeholders {
            ring: create_ring()?,
            bell: create_bell()?,
            pool: create_pool(BLOCK_SLOTS as u32)?,
        })
    }
}

/// Inserts inner maps in one batch.
pub(crate) fn insert(
    outer: &MapHandle,
    inner: &[(u32, BorrowedFd<'_>)],
    what: &str,
) -> Result<(), SwitchError> {
    if inner.is_empty() {
        return Ok(());
    }
    let keys: Vec<u8> = inner.iter().flat_map(|(id, _)| id.to_ne_bytes()).collect();
    let fds: Vec<u8> = inner
        .iter()
        .flat_map(|(_, fd)| fd.as_raw_fd().to_ne_bytes())
        .collect();
    outer
        .update_batch(
            &keys,
            &fds,
            inner.len() as u32,
            MapFlags::ANY,
            MapFlags::ANY,
        )
        .map_err(SwitchError::bpf(what))
}

impl Switch {
    /// Enters the ports of instances, up and not connected. The calling process must be in the
    /// switch's cgroup.
    ///
    /// # Errors
    /// When the kernel refuses; none of the ports is there then.
    pub fn enter(&self, memories: &[&InstanceMemory]) -> Result<(), SwitchError> {
        let entered = self.try_enter(memories);
        if entered.is_err() {
            // What refused to take the maps may well refuse their placeholders; the ports are down.
            let _ = self.remove_all(memories);
        }
        entered
    }

    fn try_enter(&self, memories: &[&InstanceMemory]) -> Result<(), SwitchError> {
        // A port with this number may be in service still: of an uplink whose process has died. What
        // is sent to it now must not be reserved in the old ring's order and published in the new
        // ring. The first batch waits until every call that has seen the port up is over.
        for part in memories.iter().flat_map(|memory| &memory.ports) {
            self.state(part.spec.id).flags.store(0, Release);
        }
        let pools: Vec<_> = memories
            .iter()
            .map(|memory| (memory.pool_id, memory.pool.as_fd()))
            .collect();
        insert(&self.pools, &pools, "entering the pools")?;
        let ports = || {
            memories
                .iter()
                .flat_map(|memory| memory.ports.iter().map(move |part| (*memory, part)))
        };
        let rings: Vec<_> = ports()
            .map(|(_, part)| (part.spec.id, part.ring.as_fd()))
            .collect();
        insert(&self.rings, &rings, "entering the rings")?;
        let bells: Vec<_> = ports()
            .map(|(memory, part)| (part.spec.id, memory.kernel_bell.as_fd()))
            .collect();
        insert(&self.bells, &bells, "entering the doorbells")?;
        for (memory, part) in ports() {
            enter_state(self, memory.pool_id, part);
            self.identify(part)?;
        }
        Ok(())
    }

    /// Makes the port's socket the capability for it.
    pub(crate) fn identify(&self, part: &PortParts) -> Result<(), SwitchError> {
        self.identity
            .update(
                &part.socket.as_raw_fd().to_ne_bytes(),
                &part.spec.id.to_ne_bytes(),
                MapFlags::ANY,
            )
            .map_err(SwitchError::bpf("giving the socket its port"))
    }

    /// Removes the ports of an instance: see [`Switch::remove_all`].
    ///
    /// # Errors
    /// As for [`Switch::remove_all`].
    pub fn remove(&self, memory: &InstanceMemory) -> Result<(), SwitchError> {
        self.remove_all(&[memory])
    }

    /// Removes the ports of instances from the switch. Their maps live on as long as somebody holds
    /// them, but nothing reaches them any more.
    ///
    /// # Errors
    /// When the kernel refuses. The ports are down all the same.
    pub fn remove_all(&self, memories: &[&InstanceMemory]) -> Result<(), SwitchError> {
        let pools: Vec<u32> = memories.iter().map(|memory| memory.pool_id).collect();
        let ports = memories.iter().flat_map(|memory| &memory.ports);
        let ports: Vec<u32> = ports.map(|part| part.spec.id).collect();
        self.remove_ids(&pools, &ports)
    }

    /// As [`Switch::remove_all`], for pools and ports of which nothing but the numbers is known: what
    /// a process that has died had made.
    ///
    /// # Errors
    /// As for [`Switch::remove_all`].
    pub fn remove_ids(&self, pools: &[u32], ports: &[u32]) -> Result<(), SwitchError> {
        let disconnected = self.disconnect_all(ports);
        let with = |ids: &[u32], fd| ids.iter().map(|id| (*id, fd)).collect::<Vec<_>>();
        let empty = self.placeholders()?;
        let rings = with(ports, empty.ring.as_fd());
        let bells = with(ports, empty.bell.as_fd());
        let pools = with(pools, empty.pool.as_fd());
        insert(&self.rings, &rings, "removing the rings")?;
        insert(&self.bells, &bells, "removing the doorbells")?;
        insert(&self.pools, &pools, "removing the pools")?;
        disconnected
    }

    fn placeholders(&self) -> Result<&Placeholders, SwitchError> {
        if let Some(made) = self.placeholders.get() {
            return Ok(made);
        }
        let made = Placeholders::create()?;
        Ok(self.placeholders.get_or_init(|| made))
    }

    /// Takes ports down and off their switches.
    fn disconnect_all(&self, ports: &[u32]) -> Result<(), SwitchError> {
        let mut on_switches: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for port in ports {
            let state = self.state(*port);
            state.flags.store(0, Release);
            if state.dest_kind.load(Acquire) == dest::SWITCH {
                let switch = state.dest.load(Acquire);
                on_switches.entry(switch).or_default().insert(*port);
            }
            state.dest.store(0, Release);
            state.dest_kind.store(dest::NONE, Release);
        }
        for (switch, gone) in &on_switches {
            self.change_members(*switch, |members| {
                members.retain(|member| !gone.contains(member));
                Ok(())
            })?;
        }
        if on_switches.is_empty() {
            return Ok(());
        }
        let is_gone = |switch, port| {
            let gone: Option<&BTreeSet<u32>> = on_switches.get(&switch);
            gone.is_some_and(|gone| gone.contains(&port))
        };
        self.fdb_remove(|entry| is_gone(entry.switch, entry.port))
            .map(|_| ())
    }
}

fn enter_state(switch: &Switch, pool: u32, part: &PortParts) {
    let spec = &part.spec;
    let state = switch.state(spec.id);
    state.flags.store(0, Release);
    state.mask.store(spec.ring_slots - 1, Relaxed);
    state.pool.store(pool, Relaxed);
    state.rx_base.store(part.rx_base, Relaxed);
    state.dest_kind.store(0, Relaxed);
    state.dest.store(0, Relaxed);
    state.mac.store(mac_word(spec.mac), Relaxed);
    state.queues.store(u32::from(spec.queue.1), Relaxed);
    state.fdb_limit.store(FDB_LIMIT_DEFAULT, Relaxed);
    state.ageing.store(AGEING_DEFAULT_S, Relaxed);
    for word in [
        &state.busy,
        &state.tx_pos,
        &state.fdb_used,
        &state.fdb_refused,
        &state.rung,
    ] {
        word.store(0, Relaxed);
    }
    for counter in [
        &state.tx_frames,
        &state.tx_bytes,
        &state.tx_calls,
        &state.tx_bad_heads,
        &state.last_source,
        &state.rx_reserved,
        &state.rx_frames,
        &state.rx_bytes,
        &state.bells,
        &state.passed,
    ] {
        counter.store(0, Relaxed);
    }
    for drop in &state.drops {
        drop.store(0, Relaxed);
    }
    state.flags.store(spec.flags(), Release);
}
