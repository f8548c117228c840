//! The description of an experiment.

use crate::needs::Needs;
use crate::report::Report;

/// Experiments of one subject.
pub struct Topic {
    /// The heading above the experiments, in lists and on pages.
    pub title: &'static str,
    /// In the order in which they are run and shown.
    pub experiments: &'static [Experiment],
}

/// An experiment.
pub struct Experiment {
    /// The experiment's name on the command line: what the experiment measures.
    pub name: &'static str,
    /// Other names that the command line takes: the id of the experiment in the literature, or a former name. Ids of figures
    /// begin with the id, and so stay comparable.
    pub aliases: &'static [&'static str],
    /// The comparison that the experiment makes, in a line.
    pub summary: &'static str,
    /// Debian packages that the experiment needs.
    pub needs: Needs,
    /// Runs it.
    pub run: Run,
}

impl Experiment {
    /// Returns true if `name` is the experiment's name or one of its aliases.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// Measures, prints tables, hands in figures and plots; [`nfluid_testbed::CannotRun`] if the host cannot run it.
pub type Run = fn(&mut Report) -> anyhow::Result<()>;
