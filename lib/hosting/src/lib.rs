//! Hosts one network function on the ports of an instance: what runs inside an instance, whatever isolates it.
//!
//! The daemon hands the process everything that it has: the port table, the configuration, and a listening socket for
//! commands. The process outlives the daemon. What it hosts is made by its [`Functions`]: `bin/nfluid-nf` takes the
//! network function from the catalogue, `bin/nfluid-vmm` starts a guest that is one.

mod departure;
mod functions;
mod host;
mod inheritance;
mod metrics;
mod packets;
mod queues;
mod recent;
mod scaling;
mod state_file;
mod succession;
mod ticks;
mod waiting_frames;
mod wake;

pub use functions::Functions;
pub use wake::any_of;

use std::process::ExitCode;

/// Hosts what `functions` makes until the process is killed, and reports the reason if that is not possible. `program` is
/// the name of the program in messages.
pub fn main(program: &'static str, functions: &mut dyn Functions) -> ExitCode {
    match host::run(program, functions) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
