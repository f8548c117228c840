//! Entering instances into the switch's tables and taking them out, many at once.
//!
//! Each change of a table of maps waits for a grace period of the kernel, 10 ms and more, until no program uses the
//! former entry. Removal waits for the grace period: by one batch for each table, all at a time, however many
//! instances there are. Entry does not have to wait: removal leaves a number that nothing uses any more. The tables
//! then have the new maps at once, and threads of their own wait for the kernel to say so.

use crate::SwitchError;
use crate::abi::{PORT_UP, mac_word};
use crate::grace::Call;
use crate::handover::Handover;
use crate::instance::{AGEING_DEFAULT_S, FDB_LIMIT_DEFAULT, InstanceMemory, PortParts, PortSpec};
use crate::maps::Placeholders;
use crate::ports::Destination;
use crate::program::Switch;
use crate::tables::{await_entered, begin_insert, insert, insert_soon};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

impl Switch {
    /// Enters the ports of instances, up and not connected. The calling process must be in the
    /// switch's cgroup.
    ///
    /// # Errors
    /// When the kernel refuses; none of the ports is there then.
    pub fn enter(&self, made: &[(&InstanceMemory, &Handover)]) -> Result<(), SwitchError> {
        let entered = self.try_enter(made);
        if entered.is_err() {
            let memories: Vec<_> = made.iter().map(|(memory, _)| *memory).collect();
            // A table that refused the maps may well refuse their placeholders; the ports are down.
            let _ = self.remove_all(&memories);
        }
        entered
    }

    fn try_enter(&self, made: &[(&InstanceMemory, &Handover)]) -> Result<(), SwitchError> {
        // A port with this number may be in service still: of an uplink whose process has died. Frames sent to that
        // port now must not be reserved in the old ring's order and published in the new ring. So this function then
        // waits until every call that has seen the port up is over.
        let mut in_service = self.unclean.swap(false, AcqRel);
        for part in made.iter().flat_map(|(memory, _)| &memory.ports) {
            in_service |= self.state(part.spec.id).flags.swap(0, AcqRel) & PORT_UP != 0;
        }
        let pools: Vec<_> = made
            .iter()
            .map(|(memory, handover)| (memory.pool_id, handover.maps.pool.as_fd()))
            .collect();
        let ports = || {
            made.iter().flat_map(|(memory, handover)| {
                let ports = memory.ports.iter().zip(&handover.maps.rings);
                ports.map(move |(part, ring)| (part.spec.id, ring, &handover.maps))
            })
        };
        let rings: Vec<_> = ports().map(|(id, ring, _)| (id, ring.as_fd())).collect();
        let doorbells: Vec<_> = ports()
            .map(|(id, _, maps)| (id, maps.kernel_doorbell.as_fd()))
            .collect();
        let tables = [
            (&self.pools, &pools[..], "entering the pools"),
            (&self.rings, &rings[..], "entering the rings"),
            (&self.doorbells, &doorbells[..], "entering the doorbells"),
        ];
        if self.one_by_one {
            for (outer, inner, what) in tables {
                inner
                    .chunks(1)
                    .try_for_each(|one| insert(outer, one, what))?;
            }
        } else if in_service {
            tables
                .iter()
                .try_for_each(|(outer, inner, what)| insert(outer, inner, what))?;
            self.await_calls()?;
        } else {
            insert_soon(&self.waiters, &tables)?;
        }
        for (memory, handover) in made {
            for part in &memory.ports {
                enter_state(self, memory, part);
            }
            self.identify_all(memory, handover)?;
        }
        Ok(())
    }

    /// Gives ports that were entered other names, addresses and settings, and zeroes their counters. The ports must
    /// not be in use yet. Ids, rings and slots stay.
    ///
    /// # Errors
    /// When the new ports do not fit into the memory of the former ones; nothing was changed.
    pub fn respecify(
        &self,
        memory: &mut InstanceMemory,
        specs: &[PortSpec],
    ) -> Result<(), SwitchError> {
        let fits = |(part, new): (&PortParts, &PortSpec)| {
            let form = |spec: &PortSpec| (spec.ring_slots, spec.tx_slots, spec.long, spec.queue);
            part.spec.id == new.id && form(&part.spec) == form(new)
        };
        if specs.len() != memory.ports.len() || !memory.ports.iter().zip(specs).all(fits) {
            return Err(SwitchError::Limit(
                "prepared ports are of another form than those that are wanted".to_owned(),
            ));
        }
        specs.iter().try_for_each(PortSpec::check)?;
        for (part, spec) in memory.ports.iter_mut().zip(specs) {
            part.spec = spec.clone();
        }
        for part in &memory.ports {
            enter_state(self, memory, part);
        }
        Ok(())
    }

    /// Makes each socket the capability for its port.
    pub(crate) fn identify_all(
        &self,
        memory: &InstanceMemory,
        handover: &Handover,
    ) -> Result<(), SwitchError> {
        let mut pairs = memory.ports.iter().zip(&handover.sockets);
        pairs
            .try_for_each(|(part, socket)| {
                let port = part.spec.id.to_ne_bytes();
                let socket = socket.as_raw_fd().to_ne_bytes();
                self.identity.update(&socket, &port, MapFlags::ANY)
            })
            .map_err(SwitchError::bpf("giving a socket its port"))
    }

    /// Removes the ports of an instance: see [`Switch::remove_all`].
    ///
    /// # Errors
    /// As for [`Switch::remove_all`].
    pub fn remove(&self, memory: &InstanceMemory) -> Result<(), SwitchError> {
        self.remove_all(&[memory])
    }

    /// Removes the ports of instances from the switch. The maps live on as long as a process holds them, but no frame
    /// reaches them any more.
    ///
    /// # Errors
    /// When the kernel refuses. The ports are down all the same.
    pub fn remove_all(&self, memories: &[&InstanceMemory]) -> Result<(), SwitchError> {
        let pools: Vec<u32> = memories.iter().map(|memory| memory.pool_id).collect();
        let ports = memories.iter().flat_map(|memory| &memory.ports);
        let ports: Vec<u32> = ports.map(|part| part.spec.id).collect();
        self.remove_ids(&pools, &ports)?;
        self.leave_groups(memories);
        Ok(())
    }

    /// Takes the ports of an instance out of service and off their switches, at once. [`Switch::remove_all`] is still to
    /// come.
    ///
    /// # Errors
    /// When the kernel refuses. The ports are down all the same.
    pub fn take_down(&self, memory: &InstanceMemory) -> Result<(), SwitchError> {
        let ports: Vec<u32> = memory.ports.iter().map(|part| part.spec.id).collect();
        self.disconnect_all(&ports)
    }

    /// Removes pools and ports as [`Switch::remove_all`], by their numbers alone: those of a process that has died.
    ///
    /// # Errors
    /// As for [`Switch::remove_all`].
    pub fn remove_ids(&self, pools: &[u32], ports: &[u32]) -> Result<(), SwitchError> {
        let disconnected = self.disconnect_all(ports);
        let taken = ports.iter().try_for_each(|port| self.take_interface(*port));
        let disconnected = disconnected.and(taken);
        // The replacement waits for the kernel's readers.
        let removed = self.replace_all(pools, ports);
        let removed = removed.and(self.await_calls());
        if removed.is_err() {
            self.unclean.store(true, Release);
        }
        removed.and(disconnected)
    }

    /// Puts placeholders in the place of pools and of ports' maps, in all tables at a time.
    fn replace_all(&self, pools: &[u32], ports: &[u32]) -> Result<(), SwitchError> {
        let empty = self.placeholders()?;
        let begin = |(outer, ids, map, what): (&MapHandle, &[u32], &MapHandle, &str)| {
            let map = map.as_fd().try_clone_to_owned();
            let map = map.map_err(SwitchError::system(format!("{what}: keeping a map")))?;
            let map = Arc::new(map);
            let inner = ids.iter().map(|id| (*id, Arc::clone(&map))).collect();
            begin_insert(&self.waiters, outer, inner, what)
        };
        // The pools first: a call that finds the placeholder's ring for a member of a group finds slot 0 named there, which
        // is another member's in the group's pool.
        let of_pools = begin((&self.pools, pools, &empty.pool, "removing the pools"));
        let of_pools = of_pools.and_then(|call| {
            let is_over = match pools.last() {
                Some(last) => await_entered(&call, &self.pools, *last, empty.pool.as_fd())?,
                None => false,
            };
            Ok((!is_over).then_some(call))
        });
        let tables = [
            (&self.rings, ports, &empty.ring, "removing the rings"),
            (
                &self.doorbells,
                ports,
                &empty.doorbell,
                "removing the doorbells",
            ),
        ];
        let calls: Vec<_> = tables.into_iter().map(begin).collect();
        let wait = |call: Result<Call, SwitchError>| call.and_then(Call::wait);
        // All are waited for, whichever fails.
        let results: Vec<_> = calls.into_iter().map(wait).collect();
        of_pools?.map_or(Ok(()), Call::wait)?;
        results.into_iter().collect()
    }

    /// Returns when all runs of an interface's program and all calls of an instance that were in progress at the call
    /// of this function are over: a grace period, some 10 ms. The kernel waits for them whenever a map in a map is
    /// replaced: here that of port 0, which does not exist. (membarrier(2) would do, but not on hosts whose CPUs have
    /// no tick: `nohz_full`.)
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn await_programs(&self) -> Result<(), SwitchError> {
        let ring = self.placeholders()?.ring.as_fd();
        insert(
            &self.rings,
            &[(0, ring)],
            "waiting for the interfaces' programs",
        )
    }

    fn placeholders(&self) -> Result<&Placeholders, SwitchError> {
        if let Some(made) = self.placeholders.get() {
            return Ok(made);
        }
        let made = Placeholders::create()?;
        Ok(self.placeholders.get_or_init(|| made))
    }

    /// Takes ports down and off their switches. As in `leave_switch`, the switches stay their destinations until all
    /// other references are removed.
    fn disconnect_all(&self, ports: &[u32]) -> Result<(), SwitchError> {
        let mut on_switches: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for port in ports {
            self.state(*port).flags.store(0, Release);
            if let Destination::Switch(switch) = self.destination_word(*port).destination() {
                on_switches.entry(switch).or_default().insert(*port);
            }
        }
        let off = on_switches.iter().try_for_each(|(switch, gone)| {
            self.change_members(*switch, |members| {
                members.retain(|member| !gone.contains(member));
                Ok(())
            })
        });
        let gone: BTreeSet<u32> = on_switches.into_values().flatten().collect();
        let forget = || match gone.is_empty() {
            true => Ok(()),
            false => self.forget_ports(|port| gone.contains(&port)),
        };
        let off = off.and_then(|()| forget());
        for port in ports {
            self.set_destination(*port, Destination::None);
        }
        off?;
        forget()
    }
}

fn enter_state(switch: &Switch, memory: &InstanceMemory, part: &PortParts) {
    let group = memory.group.as_ref().map_or(0, |group| group.id());
    let spec = &part.spec;
    let state = switch.state(spec.id);
    state.flags.store(0, Release);
    state.mask.store(spec.ring_slots - 1, Relaxed);
    state.pool.store(memory.pool_id, Relaxed);
    state.rx_base.store(part.bases.rx, Relaxed);
    state.long_base.store(part.bases.rx_long, Relaxed);
    state.long_slots.store(spec.long.rx, Relaxed);
    state.group.store(group, Relaxed);
    switch.set_destination(spec.id, Destination::None);
    state.mac.store(mac_word(spec.mac), Relaxed);
    state.queues.store(u32::from(spec.queue.1), Relaxed);
    state.fdb_limit.store(FDB_LIMIT_DEFAULT, Relaxed);
    state.ageing.store(AGEING_DEFAULT_S, Relaxed);
    for word in [
        &state.busy,
        &state.tx_pos,
        &state.fdb_used,
        &state.fdb_refused,
        &state.querier_seen,
        &state.interface,
        &state.rung,
        &state.timed,
    ] {
        word.store(0, Relaxed);
    }
    switch.store_wake(spec.id, spec.wake);
    for counter in [
        &state.tx_frames,
        &state.tx_bytes,
        &state.tx_calls,
        &state.tx_bad_heads,
        &state.last_source,
        &state.rx_reserved,
        &state.rx_frames,
        &state.rx_bytes,
        &state.doorbells,
        &state.passed,
        &state.forwarded,
        &state.marked,
        &state.signal,
        &state.signal_checked,
        &state.tx_more_segments,
        &state.tx_more_bytes,
        &state.rx_more_segments,
        &state.rx_more_bytes,
    ] {
        counter.store(0, Relaxed);
    }
    for drop in &state.drops {
        drop.store(0, Relaxed);
    }
    state.flags.store(spec.flags(), Release);
}
