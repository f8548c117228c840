//! The memory of an uplink's port, made anew, and where it is pinned.

use crate::spec::UplinkSpec;
use nfluid_switch::instance::{InstanceMemory, PortSpec};
use nfluid_switch::{Handover, Switch, SwitchError};
use std::io;

/// New memory for the port, up, pinned if asked for. The port is not connected, unless one of this number is up: its connection
/// is kept.
///
/// # Errors
/// When the kernel refuses.
pub fn make(
    switch: &Switch,
    spec: &UplinkSpec,
    port: PortSpec,
) -> Result<(InstanceMemory, Handover), SwitchError> {
    // The maps pinned there have another shape, or are not in service.
    unpin(spec);
    let (memory, mut handover) = InstanceMemory::create_in_place(switch, spec.pool, port)?;
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
