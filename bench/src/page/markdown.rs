//! The page as Markdown; drawings are separate files.

use super::{
    ABOUT, FIGURE_HEADER, LITERATURE_HEADER, NOT_HERE, RUN_HEADER, TITLE, answer, figure_cells,
    heading, run_cells, warning,
};
use crate::literature::ROWS;
use nfluid_figures::record::Record;

/// Returns the whole page.
pub fn page(records: &[Record]) -> String {
    let runs = table(
        &RUN_HEADER,
        records.iter().map(|record| escaped(&run_cells(record))),
    );
    let literature = table(&LITERATURE_HEADER, literature(records));
    let warning = warning(records).map_or_else(String::new, |text| format!("**{text}**\n\n"));
    let experiments: String = records.iter().map(experiment).collect();
    format!(
        "# {TITLE}\n\n{ABOUT}\n\n{warning}## Runs\n\n{runs}\n## Beside the literature\n\n{literature}\n\
         ## Figures\n\n{experiments}"
    )
}

/// Returns an experiment's drawings and figures.
fn experiment(record: &Record) -> String {
    let drawings: Vec<_> = record
        .plots
        .iter()
        .map(|plot| format!("![{}]({}.svg)\n\n", escape(&plot.title), address(&plot.id)))
        .collect();
    let figures = table(
        &FIGURE_HEADER,
        record
            .figures
            .iter()
            .map(|figure| escaped(&figure_cells(figure))),
    );
    format!(
        "### {}: {}\n\n{}, {}\n\n{}{figures}\n",
        escape(&heading(record)),
        escape(&record.summary),
        escape(&record.command),
        escape(&record.date),
        drawings.concat()
    )
}

fn literature(records: &[Record]) -> impl Iterator<Item = Vec<String>> {
    ROWS.iter().map(|row| {
        let answers: Vec<_> = row
            .answers(records)
            .into_iter()
            .map(|(record, figure)| escape(&answer(record, figure)))
            .collect();
        let here = if answers.is_empty() {
            NOT_HERE.to_owned()
        } else {
            answers.join("<br>")
        };
        vec![escape(row.id), escape(row.what), escape(row.result), here]
    })
}

/// Returns a table. The cells of its rows are Markdown already.
pub fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rule = vec!["---"; header.len()].join(" | ");
    let rows: Vec<_> = rows
        .map(|cells| format!("| {} |\n", cells.join(" | ")))
        .collect();
    format!("| {} |\n| {rule} |\n{}", header.join(" | "), rows.concat())
}

/// Returns cells whose text contains no markup.
pub fn escaped(cells: &[String]) -> Vec<String> {
    cells.iter().map(|cell| escape(cell)).collect()
}

/// Escapes one line of text (CommonMark section 2.4), also for a table's cell.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '[' | ']' | '|' | '#' | '~' | '!' => {
                escaped.push('\\');
                escaped.push(character);
            }
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Encodes a file's name as a link's address: all bytes but letters, digits and `.-_` are escaped.
fn address(name: &str) -> String {
    let mut address = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b".-_".contains(&byte) {
            address.push(char::from(byte));
        } else {
            address.push_str(&format!("%{byte:02X}"));
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::{address, escape};

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(escape("a|b *c* <d>\ne"), "a\\|b \\*c\\* &lt;d&gt; e");
        assert_eq!(escape("h3.roundtrip_ratio"), "h3.roundtrip_ratio");
    }

    #[test]
    fn an_address_has_no_brackets_or_spaces() {
        assert_eq!(address("h5.bridge"), "h5.bridge");
        assert_eq!(address("a) b/ä"), "a%29%20b%2F%C3%A4");
    }
}
