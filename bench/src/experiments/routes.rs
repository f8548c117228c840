//! The router with a million routes, random destinations.

use super::alone::measure;
use super::subject::Subject;
use crate::report::Report;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let subjects = [("router1m", Subject::Router { routes: 1_000_000 })];
    measure(report, "Router with a million routes", &subjects, &[64])
}
