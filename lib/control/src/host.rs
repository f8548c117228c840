//! Traits for the facts that validation needs: the host and the NF catalogue.

use crate::fast::Attach;
use crate::spec::PortSpec;
use serde_json::Value;

/// Facts about the host that a deployment has to fit.
pub trait Host {
    /// CPUs that instances may run on, by number.
    fn cpus(&self) -> Vec<u32>;

    /// Memory of the host in bytes.
    fn memory_bytes(&self) -> u64;

    /// Returns the state of an interface. `netns` is a name in `/run/netns` or an absolute path; absent: the daemon's
    /// own. An interface that the platform itself uses is [`InterfaceFact::Present`].
    fn interface(&self, name: &str, netns: Option<&str>) -> InterfaceFact;

    /// Checks that an existing interface can classify by flow.
    ///
    /// # Errors
    /// The reason why not, for the operator.
    fn steering(&self, _name: &str, _netns: Option<&str>) -> Result<(), String> {
        Ok(())
    }

    /// Checks that a program can be run.
    ///
    /// # Errors
    /// The reason why not, for the operator.
    fn program(&self, path: &str) -> Result<(), String>;

    /// Returns the reason for which there is no image of this name, if so.
    fn image(&self, name: &str) -> Result<(), String>;
}

/// The state of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceFact {
    /// The interface exists and can be used.
    Present,
    /// The interface does not exist; contains the names of existing interfaces.
    Missing(Vec<String>),
    /// The interface is in this other namespace.
    Elsewhere(String),
    /// The namespace does not exist.
    NoNamespace,
    /// An XDP program of another party is on the interface.
    Busy(String),
}

/// The network functions that exist and what they accept.
pub trait Catalogue {
    /// The names of all NFs.
    fn names(&self) -> Vec<String>;

    /// Fewest and most ports of an NF; absent: there is no such NF.
    fn ports(&self, nf: &str) -> Option<(usize, usize)>;

    /// Returns true if the NF has threads of its own, which only a process can have.
    fn has_threads(&self, _nf: &str) -> bool {
        false
    }

    /// Checks the configuration of an NF that exists, on as many ports as it takes.
    ///
    /// # Errors
    /// The first fault of the configuration.
    fn validate(&self, nf: &str, config: &Value, ports: &[PortSpec]) -> Result<(), NfConfigError>;

    /// The names of all NFs that have a fast path for tier `xdp`.
    fn fast_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the names of the NFs with a fast path that can have a slow path other than the kernel's stack: these
    /// hand up packets that another function can decide.
    fn slow_path_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Checks the configuration of an NF that has a fast path.
    ///
    /// # Errors
    /// The first fault of the configuration.
    fn validate_fast(&self, _nf: &str, _config: &Value) -> Result<(), NfConfigError> {
        Ok(())
    }

    /// Checks that an NF with a fast path supports this mode, for packets in this direction.
    ///
    /// # Errors
    /// The reason why not.
    fn validate_attach(&self, _nf: &str, _attach: &Attach) -> Result<(), NfAttachError> {
        Ok(())
    }

    /// Checks that an NF with this valid configuration can work on several queues of its ports, with an NF for each
    /// queue.
    ///
    /// # Errors
    /// The reason why not, for the operator.
    fn queues(&self, _nf: &str, _config: &Value, _ports: &[PortSpec]) -> Result<(), String> {
        Ok(())
    }
}

/// A kind of attachment that an NF does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfAttachError {
    /// The key that asks for it.
    pub key: &'static str,
    /// The fault.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

/// A configuration that an NF refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NfConfigError {
    /// Path of the key within the configuration, for example `rules[3].from`.
    pub path: String,
    /// Line within a text value (a rule list), 1-based.
    pub line: Option<u32>,
    /// The fault, and a correct form.
    pub message: String,
}

/// Returns the number of bytes that the rings of an instance need: for each port an RX ring of frame slots, and as many
/// TX slots as `tx_rings` such rings have, and their descriptors and control words.
pub const fn rings_bytes(ring: u32, ports: usize, tx_rings: u32) -> u64 {
    const SLOT_BYTES: u64 = 2048;
    const CONTROL_BYTES: u64 = 20_480;
    ports as u64 * ((1 + tx_rings as u64) * ring as u64 * SLOT_BYTES + CONTROL_BYTES)
}

/// TX slots of each port of a program on netmap, in rings: a buffer for each slot of its transmit ring; one for each frame
/// that it swaps out of a receive ring; and as many for those that it keeps.
pub const NETMAP_TX_RINGS: u32 = 3;

/// Returns the number of frame slots of an instance: those of its RX rings, and the TX slots of each port.
pub const fn slots(ring: u32, ports: usize) -> u64 {
    ports as u64 * (ring as u64 + TX_SLOTS as u64)
}

/// TX slots of each port of an instance, for frames that the instance creates between two flushes. Forwarded frames
/// need none.
pub const TX_SLOTS: u32 = 64;

/// TX slots of each port of a built-in NF that makes its system calls itself: such an NF forwards nearly all frames
/// that it sends, and flushes in between when it creates more.
pub const TX_SLOTS_BUILT_IN: u32 = 32;

/// Maximum number of slots in the memory that a trust group shares.
pub const SHARED_SLOTS_MAX: u64 = 65_472;

/// Number of bytes that the program of an instance needs beside its rings.
pub const PROGRAM_BYTES_MIN: u64 = 1 << 20;
