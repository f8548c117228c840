//! One page of all results in a folder, as HTML and as Markdown: what was run where, the figures with
//! spread and conditions, the plots, and each row of the literature with its figure beside ours.

mod html;
mod markdown;

use crate::experiments::ALL;
use crate::record::{Figure, Record};
use crate::report::{apart, significant};
use crate::results::Results;
use crate::statistics::Samples;
use std::path::Path;

/// Joins what is in the folder into `report.html` and `report.md` there, and says where they are.
///
/// # Errors
/// When there are no results, when one is damaged (names the file), when a page cannot be written.
pub fn write(folder: &Path) -> anyhow::Result<()> {
    let results = Results::new(folder);
    let mut records = results.read()?;
    records.sort_by_key(|record| position(&record.experiment));
    for (name, text) in [
        ("report.html", html::page(&records)?),
        ("report.md", markdown::page(&records)),
    ] {
        println!("{}", results.file(name, &text)?.display());
    }
    Ok(())
}

/// Of an experiment in the list of all; others behind them.
fn position(experiment: &str) -> usize {
    let known = ALL.iter().position(|known| known.name == experiment);
    known.unwrap_or(ALL.len())
}

const TITLE: &str = "nfluid: experiments";
const ABOUT: &str = "A value is the median of its repetitions. The literature's figures are of other machines, and context: ratios compare.";
const NOT_OPTIMISED: &str =
    "Some runs were made by a program that was not optimised: their figures are worthless.";
const NOT_HERE: &str = "not among these results";

const RUN_HEADER: [&str; 9] = [
    "experiment",
    "command",
    "date (UTC)",
    "kernel",
    "CPU",
    "cores",
    "cores apart, beginning and end",
    "load before",
    "nfluid",
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

/// The line of the table of runs; texts are not escaped.
fn run_cells(record: &Record) -> [String; 9] {
    let environment = &record.environment;
    let virtual_machine = if environment.virtualised {
        " (virtual machine)"
    } else {
        ""
    };
    [
        record.experiment.clone(),
        record.command.clone(),
        record.date.clone(),
        environment.kernel.clone(),
        format!("{}{virtual_machine}", environment.cpu),
        environment.cores.to_string(),
        format!(
            "{}, {}",
            apart(environment.core_to_core_ns),
            apart(record.core_to_core_ns_end)
        ),
        environment.load.to_string(),
        environment.version.clone(),
    ]
}

/// The line of a table of figures; texts are not escaped.
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

/// One of our figures beside the literature's.
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

/// What a reader must know before reading any figure.
fn warning(records: &[Record]) -> Option<&'static str> {
    records
        .iter()
        .any(|record| !record.environment.optimised)
        .then_some(NOT_OPTIMISED)
}

#[cfg(test)]
mod tests {
    use super::{html, markdown, write};
    use crate::record::{Record, sample};
    use crate::results::Results;

    // promise: 13.6
    #[test]
    fn the_page_has_plots_figures_and_the_literature_beside_ours() {
        let folder = tempfile::tempdir().unwrap();
        let results = Results::new(folder.path());
        results.write(&sample("h3")).unwrap();
        results.write(&sample("wake")).unwrap();
        write(folder.path()).unwrap();
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
            place("### h3:") < place("### wake:"),
            "in the order of the list"
        );
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
