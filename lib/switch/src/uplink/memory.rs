//! The memory of an uplink's port: made anew, or taken over from a process that has ended.

use super::spec::UplinkSpec;
use crate::SwitchError;
use crate::handover::Handover;
use crate::instance::{InstanceMemory, PortSpec};
use crate::program::Switch;
use libbpf_rs::MapCore;
use nfluid_ring::layout::BLOCK_SLOTS;
use std::io;
use std::path::Path;
use std::slice;
use std::sync::atomic::Ordering::Acquire;

/// The memory of a port that is in service, pinned in `pins` by a process that has ended, with the
/// frames that wait in its ring. `None`: the port is down, or what is pinned has another shape.
///
/// # Errors
/// When the kernel refuses.
pub fn take_over(
    switch: &Switch,
    pins: &Path,
    pool: u32,
    port: &PortSpec,
) -> Result<Option<(InstanceMemory, Handover)>, SwitchError> {
    let state = switch.state(port.id);
    let is_same = switch.is_up(port.id)
        && state.mask.load(Acquire) == port.ring_slots.wrapping_sub(1)
        && state.pool.load(Acquire) == pool
        && state.rx_base.load(Acquire) == 0;
    let is_whole = ["pool", "bell", "ring0"]
        .iter()
        .all(|name| pins.join(name).exists());
    if !is_same || !is_whole {
        return Ok(None);
    }
    let (memory, maps) = InstanceMemory::reopen(switch, pins, slice::from_ref(port), None)?;
    let blocks = memory.pool_slots.div_ceil(BLOCK_SLOTS as u32);
    if maps.pool.max_entries() != blocks {
        return Ok(None);
    }
    let handover = switch.hand_over(&memory, maps)?;
    Ok(Some((memory, handover)))
}

/// New memory for the port, up and not connected, pinned if asked for.
///
/// # Errors
/// When the kernel refuses.
pub fn make(
    switch: &Switch,
    spec: &UplinkSpec,
    port: PortSpec,
) -> Result<(InstanceMemory, Handover), SwitchError> {
    // What is pinned there has another shape, or is not in service.
    unpin(spec);
    let (memory, mut handover) = InstanceMemory::create(switch, spec.pool, &[port])?;
    if let Some(pins) = &spec.pins
        && let Err(error) = handover.maps.pin(pins)
    {
        unpin(spec);
        switch.remove(&memory)?;
        return Err(error);
    }
    Ok((memory, handover))
}

/// Removes the pins.
pub fn unpin(spec: &UplinkSpec) {
    let Some(pins) = &spec.pins else { return };
    match std::fs::remove_dir_all(pins) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(uplink = spec.name, %error, "removing {}", pins.display());
        }
        _ => {}
    }
}
