//! What validation asks of the outside world, as traits: the host and the NF catalogue.

use crate::fast::Attach;
use crate::spec::PortSpec;
use serde_json::Value;

/// Facts about the host that a deployment has to fit.
pub trait Host {
    /// CPUs that instances may run on, by number.
    fn cpus(&self) -> Vec<u32>;

    /// Memory of the host in bytes.
    fn memory_bytes(&self) -> u64;

    /// How an interface is. `netns` is a name in `/run/netns` or an absolute path; absent: the
    /// daemon's own. An interface that the platform itself uses is [`InterfaceFact::Present`].
    fn interface(&self, name: &str, netns: Option<&str>) -> InterfaceFact;

    /// Whether an interface that is there can classify by flow, with the reason if not.
    ///
    /// # Errors
    /// Why not, for the operator.
    fn steering(&self, _name: &str, _netns: Option<&str>) -> Result<(), String> {
        Ok(())
    }

    /// Whether a program can be run, with the reason if not.
    ///
    /// # Errors
    /// Why not, for the operator.
    fn program(&self, path: &str) -> Result<(), String>;
}

/// How an interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceFact {
    /// It is there and can be used.
    Present,
    /// It is not there; the names that are.
    Missing(Vec<String>),
    /// It is not there, but in this other namespace.
    Elsewhere(String),
    /// The namespace is not there.
    NoNamespace,
    /// An XDP program of somebody else is on it.
    Busy(String),
}

/// The network functions that exist and what they accept.
pub trait Catalogue {
    /// The names of all NFs.
    fn names(&self) -> Vec<String>;

    /// Fewest and most ports of an NF; absent: there is no such NF.
    fn ports(&self, nf: &str) -> Option<(usize, usize)>;

    /// Checks the configuration of an NF that exists, on as many ports as it takes.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    fn validate(&self, nf: &str, config: &Value, ports: &[PortSpec]) -> Result<(), NfConfigError>;

    /// The names of all NFs that have a fast path for tier `xdp`.
    fn fast_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// The names of those NFs with a fast path that can have a slow path other than the kernel's stack: they hand up what
    /// another function can decide.
    fn slow_path_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Checks the configuration of an NF that has one.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    fn validate_fast(&self, _nf: &str, _config: &Value) -> Result<(), NfConfigError> {
        Ok(())
    }

    /// Whether an NF that has one can be in this mode, for packets that go this way.
    ///
    /// # Errors
    /// Why not.
    fn validate_attach(&self, _nf: &str, _attach: &Attach) -> Result<(), NfAttachError> {
        Ok(())
    }

    /// Whether an NF with this valid configuration can work on several queues of its ports, each with
    /// an NF of its own.
    ///
    /// # Errors
    /// Why not, for the operator.
    fn queues(&self, _nf: &str, _config: &Value, _ports: &[PortSpec]) -> Result<(), String> {
        Ok(())
    }
}

/// A way to be on an interface that an NF has no form for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfAttachError {
    /// The key that asks for it.
    pub key: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// A configuration that an NF refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NfConfigError {
    /// Path of the key within the configuration, for example `rules[3].from`.
    pub path: String,
    /// Line within a text value (a rule list), 1-based.
    pub line: Option<u32>,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Bytes that the rings of an instance need: for each port a TX and an RX ring of frame slots, and
/// their descriptors and control words.
pub const fn rings_bytes(ring: u32, ports: usize) -> u64 {
    const SLOT_BYTES: u64 = 2048;
    const CONTROL_BYTES: u64 = 20_480;
    ports as u64 * (2 * ring as u64 * SLOT_BYTES + CONTROL_BYTES)
}

/// Frame slots that an instance has: its RX rings', and what each port makes itself.
pub const fn slots(ring: u32, ports: usize) -> u64 {
    ports as u64 * (ring as u64 + TX_SLOTS as u64)
}

/// TX slots of each port of an instance: frames that it makes itself per flush. What it forwards needs none.
pub const TX_SLOTS: u32 = 64;

/// The same of a built-in NF that makes its calls itself: it passes on nearly all that it sends, and flushes in between when it
/// makes more.
pub const TX_SLOTS_BUILT_IN: u32 = 32;

/// Most slots of the memory that a trust group shares.
pub const SHARED_SLOTS_MAX: u64 = 65_472;

/// Bytes that the program of an instance needs beside its rings.
pub const PROGRAM_BYTES_MIN: u64 = 1 << 20;
