//! The experiments that a name on the command line means, and the list of all names.

use crate::experiment::Experiment;
use anyhow::bail;

/// A name is suggested if it differs from the given one by at most one typing error in so many letters.
const LETTERS_PER_ERROR: usize = 3;

/// Returns the experiment of `all` that has this name or alias; for `all`, every one.
///
/// # Errors
/// No experiment has the name. The error suggests the closest name, if one is close.
pub fn choose<'a>(all: &'a [Experiment], name: &str) -> anyhow::Result<Vec<&'a Experiment>> {
    if name == "all" {
        return Ok(all.iter().collect());
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

/// Returns a line for each experiment: name, aliases, summary.
pub fn list(all: &[Experiment]) -> Vec<String> {
    let aliases = |experiment: &Experiment| experiment.aliases.join(", ");
    let names = all.iter().map(|experiment| experiment.name.len()).max();
    let ids = all.iter().map(|experiment| aliases(experiment).len()).max();
    let (name_width, alias_width) = (names.unwrap_or(0), ids.unwrap_or(0));
    let line = |experiment: &Experiment| {
        let (name, aliases) = (experiment.name, aliases(experiment));
        let summary = experiment.summary;
        format!("{name:<name_width$}  {aliases:<alias_width$}  {summary}")
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{choose, list};
    use crate::experiments::ALL;
    use std::collections::BTreeSet;

    fn chosen(name: &str) -> Vec<&'static str> {
        let chosen = choose(ALL, name).expect("an experiment");
        chosen.iter().map(|experiment| experiment.name).collect()
    }

    #[test]
    fn an_experiment_has_a_name_and_the_literatures_id() {
        assert_eq!(chosen("consolidation"), ["consolidation"]);
        assert_eq!(chosen("h7"), ["consolidation"]);
        assert_eq!(chosen("all").len(), ALL.len());
    }

    #[test]
    fn no_two_experiments_share_a_name_or_an_alias() {
        let mut names = BTreeSet::from(["all", "list", "packages", "report"]);
        for experiment in ALL {
            for name in experiment.aliases.iter().chain([&experiment.name]) {
                assert!(names.insert(name), "{name} is taken");
            }
        }
    }

    #[test]
    fn a_name_is_not_an_id_of_the_literature() {
        for experiment in ALL {
            let digits = experiment.name[1..]
                .bytes()
                .all(|byte| byte.is_ascii_digit());
            assert!(!digits, "{} says nothing", experiment.name);
        }
    }

    #[test]
    fn a_misspelt_name_brings_a_suggestion() {
        let error = |name: &str| choose(ALL, name).err().expect("a typing error").to_string();
        assert!(error("consolidtion").contains("did you mean 'consolidation'?"));
        assert!(error("l7migrat").contains("did you mean 'l7migrate'?"));
        assert!(error("xxxxxxxx").contains("'nfluid-bench list' names them"));
        assert!(!error("h9").contains("did you mean"), "any id is as close");
    }

    #[test]
    fn the_list_has_a_column_for_names_and_one_for_aliases() {
        let lines = list(ALL);
        let line = lines.iter().find(|line| line.starts_with("consolidation "));
        let words: Vec<_> = line.expect("a line").split_whitespace().take(2).collect();
        assert_eq!(words, ["consolidation", "h7"]);
        let columns = lines
            .iter()
            .zip(ALL)
            .map(|(line, it)| line.find(it.summary));
        assert_eq!(
            columns.collect::<BTreeSet<_>>().len(),
            1,
            "summaries in a column"
        );
    }
}
