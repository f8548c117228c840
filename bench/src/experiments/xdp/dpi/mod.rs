//! Deep packet inspection: eDPI, and nDPI alone.

pub mod elephants;
pub mod firewall_dpi;
mod inspected;
mod reader;
mod topology;

use nfluid_dpi::library::Library;
use nfluid_testbed::CannotRun;

/// Refuses to run without nDPI in the version that this program was built for.
fn library() -> Result<(), CannotRun> {
    let opened = Library::open();
    opened
        .map(drop)
        .map_err(|error| CannotRun(error.to_string()))
}
