//! The part of an uplink that the switch provides, besides an ordinary port: the programs that receive for the port, memory that
//! outlives the uplink's process, and counters for frames that pass the port without a call.
//!
//! The interface and the thread behind such a port are not the switch's: `nfluid-uplink` has them.

use crate::SwitchError;
use crate::abi::{DropReason, PORT_PASS, PortState};
use crate::handover::Handover;
use crate::instance::level_flags;
use crate::instance::{InstanceMemory, PortSpec};
use crate::object::find_program;
use crate::program::Switch;
use crate::states::States;
use libbpf_rs::MapCore;
use nfluid_ring::Level;
use nfluid_ring::layout::BLOCK_SLOTS;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::slice;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The counters of one port, for the owner of the port to add to. Only the state of this port is mapped, whichever ports the
/// switch has.
#[derive(Debug)]
pub struct PortAccount {
    port: u32,
    states: States,
}

/// The hook at which an uplink's frames come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UplinkHook {
    /// XDP: frames are as on a wire.
    Xdp,
    /// Ingress of tc: frames may have partial checksums, or be super-frames.
    Tc,
}

impl PortAccount {
    pub(crate) fn state(&self) -> &PortState {
        self.states.port(self.port)
    }

    /// Sets what the port's owner takes of frames to which something is still to be done, from the next frame on.
    pub fn set_level(&self, level: Level) {
        let flags = &self.state().flags;
        let on = level_flags(level);
        flags.fetch_or(on, Release);
        flags.fetch_and(on | !level_flags(Level::Super), Release);
    }

    /// Counts frames that the port's owner dropped as their sender.
    pub fn dropped(&self, reason: DropReason, frames: u64) {
        self.state().drops[reason as usize].fetch_add(frames, Relaxed);
    }

    /// Counts frames that entered, but not through the switch.
    pub fn entered(&self, frames: u64) {
        self.state().tx_frames.fetch_add(frames, Relaxed);
    }
}

impl Switch {
    /// Loads the program that sends received frames of an interface from the port `port`, on the maps of this
    /// switch. `netns`: the inode of the namespace in which it receives.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn load_uplink(
        &self,
        port: u32,
        hook: UplinkHook,
        netns: u32,
    ) -> Result<OwnedFd, SwitchError> {
        let form = self.form().suffix();
        let name = match hook {
            UplinkHook::Xdp => format!("uplink_{form}"),
            UplinkHook::Tc => format!("uplink_tc_{form}"),
        };
        let object = self.load_sharing_maps(&name, |map, open| {
            if map != ".rodata.uplink" {
                return Ok(false);
            }
            let bytes = open.initial_value_mut();
            let constants = bytes.and_then(|bytes| bytes.get_mut(..8));
            let missing = || SwitchError::Limit("the object has no uplink constants".to_owned());
            let (of_port, of_netns) = constants.ok_or_else(missing)?.split_at_mut(4);
            of_port.copy_from_slice(&port.to_ne_bytes());
            of_netns.copy_from_slice(&netns.to_ne_bytes());
            Ok(true)
        })?;
        find_program(&object, &name)?
            .as_fd()
            .try_clone_to_owned()
            .map_err(SwitchError::system("duplicating a descriptor"))
    }

    /// Leaves the frames that no rule of the port takes to the host's own stack.
    pub fn pass_unmatched(&self, port: u32) {
        self.state(port).flags.fetch_or(PORT_PASS, Release);
    }

    /// The counters of the port `port`, to be added to.
    ///
    /// # Errors
    /// When there can be no such port, or the kernel refuses the mapping.
    pub fn account(&self, port: u32) -> Result<PortAccount, SwitchError> {
        let states = States::map_port(self.map("nfl_ports")?.as_fd(), port)?;
        Ok(PortAccount { port, states })
    }
}

impl InstanceMemory {
    /// Makes the memory of one port as [`InstanceMemory::create`] does, but in the place of a port of this number that may be
    /// up: its connection is kept.
    ///
    /// # Errors
    /// As for [`InstanceMemory::create`].
    pub fn create_in_place(
        switch: &Switch,
        pool: u32,
        port: PortSpec,
    ) -> Result<(Self, Handover), SwitchError> {
        let id = port.id;
        let connected = switch
            .is_up(id)
            .then(|| switch.destination_word(id).destination());
        let made = Self::create(switch, pool, &[port])?;
        if let Some(to) = connected {
            switch.set_destination(id, to);
        }
        Ok(made)
    }

    /// Returns the memory of a port that is in service, pinned in `pins` by a process that has ended, with the frames
    /// that wait in its ring. `None`: the port is down, or the pinned maps have another shape.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn take_over(
        switch: &Switch,
        pins: &Path,
        pool: u32,
        port: &PortSpec,
    ) -> Result<Option<(Self, Handover)>, SwitchError> {
        let state = switch.state(port.id);
        let is_same = switch.is_up(port.id)
            && state.mask.load(Acquire) == port.ring_slots.wrapping_sub(1)
            && state.pool.load(Acquire) == pool
            && state.rx_base.load(Acquire) == 0
            && state.long_slots.load(Acquire) == port.long.rx;
        let is_whole = ["pool", "bell", "ring0"]
            .iter()
            .all(|name| pins.join(name).exists());
        if !is_same || !is_whole {
            return Ok(None);
        }
        let (memory, maps) = Self::reopen(switch, pins, slice::from_ref(port), None)?;
        let blocks = memory.pool_slots.div_ceil(BLOCK_SLOTS as u32);
        if maps.pool.max_entries() != blocks {
            return Ok(None);
        }
        let handover = switch.hand_over(&memory, maps)?;
        Ok(Some((memory, handover)))
    }
}
