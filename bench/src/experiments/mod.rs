//! The experiments, one file each.

mod hyperio;
mod nonf;
pub mod traffic;

use crate::report::Report;

/// An experiment.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it measures, in a line.
    pub summary: &'static str,
    /// Runs it.
    pub run: fn(&mut Report) -> anyhow::Result<()>,
}

/// All of them.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: "hyperio",
        summary: "the call: empty and with frames, by batch and size, against getpid",
        run: hyperio::run,
    },
    Experiment {
        name: "nonf",
        summary: "sender -> switch -> receiver that reads the payload, two cores and one",
        run: nonf::run,
    },
];
