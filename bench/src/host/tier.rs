//! The tier of measured instances.

use serde_json::{Value, json};

/// A tier whose instances have a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tier {
    /// A process in a sandbox.
    #[default]
    Process,
    /// A KVM guest and its monitor.
    MicroVm,
}

impl Tier {
    /// Returns the specification of an instance, of this tier.
    pub fn instance(self, mut spec: Value) -> Value {
        if self == Tier::MicroVm {
            spec["tier"] = json!("microvm");
        }
        spec
    }

    /// Returns the specification of a pool whose shells become built-in NFs of this tier.
    pub fn pool(self, mut spec: Value) -> Value {
        if self == Tier::MicroVm {
            spec["for"] = json!("microvms");
        }
        spec
    }

    /// Returns the part of figure ids.
    pub fn id(self) -> &'static str {
        match self {
            Tier::Process => "process",
            Tier::MicroVm => "vm",
        }
    }
}
