//! The description of an experiment.

use crate::needs::Needs;
use crate::report::Report;

/// An experiment.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The experiment's subject, in a line.
    pub summary: &'static str,
    /// Debian packages that the experiment needs.
    pub needs: Needs,
    /// Runs it.
    pub run: Run,
}

/// Measures, prints tables, hands in figures and plots; [`nfluid_testbed::CannotRun`] if the host cannot run it.
pub type Run = fn(&mut Report) -> anyhow::Result<()>;
