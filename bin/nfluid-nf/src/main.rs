//! What runs inside an instance: hosts one built-in network function on its ports.
//!
//! Everything that it has was put into its hands by the daemon: the port table, the configuration,
//! and a listening socket for commands. It outlives the daemon.

mod departure;
mod host;
mod inheritance;
mod luggage;
mod metrics;
mod moving;
mod queues;
mod recent;
mod scaling;
mod succession;
mod ticks;

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
