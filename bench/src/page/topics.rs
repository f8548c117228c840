//! The figures of docs/performance.md: published runs, topic by topic, with machine, commit and date.

use super::markdown::{escaped, table};
use super::{FIGURE_HEADER, RUN_HEADER, figure_cells, run_cells};
use crate::experiments::TOPICS;
use anyhow::{Context, bail, ensure};
use nfluid_figures::record::Record;
use nfluid_figures::results::Results;
use std::path::Path;

/// Markers of a page; the figures between them are replaced.
const BEGIN: &str = "<!-- figures by topic: begin, written by `nfluid-bench report --update` -->";
const END: &str = "<!-- figures by topic: end -->";

/// The heading above the results of other programs, such as the simulator.
const OTHERS: &str = "Other programs";

/// Replaces the text between the markers of the page at `path` by the figures of `records`. Quick runs are left out by
/// name.
///
/// # Errors
/// The page cannot be read or written, has no markers, or nothing is left to publish.
pub fn update(path: &Path, records: &[Record]) -> anyhow::Result<()> {
    let (quick, full): (Vec<_>, Vec<_>) = records.iter().partition(|record| record.quick);
    for record in quick {
        println!("{} left out: a quick run", record.command);
    }
    for record in &full {
        if !record.environment.optimised {
            bail!("{}: not optimised, not for publication", record.command);
        }
    }
    ensure!(!full.is_empty(), "no full run to publish");
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{} names no file", path.display()))?;
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    let page = replace(&text, &section(&full))
        .with_context(|| format!("replacing the figures of {}", path.display()))?;
    Results::new(path.parent().unwrap_or(Path::new("."))).file(name, &page)?;
    println!("{}", path.display());
    Ok(())
}

/// Returns the page with `section` between its markers.
fn replace(page: &str, section: &str) -> anyhow::Result<String> {
    let parts = page.split_once(BEGIN);
    let (before, rest) = parts.with_context(|| format!("no line '{BEGIN}'"))?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("no line '{END}' behind '{BEGIN}'"))?;
    Ok(format!("{before}{BEGIN}\n\n{section}{END}{after}"))
}

/// Returns, for each topic that has results, a heading, the table of its runs, and the table of their figures.
fn section(records: &[&Record]) -> String {
    let titles = TOPICS.iter().map(|topic| topic.title).chain([OTHERS]);
    let topic = |title: &str| {
        let records = records.iter().copied();
        let records: Vec<_> = records.filter(|it| title_of(it) == title).collect();
        if records.is_empty() {
            return String::new();
        }
        let runs = records.iter().map(|record| escaped(&run_cells(record)));
        let figures = records.iter().flat_map(|record| &record.figures);
        let figures = figures.map(|figure| escaped(&figure_cells(figure)));
        format!(
            "### {title}\n\n{}\n{}\n",
            table(&RUN_HEADER, runs),
            table(&FIGURE_HEADER, figures)
        )
    };
    titles.map(topic).collect()
}

/// Returns the title of the topic of a record's experiment.
fn title_of(record: &Record) -> &'static str {
    let mut topics = TOPICS.iter();
    let topic = topics.find(|topic| {
        let mut experiments = topic.experiments.iter();
        experiments.any(|experiment| experiment.is_called(&record.experiment))
    });
    topic.map_or(OTHERS, |topic| topic.title)
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, OTHERS, replace, section, update};
    use nfluid_figures::record::{Record, sample};

    fn full(experiment: &str) -> Record {
        Record {
            quick: false,
            ..sample(experiment)
        }
    }

    // promise: 13.6
    #[test]
    fn figures_are_below_their_topic_with_machine_commit_and_date() {
        let (line, old, new) = (full("red4-line"), full("h7"), full("wake"));
        let text = section(&[&line, &old, &new]);
        let place = |part: &str| {
            text.find(part)
                .unwrap_or_else(|| panic!("no {part}: {text}"))
        };
        assert!(place("### Data plane") < place("wake.roundtrip"));
        assert!(place("wake.roundtrip") < place("### I/O models"));
        assert!(place("### I/O models") < place("h7.roundtrip"));
        assert!(place("h7.roundtrip") < place(&format!("### {OTHERS}")));
        assert!(place(&format!("### {OTHERS}")) < place("red4-line.roundtrip"));
        for part in ["A &lt;CPU&gt;", "0123456789ab", "2026-11-21T06:00:00.000Z"] {
            place(part);
        }
        assert!(!text.contains("### Use cases"), "a topic without results");
    }

    // promise: 13.6
    #[test]
    fn what_is_written_by_hand_stays() {
        let page = format!("# By hand\n\n{BEGIN}\nold\n{END}\n\n## Missed\n");
        let new = replace(&page, "new\n").unwrap();
        assert_eq!(
            new,
            format!("# By hand\n\n{BEGIN}\n\nnew\n{END}\n\n## Missed\n")
        );
        assert_eq!(replace(&new, "new\n").unwrap(), new, "written again");
        for without in ["text", BEGIN, END, &format!("{END}{BEGIN}")] {
            let error = replace(without, "new").unwrap_err().to_string();
            assert!(error.contains("no line"), "{error}");
        }
    }

    // promise: 13.6
    #[test]
    fn quick_runs_and_debug_builds_are_not_published() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("performance.md");
        let page = format!("{BEGIN}\n{END}\n");
        std::fs::write(&path, &page).unwrap();
        let mut debug = full("wake");
        debug.environment.optimised = false;
        assert!(update(&path, &[sample("h7")]).is_err());
        assert!(update(&path, &[full("h7"), debug]).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), page, "as it was");
        update(&path, &[sample("wake"), full("h7")]).unwrap();
        let published = std::fs::read_to_string(&path).unwrap();
        assert!(published.contains("h7.roundtrip"), "{published}");
        assert!(!published.contains("wake.roundtrip"), "{published}");
    }
}
