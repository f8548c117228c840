//! The monitor of an instance of tier `microvm`: a KVM guest that is one network function, and no kernel.
//!
//! - [`hypervisor`]: the host's KVM, and what a guest needs of it.
//! - [`image`]: guest images: checked, and mapped where they lie.
//! - `tables`: the page tables of a guest.
//! - `memory`: the memory of a guest, read only in checked pieces.
//! - [`machine`]: a virtual machine: run it until it stands still, and why it does.
//! - [`function`]: a guest as a network function, which `lib/hosting` runs like any other.
//! - [`watchdog`]: a guest that never stands still is stopped.
//!
//! **Whom to trust.** A guest is hostile. It can write all of its memory, the slots of its pool, and one page that is no
//! memory: the doorbell. The monitor reads a guest's memory only while the guest stands still, so that no word changes
//! between a check and its use, and believes no number in it. The rings of the instance are not in the guest: the
//! monitor takes frames, and makes the system calls in which the switch runs, on the thread of the virtual CPU.
//! See `docs/adr/0036-microvm.md`.

pub mod end;
pub mod function;
pub mod hypervisor;
pub mod image;
pub mod machine;
mod memory;
mod tables;
pub mod watchdog;

pub use end::End;
pub use function::Guest;
pub use hypervisor::Hypervisor;
pub use image::Image;
pub use machine::Machine;
