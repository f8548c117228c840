//! What runs the code of a machine.

/// Way in which an emulator runs the code of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Accelerator {
    /// It translates the code (Tiny Code Generator).
    Tcg,
    /// KVM runs it.
    Kvm,
}
