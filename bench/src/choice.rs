//! Resolves names on the command line to experiments, and lists all names.

use crate::experiment::{Experiment, Topic};
use anyhow::bail;

/// A name is suggested if it differs from the given name by at most one typing error per this many letters.
const LETTERS_PER_ERROR: usize = 3;

/// Returns the experiment of `all` that has this name or alias; for the name `all`, every experiment.
///
/// # Errors
/// No experiment has the name. The error suggests the closest name, if one is close.
pub fn choose(all: &[&'static Experiment], name: &str) -> anyhow::Result<Vec<&'static Experiment>> {
    if name == "all" {
        return Ok(all.to_vec());
    }
    if let Some(experiment) = all.iter().find(|experiment| experiment.is_called(name)) {
        return Ok(vec![experiment]);
    }
    let names = all
        .iter()
        .flat_map(|experiment| experiment.aliases.iter().chain([&experiment.name]));
    match closest(name, names) {
        Some(close) => bail!("no experiment '{name}': did you mean '{close}'?"),
        None => bail!("no experiment '{name}'; 'nfluid-bench list' names them"),
    }
}

fn closest<'a>(name: &str, known: impl Iterator<Item = &'a &'static str>) -> Option<&'static str> {
    let errors_max = name.chars().count() / LETTERS_PER_ERROR;
    let distances = known.map(|known| (strsim::damerau_levenshtein(name, known), *known));
    let close = distances.filter(|(distance, _)| *distance <= errors_max);
    let (_, known) = close.min_by_key(|(distance, _)| *distance)?;
    Some(known)
}

/// Returns the lines of the list: for each topic its title, then name, aliases and summary of each experiment.
pub fn list(topics: &[Topic]) -> Vec<String> {
    let aliases = |experiment: &Experiment| experiment.aliases.join(", ");
    let all = || topics.iter().flat_map(|topic| topic.experiments);
    let name_width = all().map(|experiment| experiment.name.len()).max();
    let alias_width = all().map(|experiment| aliases(experiment).len()).max();
    let (name_width, alias_width) = (name_width.unwrap_or(0), alias_width.unwrap_or(0));
    let mut lines = Vec::new();
    for topic in topics {
        lines.push(format!("# {}", topic.title));
        lines.extend(topic.experiments.iter().map(|experiment| {
            let (name, aliases) = (experiment.name, aliases(experiment));
            let summary = experiment.summary;
            format!("{name:<name_width$}  {aliases:<alias_width$}  {summary}")
        }));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{choose, list};
    use crate::experiments::{TOPICS, all};
    use std::collections::BTreeSet;

    fn chosen(name: &str) -> Vec<&'static str> {
        let chosen = choose(&all(), name).expect("an experiment");
        chosen.iter().map(|experiment| experiment.name).collect()
    }

    #[test]
    fn an_experiment_has_a_name_and_the_literatures_id() {
        assert_eq!(chosen("consolidation"), ["consolidation"]);
        assert_eq!(chosen("h7"), ["consolidation"]);
        assert_eq!(chosen("all").len(), all().len());
    }

    // promise: 13.1
    #[test]
    fn no_two_experiments_share_a_name_or_an_alias() {
        let mut names = BTreeSet::from(["all", "list", "packages", "report"]);
        for experiment in all() {
            for name in experiment.aliases.iter().chain([&experiment.name]) {
                assert!(names.insert(name), "{name} is taken");
            }
        }
    }

    #[test]
    fn a_name_is_not_an_id_of_the_literature() {
        for experiment in all() {
            let digits = experiment.name[1..]
                .bytes()
                .all(|byte| byte.is_ascii_digit());
            assert!(!digits, "{} says nothing", experiment.name);
        }
    }

    #[test]
    fn a_misspelt_name_brings_a_suggestion() {
        let error = |name: &str| {
            choose(&all(), name)
                .err()
                .expect("a typing error")
                .to_string()
        };
        assert!(error("consolidtion").contains("did you mean 'consolidation'?"));
        assert!(error("l7migrat").contains("did you mean 'l7migrate'?"));
        assert!(error("xxxxxxxx").contains("'nfluid-bench list' names them"));
        assert!(!error("h0").contains("did you mean"), "any id is as close");
    }

    #[test]
    fn the_list_has_a_column_for_names_and_one_for_aliases() {
        let lines = list(TOPICS);
        let line = lines.iter().find(|line| line.starts_with("consolidation "));
        let words: Vec<_> = line.expect("a line").split_whitespace().take(2).collect();
        assert_eq!(words, ["consolidation", "h7"]);
        let all = all();
        let columns = lines.iter().filter_map(|line| {
            let experiment = all
                .iter()
                .find(|it| line.starts_with(&format!("{} ", it.name)))?;
            line.find(experiment.summary)
        });
        let columns: Vec<_> = columns.collect();
        assert_eq!(columns.len(), all.len());
        assert_eq!(
            BTreeSet::from_iter(columns).len(),
            1,
            "summaries in a column"
        );
    }
}
