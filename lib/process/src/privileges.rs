//! Privileges that a process of the daemon's keeps.

use rustix::io::{Errno, Result};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Gives up every capability but these, for good. Call it before other threads start.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_only(needed: CapabilitySet) -> Result<()> {
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        if needed.contains(one) {
            continue;
        }
        match remove_capability_from_bounding_set(one) {
            // Beyond the last that this kernel knows.
            Err(Errno::INVAL) => break,
            other => other?,
        }
    }
    let now = rustix::thread::capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: now.effective & needed,
            permitted: now.permitted & needed,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    set_no_new_privs(true)
}
