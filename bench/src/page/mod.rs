//! The page of all results in a folder, as HTML and as Markdown: the runs with their machines, the figures with spread
//! and conditions, the plots, and each row of the literature with our figure.

mod html;
mod markdown;
mod topics;

use crate::experiment::Experiment;
use crate::experiments;
use crate::report::{core_distance, significant};
use nfluid_figures::record::{Figure, Record};
use nfluid_figures::results::Results;
use nfluid_figures::statistics::Samples;
use std::path::Path;

/// Joins the results in `folder` into `report.html` and `report.md` there, and prints their paths. With `update`, also
/// replaces the figures of that page (see [`topics::update`]).
///
/// # Errors
/// There are no results, one of them is damaged (names the file), or a page cannot be written.
pub fn write(folder: &Path, update: Option<&Path>) -> anyhow::Result<()> {
    let results = Results::new(folder);
    let mut records = newest(results.read()?);
    records.sort_by_key(|record| position(&record.experiment));
    for (name, text) in [
        ("report.html", html::page(&records)?),
        ("report.md", markdown::page(&records)),
    ] {
        println!("{}", results.file(name, &text)?.display());
    }
    update.map_or(Ok(()), |page| topics::update(page, &records))
}

/// Returns the latest result of each experiment. Results of a former name, as `h7.json`, are of the same experiment.
fn newest(records: Vec<Record>) -> Vec<Record> {
    let mut newest: Vec<Record> = Vec::new();
    for record in records {
        let name = name(&record.experiment);
        let known = newest
            .iter_mut()
            .find(|it| self::name(&it.experiment) == name);
        match known {
            // RFC 3339 dates in UTC sort as texts.
            Some(known) if known.date < record.date => *known = record,
            Some(_) => {}
            None => newest.push(record),
        }
    }
    newest
}

/// Returns the experiment that has this name or alias.
fn experiment(name: &str) -> Option<&'static Experiment> {
    let mut all = experiments::all().into_iter();
    all.find(|experiment| experiment.is_called(name))
}

/// Returns the present name of an experiment; an unknown name is returned unchanged.
fn name(known_as: &str) -> &str {
    experiment(known_as).map_or(known_as, |experiment| experiment.name)
}

/// Returns the heading of a record: the experiment's name and, in brackets, its aliases.
fn heading(record: &Record) -> String {
    match experiment(&record.experiment) {
        Some(experiment) if !experiment.aliases.is_empty() => {
            format!("{} ({})", experiment.name, experiment.aliases.join(", "))
        }
        _ => record.experiment.clone(),
    }
}

/// Returns the position of an experiment in the list of all, by its name or an alias; unknown experiments come last.
fn position(experiment: &str) -> usize {
    let all = experiments::all();
    let known = all.iter().position(|known| known.is_called(experiment));
    known.unwrap_or(all.len())
}

const TITLE: &str = "nfluid: experiments";
const ABOUT: &str = "A value is the median of its repetitions. The literature's figures are of other machines, and context: ratios compare.";
const NOT_OPTIMISED: &str =
    "Some runs were made by a program that was not optimised: their figures are worthless.";
const NOT_HERE: &str = "not among these results";

const RUN_HEADER: [&str; 10] = [
    "experiment",
    "command",
    "date (UTC)",
    "kernel",
    "CPU",
    "cores",
    "cores apart, beginning and end",
    "load before",
    "nfluid",
    "commit",
];
const FIGURE_HEADER: [&str; 6] = [
    "figure",
    "median",
    "quartiles",
    "mean",
    "repetitions",
    "conditions",
];
const LITERATURE_HEADER: [&str; 4] = ["row", "what", "literature", "here"];

/// Returns the row of the table of runs; texts are not escaped.
fn run_cells(record: &Record) -> [String; 10] {
    let environment = &record.environment;
    let virtual_machine = if environment.virtualised {
        " (virtual machine)"
    } else {
        ""
    };
    [
        heading(record),
        record.command.clone(),
        record.date.clone(),
        environment.kernel.clone(),
        format!("{}{virtual_machine}", environment.cpu),
        environment.cores.to_string(),
        format!(
            "{}, {}",
            core_distance(environment.core_to_core_ns),
            core_distance(record.core_to_core_ns_end)
        ),
        environment.load.to_string(),
        environment.version.clone(),
        environment
            .commit
            .clone()
            .unwrap_or_else(|| "unknown".to_owned()),
    ]
}

/// Returns the row of a table of figures; texts are not escaped.
fn figure_cells(figure: &Figure) -> [String; 6] {
    let samples: Samples = figure.samples.iter().copied().collect();
    let quartiles = if figure.samples.len() > 1 {
        format!(
            "{} to {} ({:.0} %)",
            significant(samples.low_quartile()),
            significant(samples.high_quartile()),
            figure.spread_percent
        )
    } else {
        String::new()
    };
    [
        figure.id.clone(),
        format!("{} {}", significant(figure.value), figure.unit),
        quartiles,
        significant(samples.mean()),
        figure.samples.len().to_string(),
        figure.conditions.clone(),
    ]
}

/// Returns the text of our figure for a row of the literature.
fn answer(record: &Record, figure: &Figure) -> String {
    let quick = if record.quick { ", quick" } else { "" };
    let spread = if figure.samples.len() > 1 {
        format!(" (spread {:.0} %{quick})", figure.spread_percent)
    } else if record.quick {
        " (quick)".to_owned()
    } else {
        String::new()
    };
    format!(
        "{} {} {}{spread}",
        figure.id,
        significant(figure.value),
        figure.unit
    )
}

/// Returns the warning above all figures, if there is one.
fn warning(records: &[Record]) -> Option<&'static str> {
    records
        .iter()
        .any(|record| !record.environment.optimised)
        .then_some(NOT_OPTIMISED)
}

#[cfg(test)]
mod tests {
    use super::{html, markdown, newest, write};
    use nfluid_figures::record::{Record, sample};
    use nfluid_figures::results::Results;

    // promise: 13.6
    #[test]
    fn the_page_has_plots_figures_and_the_literature_beside_ours() {
        let folder = tempfile::tempdir().unwrap();
        let results = Results::new(folder.path());
        results.write(&sample("h3")).unwrap();
        results.write(&sample("wake")).unwrap();
        write(folder.path(), None).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let (html, markdown) = (read("report.html"), read("report.md"));
        for page in [&html, &markdown] {
            for text in [
                "nfluid-bench h3 --quick",
                "2026-11-21T06:00:00.000Z",
                "26.3 us against 0.507 us",
                "h3.roundtrip_ratio 9.000 us (spread 11 %, quick)",
                "wake.roundtrip_ratio",
                "8.500 to 9.500 (11 %)",
                super::NOT_HERE,
            ] {
                assert!(page.contains(text), "no {text} in {page}");
            }
            assert!(!page.contains("<core>") && !page.contains("<CPU>"));
        }
        assert_eq!(html.matches("<svg").count(), 2);
        assert_eq!(html.matches("</svg>").count(), 2);
        for loads in ["<script", "<link", "src=", "href=", "url("] {
            assert!(!html.contains(loads), "{loads}: not self-contained");
        }
        assert!(markdown.contains("](h3.plot.svg)"));
        let place = |text: &str| markdown.find(text);
        assert!(
            place("### wake:") < place("### sync-roundtrip (h3):"),
            "in the order of the list"
        );
    }

    // promise: 13.6
    #[test]
    fn the_latest_result_counts_whatever_its_experiment_was_called() {
        let dated = |experiment: &str, day: u32| Record {
            date: format!("2026-11-{day}T06:00:00.000Z"),
            ..sample(experiment)
        };
        let records = [
            dated("h7", 21),
            dated("wake", 21),
            dated("consolidation", 22),
        ];
        let left = |records: Vec<Record>| -> Vec<String> {
            newest(records)
                .into_iter()
                .map(|it| it.experiment)
                .collect()
        };
        assert_eq!(left(records.to_vec()), ["consolidation", "wake"]);
        let records = [dated("consolidation", 20), dated("h7", 21)];
        assert_eq!(left(records.to_vec()), ["h7"]);
    }

    // promise: 13.6
    #[test]
    fn what_a_file_says_is_text_on_the_page() {
        let nasty = "</td><script>alert(1)</script>\n| [a](javascript:b) `c` *d* &amp;";
        let mut record = sample("h3");
        record.experiment = nasty.to_owned();
        record.summary = nasty.to_owned();
        record.environment.cpu = nasty.to_owned();
        record.figures[0].conditions = nasty.to_owned();
        record.plots[0].id = nasty.to_owned();
        record.plots[0].title = nasty.to_owned();
        record.plots[0].series[0].name = nasty.to_owned();
        let records = [record];
        let html = html::page(&records).unwrap();
        assert!(!html.contains("<script"), "{html}");
        assert!(
            html.contains("&amp;amp;"),
            "what is escaped is escaped again"
        );
        let markdown = markdown::page(&records);
        assert!(!markdown.contains("<script"), "{markdown}");
        assert!(!markdown.contains("[a](javascript"), "{markdown}");
        let columns = |line: &&str| line.replace("\\|", "").matches('|').count();
        let table: Vec<_> = markdown
            .lines()
            .filter(|line| line.starts_with("| h3.roundtrip") || line.starts_with("| figure"))
            .collect();
        assert_eq!(table.len(), 2, "{markdown}");
        assert_eq!(columns(&table[0]), columns(&table[1]), "{markdown}");
    }

    #[test]
    fn figures_of_a_debug_build_are_called_worthless() {
        let mut record: Record = sample("h3");
        assert!(!html::page(&[record.clone()]).unwrap().contains("worthless"));
        record.environment.optimised = false;
        let records = [record];
        assert!(html::page(&records).unwrap().contains("worthless"));
        assert!(markdown::page(&records).contains("worthless"));
    }
}
