//! Environment variables through which an instance finds what the daemon hands to it.
//!
//! The table of ports (`nfluid_ring::attach`) and the assignment of a pooled process (`nfluid_ring::assignment`) have variables of
//! their own, as foreign programs read these through the port library.

use anyhow::{Context, ensure};
use std::fs::File;
use std::io::Read;
use std::os::fd::{OwnedFd, RawFd};

/// Name of the built-in NF.
pub const NF: &str = "NFLUID_NF";
/// Descriptor of a memory file with the configuration in JSON.
pub const CONFIG: &str = "NFLUID_CONFIG_FD";
/// Descriptor of the listening control socket.
pub const CONTROL: &str = "NFLUID_CONTROL_FD";
/// Descriptor of a socket to the predecessor, which gives up its ports.
pub const PREDECESSOR: &str = "NFLUID_PREDECESSOR_FD";
/// A terminator's listening sockets: descriptors, separated by commas.
pub const LISTENERS: &str = "NFLUID_LISTEN_FDS";
/// Descriptor of a file with a terminator's certificates in PEM.
pub const CERTIFICATES: &str = "NFLUID_TLS_CERTIFICATES_FD";
/// Descriptor of a file with a terminator's key in PEM. The terminator overwrites the file.
pub const KEY: &str = "NFLUID_TLS_KEY_FD";
/// Descriptor of a terminator's socket to its connector. Absent without a backend.
pub const CONNECTOR: &str = "NFLUID_CONNECTOR_FD";
/// Descriptor of `/dev/kvm`; only for the monitor of a guest.
pub const KVM: &str = "NFLUID_KVM_FD";
/// Descriptor of a file with the image of a guest. Absent: the monitor's own image, with the built-in NFs.
pub const GUEST: &str = "NFLUID_GUEST_FD";
/// Descriptors of the sockets to the interfaces of a machine with a kernel of its own, in the order of the ports, separated by
/// commas.
pub const INTERFACES: &str = "NFLUID_INTERFACE_FDS";
/// The number of the socket whose other end a program beside the monitor has, for as long as it runs.
pub const COMPANION: &str = "NFLUID_COMPANION_FD";
/// Numbers of sockets that send to the interfaces of a network stack of a program's own, one for each port.
pub const STACKS: &str = "NFLUID_STACK_FDS";
/// The number of the descriptor of that stack's namespace.
pub const NAMESPACE: &str = "NFLUID_NETNS_FD";
/// How the daemon asks the program beside the monitor to end: the number of a signal, and the milliseconds that it may take.
pub const STOP: &str = "NFLUID_STOP";
/// A sentence for the log: whether KVM runs a machine with a kernel of its own, or the emulator does, and why.
pub const ACCELERATOR: &str = "NFLUID_ACCELERATOR";
/// The memory limit in bytes of a terminator, or of a guest and its monitor.
pub const MEMORY: &str = "NFLUID_MEMORY_BYTES";
/// The number of the descriptor with which a connector reaches its terminator.
pub const CONNECTOR_END: RawFd = 3;

/// Takes the descriptor that an environment variable names; `None`: the variable is not set.
///
/// # Errors
/// The variable is no number of an open descriptor.
pub fn inherited(variable: &str) -> anyhow::Result<Option<OwnedFd>> {
    let Ok(text) = std::env::var(variable) else {
        return Ok(None);
    };
    let found = descriptor(&text).with_context(|| format!("{variable}={text}"))?;
    Ok(Some(found))
}

/// Takes the descriptor that an environment variable names, and that has to be there.
///
/// # Errors
/// The variable is not set, or is no number of an open descriptor.
pub fn needed(variable: &str) -> anyhow::Result<OwnedFd> {
    inherited(variable)?.with_context(|| format!("{variable} is not set"))
}

/// Takes a descriptor by its number in decimal digits.
///
/// # Errors
/// The text is no number of an open descriptor.
pub fn descriptor(number: &str) -> anyhow::Result<OwnedFd> {
    let number: RawFd = number.parse().context("it is no descriptor's number")?;
    Ok(nfluid_ring::attach::inherited(number)?)
}

/// Reads a file that was handed over.
///
/// # Errors
/// Reading fails, or the file has more than `bytes_max` bytes.
pub fn read_file(file: OwnedFd, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::from(file)
        .take(bytes_max + 1)
        .read_to_end(&mut bytes)?;
    let fits = bytes.len() as u64 <= bytes_max;
    ensure!(fits, "it is longer than {bytes_max} bytes");
    Ok(bytes)
}
