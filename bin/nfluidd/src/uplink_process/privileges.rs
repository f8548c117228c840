//! What an uplink process may still do.

use rustix::io::{Errno, Result};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// The capabilities that it needs as long as it lives: the interface may vanish and return at any
/// time, and everything is done to it again then.
///
/// | capability | for |
/// |---|---|
/// | `NET_ADMIN` | attach XDP, change offloads, address, state; taps |
/// | `NET_RAW` | AF_PACKET and AF_XDP sockets |
/// | `BPF`, `PERFMON` | load the XDP program |
/// | `SYS_ADMIN` | enter the interface's namespace; find a program by its number |
/// | `SYS_PTRACE` | find the namespace of a veth's other end among those of processes |
/// | `SYS_NICE` | the thread's priority |
/// | `IPC_LOCK`, `SYS_RESOURCE` | locked memory of sockets |
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_RESOURCE);

/// Gives up every other capability, for good. Call it before other threads start.
///
/// # Errors
/// When the kernel refuses.
pub fn drop_others() -> Result<()> {
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        if NEEDED.contains(one) {
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
            effective: now.effective & NEEDED,
            permitted: now.permitted & NEEDED,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    set_no_new_privs(true)
}
