//! From the host's root to a user without any privilege but what is asked for, for good.

use super::{At, Failure};
use crate::capability::Capabilities;
use crate::error::Errno;
use crate::shell::step::Step;
use crate::sys;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySets};
use rustix::thread::{Gid, Uid};

/// Takes on the one user and group that the namespace has. Capabilities in the namespace stay for now: only leaving
/// user 0 drops them, and the namespace has no user 0.
pub(super) fn become_instance_user((user, group): (u32, u32)) -> Result<(), Errno> {
    rustix::thread::set_thread_groups(&[])?;
    let gid = Gid::from_raw(group);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(user);
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// No capability but `kept` now and after the exec, none by any other way that securebits(7) would leave.
pub(super) fn drop_all_but(kept: Capabilities) -> Result<(), Failure> {
    let kept = kept.set();
    sys::drop_bounding_set(kept.bits()).at(Step::Capabilities)?;
    rustix::thread::clear_ambient_capability_set().at(Step::Capabilities)?;
    if !kept.is_empty() {
        let all = rustix::thread::capabilities(None).at(Step::Capabilities)?;
        let inherit = CapabilitySets {
            inheritable: kept,
            ..all
        };
        rustix::thread::set_capabilities(None, inherit).at(Step::Capabilities)?;
        for capability in kept.iter() {
            rustix::thread::configure_capability_in_ambient_set(capability, true)
                .at(Step::Capabilities)?;
        }
    }
    let never_again = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(never_again).at(Step::Capabilities)?;
    let left = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: kept,
    };
    rustix::thread::set_capabilities(None, left).at(Step::Capabilities)?;
    rustix::thread::set_no_new_privs(true).at(Step::NoNewPrivileges)
}
