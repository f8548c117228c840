//! From the host's root to a user without any privilege, for good.

use super::{At, Failure};
use crate::error::Errno;
use crate::identity::INSIDE_ID;
use crate::shell::step::Step;
use crate::sys;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};
use rustix::thread::{Gid, Uid};

/// Takes on the one user and group that the namespace has. Capabilities in the namespace stay for now: only leaving
/// user 0 drops them, and the namespace has no user 0.
pub(super) fn become_instance_user() -> Result<(), Errno> {
    rustix::thread::set_thread_groups(&[])?;
    let gid = Gid::from_raw(INSIDE_ID);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(INSIDE_ID);
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// No capability now, none by a later exec, and none by any other way that securebits(7) would leave.
pub(super) fn drop_all() -> Result<(), Failure> {
    let never_again = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(never_again).at(Step::Capabilities)?;
    sys::drop_bounding_set().at(Step::Capabilities)?;
    rustix::thread::clear_ambient_capability_set().at(Step::Capabilities)?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).at(Step::Capabilities)?;
    rustix::thread::set_no_new_privs(true).at(Step::NoNewPrivileges)
}
