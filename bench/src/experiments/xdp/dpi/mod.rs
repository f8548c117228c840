//! Deep packet inspection: eDPI, and nDPI alone.

pub mod elephants;
pub mod firewall_dpi;
mod inspected;
mod reader;
mod topology;

use nfluid_dpi::library::Library;
use nfluid_testbed::CannotRun;

/// Refuses to run without nDPI of the version for which this program was built.
fn library() -> Result<(), CannotRun> {
    let opened = Library::open();
    opened
        .map(drop)
        .map_err(|error| CannotRun(error.to_string()))
}
