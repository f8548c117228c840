//! The experiments, one file each.

mod batch;
pub mod discipline;
mod line;
mod pooling;
mod scene;
mod thresholds;
mod two_flows;

use crate::report::Report;

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// The summary, in a line.
    pub summary: &'static str,
    /// Simulates, and hands in tables, figures and plots.
    pub run: fn(&mut Report) -> anyhow::Result<()>,
}

/// R5, figure 9.
pub const TWO_FLOWS: Experiment = Experiment {
    name: "two-flows",
    summary: "two flows of different cost on one core, 1:1 to 1:16, in each discipline (R5, figure 9)",
    run: two_flows::run,
};

/// R5, figures 8 and 10.
pub const LINE: Experiment = Experiment {
    name: "line",
    summary: "a line of n cores: a multipath flow and n short flows (R5, figures 8 and 10)",
    run: line::run,
};

/// R3; R5, figure 11.
pub const BATCH: Experiment = Experiment {
    name: "batch",
    summary: "what the batch of the functions does to the sharing (R3; R5, figure 11)",
    run: batch::run,
};

/// R6.
pub const POOLING: Experiment = Experiment {
    name: "pooling",
    summary: "a multipath flow over a plain path and one that compresses, by their congestion (R6)",
    run: pooling::run,
};

/// Hand-set thresholds.
pub const THRESHOLDS: Experiment = Experiment {
    name: "thresholds",
    summary: "thresholds set by hand against signals that tune themselves, over loads and round trips",
    run: thresholds::run,
};

/// All of them.
pub const ALL: &[Experiment] = &[TWO_FLOWS, LINE, BATCH, POOLING, THRESHOLDS];
