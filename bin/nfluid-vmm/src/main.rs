//! The monitor of an instance that is a virtual machine: a process in the sandbox of tier `process`, in which the machine is
//! the network function.
//!
//! It serves the ports and the daemon as `nfluid-nf` does ([`nfluid_hosting`]). In tier `microvm` its thread is the virtual
//! CPU: what the guest uses, and what the switch uses for its frames, is CPU time of this process. In tier `linux` an
//! emulator beside it runs the machine.

mod guests;
mod linux;

use guests::Guests;
use linux::Machines;
use std::process::ExitCode;

const NAME: &str = "nfluid-vmm";

fn main() -> ExitCode {
    match Machines::inherited() {
        Ok(Some(mut machines)) => nfluid_hosting::main(NAME, &mut machines),
        Ok(None) => nfluid_hosting::main(NAME, &mut Guests::default()),
        Err(why) => {
            eprintln!("{NAME}: {why:#}");
            ExitCode::FAILURE
        }
    }
}
