//! The page as HTML: one file with its drawings, without scripts, and without external resources.

use super::{
    ABOUT, FIGURE_HEADER, LITERATURE_HEADER, NOT_HERE, RUN_HEADER, TITLE, answer, figure_cells,
    heading, run_cells, warning,
};
use crate::literature::ROWS;
use nfluid_figures::record::Record;

const STYLE: &str = "\
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border: 1px solid #ddd; padding: .3rem .6rem; text-align: left; vertical-align: top; }
th { background: #f5f5f5; }
td { font-variant-numeric: tabular-nums; }
code { background: #f5f5f5; padding: 0 .2rem; }
figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; border: 1px solid #eee; }
.warning { background: #fff3cd; border: 1px solid #e0c36a; padding: .5rem 1rem; }
.missing { color: #777; }
";

/// Returns the whole page.
///
/// # Errors
/// When a plot cannot be drawn.
pub fn page(records: &[Record]) -> anyhow::Result<String> {
    let warning = warning(records)
        .map(|text| format!("<p class=\"warning\">{}</p>\n", escape(text)))
        .unwrap_or_default();
    let runs = table(
        &RUN_HEADER,
        records.iter().map(|record| escaped(&run_cells(record))),
    );
    let literature = table(&LITERATURE_HEADER, literature(records));
    let mut experiments = String::new();
    for record in records {
        experiments.push_str(&experiment(record)?);
    }
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p>{about}</p>\n{warning}<h2>Runs</h2>\n{runs}<h2>Beside the literature</h2>\n{literature}\
         <h2>Figures</h2>\n{experiments}</body>\n</html>\n",
        title = escape(TITLE),
        about = escape(ABOUT),
    ))
}

/// Returns an experiment's figures and drawings.
fn experiment(record: &Record) -> anyhow::Result<String> {
    let figures = table(
        &FIGURE_HEADER,
        record
            .figures
            .iter()
            .map(|figure| escaped(&figure_cells(figure))),
    );
    let mut drawings = String::new();
    for plot in &record.plots {
        let title = escape(&plot.title);
        let svg = plot.svg()?;
        drawings.push_str(&format!(
            "<figure role=\"img\" aria-label=\"{title}\">\n{svg}<figcaption>{title}</figcaption>\n</figure>\n",
        ));
    }
    Ok(format!(
        "<h3>{}: {}</h3>\n<p><code>{}</code>, {}</p>\n{drawings}{figures}",
        escape(&heading(record)),
        escape(&record.summary),
        escape(&record.command),
        escape(&record.date),
    ))
}

fn literature(records: &[Record]) -> impl Iterator<Item = Vec<String>> {
    ROWS.iter().map(|row| {
        let answers: Vec<_> = row
            .answers(records)
            .into_iter()
            .map(|(record, figure)| escape(&answer(record, figure)))
            .collect();
        let here = if answers.is_empty() {
            format!("<span class=\"missing\">{}</span>", escape(NOT_HERE))
        } else {
            answers.join("<br>")
        };
        vec![escape(row.id), escape(row.what), escape(row.result), here]
    })
}

/// Returns a table; the cells of its rows are HTML already.
fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String], tag: &str| {
        let cells: Vec<_> = cells
            .iter()
            .map(|cell| format!("<{tag}>{cell}</{tag}>"))
            .collect();
        format!("<tr>{}</tr>\n", cells.concat())
    };
    let header: Vec<_> = header.iter().map(|text| escape(text)).collect();
    let body: Vec<_> = rows.map(|cells| line(&cells, "td")).collect();
    format!(
        "<div class=\"wide\"><table>\n<thead>{}</thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
        line(&header, "th").trim_end(),
        body.concat()
    )
}

fn escaped(cells: &[String]) -> Vec<String> {
    cells.iter().map(|cell| escape(cell)).collect()
}

/// Escapes text for an element or a quoted attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn every_character_that_means_something_is_escaped() {
        assert_eq!(
            escape("<a href=\"b\" c='d'>&amp;</a>"),
            "&lt;a href=&quot;b&quot; c=&#39;d&#39;&gt;&amp;amp;&lt;/a&gt;"
        );
        assert_eq!(escape("a > 8 µs"), "a &gt; 8 µs");
    }
}
