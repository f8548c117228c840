//! Why a virtual machine could not be made, or has ended.

use std::io;

/// The reason why a virtual machine was not made.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The host has no usable KVM.
    #[error(
        "/dev/kvm cannot be used: {0}; load the module kvm_intel or kvm_amd, allow nested virtualization if this host is a virtual machine, or use 'tier: process' ('nfluid doctor' says more)"
    )]
    NoKvm(io::Error),
    /// The host's KVM is of another version.
    #[error("KVM's interface has version {0}, and 12 is needed: this kernel is too old or too new")]
    Version(i32),
    /// The host's KVM lacks something.
    #[error("this host's KVM has no {0}: use a newer kernel, or 'tier: process'")]
    Lacks(&'static str),
    /// KVM refused an operation.
    #[error("KVM refuses {what}: {source}")]
    Refused {
        /// The operation.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The memory of the guest could not be had.
    #[error("{bytes} bytes of memory for a guest: {source}")]
    Memory {
        /// Bytes.
        bytes: u64,
        /// The cause.
        source: io::Error,
    },
    /// The image needs more memory than the instance has.
    #[error(
        "the guest image ends at {end:#x} and leaves no room for a heap in {memory} bytes of memory: give the instance more memory"
    )]
    NoHeap {
        /// End of the image.
        end: u64,
        /// Bytes of memory.
        memory: u64,
    },
    /// The pool is larger than its place in a guest.
    #[error(
        "the pool has {0} bytes, more than a guest can map: use a flavor with smaller rings or fewer ports"
    )]
    Pool(usize),
    /// The image cannot be used.
    #[error(transparent)]
    Image(#[from] crate::image::ImageError),
    /// The guest has ended before its network function was built.
    #[error(transparent)]
    Ended(#[from] End),
}

/// The reason why a guest does not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// Its code panicked.
    #[error("the guest panicked: {0}")]
    Panic(String),
    /// It used an address at which there is nothing.
    #[error("the guest {} address {address:#x}, at which it has nothing (instruction at {rip:#x})", verb(.is_write))]
    Wild {
        /// The address.
        address: u64,
        /// True for a write.
        is_write: bool,
        /// Where it was.
        rip: u64,
    },
    /// The processor could not go on: an invalid instruction, an address that is not mapped, a write to what is read-only.
    #[error(
        "the guest made an exception that it cannot handle: an invalid instruction, an address that is not mapped, or a write to read-only memory (instruction at {rip:#x})"
    )]
    Exception {
        /// Where it was.
        rip: u64,
    },
    /// It did not return from a call.
    #[error(
        "the guest has not returned from a call within {0} s of CPU time (instruction at {1:#x})"
    )]
    Endless(u32, u64),
    /// Its words make no sense.
    #[error("the guest breaks its protocol: {0}")]
    Protocol(&'static str),
    /// KVM failed.
    #[error("KVM cannot go on with the guest: {0}")]
    Kvm(String),
}

fn verb(is_write: &bool) -> &'static str {
    if *is_write { "wrote to" } else { "read from" }
}
