//! The program that runs inside an instance, and hosts a built-in network function on its ports.
//!
//! The daemon hands the program everything that it has: the port table, the configuration, and a listening socket for
//! commands. The program outlives the daemon.

mod departure;
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

use std::process::ExitCode;

fn main() -> ExitCode {
    match host::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nfluid-nf: {error:#}");
            ExitCode::FAILURE
        }
    }
}
