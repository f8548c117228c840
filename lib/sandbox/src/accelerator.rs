//! The choice between KVM and emulation of a machine.

/// Way in which an emulator runs the code of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Accelerator {
    /// The emulator translates the code (QEMU's Tiny Code Generator).
    Tcg,
    /// KVM runs it.
    Kvm,
}
