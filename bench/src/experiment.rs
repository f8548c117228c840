//! The description of an experiment.

use crate::needs::Needs;
use crate::report::Report;

/// A group of related experiments.
pub struct Topic {
    /// The heading above the experiments, in lists and on pages.
    pub title: &'static str,
    /// The experiments in the order in which they run and appear.
    pub experiments: &'static [Experiment],
}

/// An experiment.
pub struct Experiment {
    /// The experiment's name on the command line: what the experiment measures.
    pub name: &'static str,
    /// Other accepted names: the id of the experiment in the literature, or a former name. Figure ids begin with this
    /// id, and so stay comparable.
    pub aliases: &'static [&'static str],
    /// The comparison that the experiment makes, in a line.
    pub summary: &'static str,
    /// Debian packages that the experiment needs.
    pub needs: Needs,
    /// Runs the experiment.
    pub run: Run,
}

impl Experiment {
    /// Returns true if `name` is the experiment's name or one of its aliases.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// Measures, prints tables, reports figures and plots; [`nfluid_testbed::CannotRun`] if the host cannot run the
/// experiment.
pub type Run = fn(&mut Report) -> anyhow::Result<()>;
