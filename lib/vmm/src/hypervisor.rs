//! The host's KVM.

use crate::end::MachineError;
use kvm_ioctls::{Cap, Kvm};
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

/// The version of KVM's interface since Linux 2.6.22.
const API_VERSION: i32 = 12;
/// Memory slots that a guest can need.
pub(crate) const SLOTS_MAX: usize = 16;
/// What a guest needs of KVM.
const NEEDED: [(Cap, &str); 3] = [
    (Cap::UserMemory, "memory of processes (KVM_CAP_USER_MEMORY)"),
    (Cap::ReadonlyMem, "read-only memory (KVM_CAP_READONLY_MEM)"),
    (Cap::ImmediateExit, "exits at once (KVM_CAP_IMMEDIATE_EXIT)"),
];

/// KVM, open and checked.
#[derive(Debug)]
pub struct Hypervisor(pub(crate) Kvm);

impl Hypervisor {
    /// Opens `/dev/kvm`.
    ///
    /// # Errors
    /// It is missing, not permitted, or lacks something.
    pub fn open() -> Result<Self, MachineError> {
        let kvm = Kvm::new().map_err(|why| MachineError::NoKvm(error_of(why)))?;
        Self::check(kvm)
    }

    /// Takes a descriptor of `/dev/kvm`.
    ///
    /// # Errors
    /// It is no such descriptor, or this KVM lacks something.
    pub fn of(descriptor: OwnedFd) -> Result<Self, MachineError> {
        // SAFETY: the descriptor is owned, and given away here. If it is none of KVM, the first request fails.
        let kvm = unsafe { Kvm::from_raw_fd(descriptor.into_raw_fd()) };
        Self::check(kvm)
    }

    fn check(kvm: Kvm) -> Result<Self, MachineError> {
        match kvm.get_api_version() {
            API_VERSION => {}
            -1 => return Err(MachineError::NoKvm(io::Error::last_os_error())),
            version => return Err(MachineError::Version(version)),
        }
        for (capability, name) in NEEDED {
            if !kvm.check_extension(capability) {
                return Err(MachineError::Lacks(name));
            }
        }
        if kvm.get_nr_memslots() < SLOTS_MAX {
            return Err(MachineError::Lacks("16 memory slots (KVM_CAP_NR_MEMSLOTS)"));
        }
        Ok(Hypervisor(kvm))
    }
}

/// The error of the system call behind an error of `kvm-ioctls`.
pub(crate) fn error_of(error: kvm_ioctls::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}
