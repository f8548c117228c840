//! What runs inside an instance of tier `microvm`: one network function, and no kernel.
//!
//! - [`abi`]: the memory of a guest and the calls by which its monitor (`lib/vmm`) uses it. The same definitions in C:
//!   `include/nfluid_guest.h`.
//! - `runtime` (only for the target `x86_64-unknown-none`): start-up, heap, console, panic report, and the loop that
//!   answers the monitor's calls with a [`nfluid_nf`](../nfluid_nf/index.html) network function.
//!
//! A guest runs in user mode (CPL 3, long mode) without interrupts and without system calls. All that it can do to the
//! outside is to write to one page, its doorbell. The monitor then looks at the guest's memory while the guest stands
//! still: no word of it changes between a check and its use.
//!
//! An image of one's own is a crate with a `main`:
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
//! nfluid_guest::main!(|_name, config, ports| my_function::build(config, ports));
//! ```
#![no_std]

pub mod abi;
pub mod message;
#[cfg(target_os = "none")]
pub mod runtime;
#[cfg(target_os = "none")]
pub use runtime::{device, log};

#[cfg(target_os = "none")]
extern crate alloc;

/// Makes a guest image of a function that builds the network function: `fn(&str, &Value, &[PortInfo]) ->
/// Result<Box<dyn NetworkFunction>, ConfigError>`, with the name in the deployment, the configuration and the ports.
#[cfg(target_os = "none")]
#[macro_export]
macro_rules! main {
    ($build:expr) => {
        /// Called by the start-up code, once.
        #[unsafe(no_mangle)]
        extern "C" fn nfluid_guest_main() -> ! {
            $crate::runtime::serve($build)
        }
    };
}
