//! The monitor of an instance of tier `microvm`: a process in the sandbox of tier `process`, in which a KVM guest is the
//! network function.
//!
//! It serves the ports and the daemon as `nfluid-nf` does ([`nfluid_hosting`]). Its thread is the virtual CPU: what the
//! guest uses, and what the switch uses for its frames, is CPU time of this process.

mod guests;

use guests::Guests;
use std::process::ExitCode;

fn main() -> ExitCode {
    nfluid_hosting::main("nfluid-vmm", &mut Guests::default())
}
