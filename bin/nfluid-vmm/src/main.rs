//! The monitor of an instance that is a virtual machine, or a program on a network stack of its own: a process in the sandbox
//! of tier `process`, in which the machine or the program is the network function.
//!
//! It serves the ports and the daemon as `nfluid-nf` does ([`nfluid_hosting`]). In tier `microvm` its thread is the virtual
//! CPU: what the guest uses, and what the switch uses for its frames, is CPU time of this process. In tier `linux` an
//! emulator beside it runs the machine; in tier `stack` the program runs beside it.

mod companion;
mod guests;

use companion::Companions;
use guests::Guests;
use std::process::ExitCode;

const NAME: &str = "nfluid-vmm";

fn main() -> ExitCode {
    match Companions::inherited() {
        Ok(Some(mut companions)) => nfluid_hosting::main(NAME, &mut companions),
        Ok(None) => nfluid_hosting::main(NAME, &mut Guests::default()),
        Err(why) => {
            eprintln!("{NAME}: {why:#}");
            ExitCode::FAILURE
        }
    }
}
