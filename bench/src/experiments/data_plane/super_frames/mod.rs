//! Super-frames: four streams of TCP through the demo's chain, between veths and between taps, and through the kernel
//! ([`streams`]); long frames from a sender through the switch to a receiver ([`jumbo`]).

mod jumbo;
mod streams;

use crate::host::cpu::require_two_cores;
use crate::report::Report;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    streams::run(report)?;
    jumbo::run(report)
}
