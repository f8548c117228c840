//! The router with a million routes, random destinations.

use super::alone::measure;
use crate::report::Report;
use crate::workload::Workload;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let workloads = [("router1m", Workload::Router { routes: 1_000_000 })];
    measure(report, "Router with a million routes", &workloads, &[64])
}
