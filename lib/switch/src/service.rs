//! Settings of ports that are in service; taking an instance's ports out of service, and putting them back.

use crate::SwitchError;
use crate::abi::{PORT_KERNEL_DOORBELL, PORT_LEARN, PORT_PINNED};
use crate::handover::Maps;
use crate::instance::{InstanceMemory, PortParts, Wake};
use crate::ports::used;
use crate::program::Switch;
use nfluid_ring::layout::Released;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

impl Switch {
    /// Sets if the switch itself wakes the port's receiver on a link too: for a sender that cannot.
    pub fn set_kernel_doorbell(&self, port: u32, on: bool) {
        let flags = &self.state(port).flags;
        if on {
            flags.fetch_or(PORT_KERNEL_DOORBELL, Release);
        } else {
            flags.fetch_and(!PORT_KERNEL_DOORBELL, Release);
        }
    }

    /// Sets the condition on which the port's receiver is woken if it sleeps; from its next frame on.
    ///
    /// # Errors
    /// When it would wait for more frames than half of its ring has, or too long.
    pub fn set_wake(&self, port: u32, wake: Wake) -> Result<(), SwitchError> {
        let state = self.state(port);
        wake.check(&port.to_string(), state.mask.load(Acquire).wrapping_add(1))?;
        self.store_wake(port, wake);
        Ok(())
    }

    pub(crate) fn store_wake(&self, port: u32, wake: Wake) {
        if wake.frames > 1 {
            self.prepare_timer(port);
        }
        let state = self.state(port);
        state
            .wake_after_us
            .store(wake.after.as_micros() as u32, Relaxed);
        state.wake_frames.store(wake.frames, Release);
    }

    /// Sets if source addresses on the port are learned, or must be its own.
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

    /// Sets the time for which addresses learned on the port are kept, and their number.
    pub fn set_fdb_limits(&self, port: u32, ageing_s: u32, addresses: u32) {
        self.state(port).ageing.store(ageing_s, Relaxed);
        self.state(port).fdb_limit.store(addresses, Relaxed);
    }

    /// Takes the ports of an instance that has ended out of service and counts the unread frames in their rings as
    /// `reclaimed`. The processes of the instance must be gone. [`Switch::revive`] puts the ports into service again.
    ///
    /// # Errors
    /// When a ring cannot be mapped; the ports are out of service all the same.
    pub fn reclaim(&self, memory: &InstanceMemory, maps: &Maps) -> Result<u64, SwitchError> {
        for part in &memory.ports {
            self.set_up(part.spec.id, false);
        }
        let is_called = |part: &PortParts| self.state(part.spec.id).busy.load(Acquire) != 0;
        if memory.group.is_some() {
            self.await_quiet()?;
        } else if memory.ports.iter().any(is_called) {
            // An I/O thread may still make a call, which will report how far it has come.
            self.await_calls()?;
        }
        // A sender that has found the port up may have reserved slots: the sender must not publish them behind the
        // successor's head. Slots reserved after this look are the successor's.
        let reserved = |part: &PortParts| self.state(part.spec.id).rx_reserved.load(Acquire);
        let reserved: Vec<u64> = memory.ports.iter().map(reserved).collect();
        let holes = self.fill_gaps_of(memory, maps)?;
        let mut lost = 0;
        for ((part, ring), reserved) in memory.ports.iter().zip(&maps.rings).zip(reserved) {
            let ring = nfluid_ring::memory::RingMemory::map(ring.as_fd())
                .map_err(|error| SwitchError::Limit(error.to_string()))?;
            let words = ring.ring();
            let state = self.state(part.spec.id);
            // The instance's word: believed only as far as its ring goes.
            let head = Released::of(words.receiver.rx_released.load(Acquire)).head;
            let unread = used(Released::of(reserved).head, head, part.spec.ring_slots);
            let unread = u64::from(unread);
            let counted = holes.get(&part.spec.id).map_or(0, |holes| *holes);
            self.count_drop(
                part.spec.id,
                crate::DropReason::Reclaimed,
                unread.saturating_sub(counted),
            );
            lost += unread;
            words.receiver.rx_released.store(reserved, Release);
            words.receiver.rx_sleep.store(0, Release);
            let consumed = state.tx_pos.load(Acquire);
            words.sender.tx_head.store(consumed, Release);
            words.switch.tx_tail.store(consumed, Release);
            state.rung.store(0, Release);
        }
        if let Some(group) = &memory.group {
            group.deal(memory, maps)?;
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
