//! Output: colours where they make sense, tables, and the three formats.

use crate::args::{Color, Format};
use crate::failure::Failure;
use nfluid_api::types::{Diagnostic, Severity};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// Colours and emphasis of the terminal.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Red => "31",
            Style::Green => "32",
            Style::Yellow => "33",
        }
    }
}

/// Standard output and standard error.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    colors_out: bool,
    colors_err: bool,
}

impl Screen {
    /// Decides on colours: <https://no-color.org> counts for `auto`.
    pub fn new(color: Color) -> Self {
        let allowed = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let decide = |is_terminal: bool| match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && allowed,
        };
        Screen {
            colors_out: decide(io::stdout().is_terminal()),
            colors_err: decide(io::stderr().is_terminal()),
        }
    }

    /// Returns true if standard output is a terminal.
    pub fn is_terminal(self) -> bool {
        io::stdout().is_terminal()
    }

    /// A text in a style, for standard output.
    pub fn styled(self, style: Style, text: &str) -> String {
        styled(self.colors_out, style, text)
    }

    /// Prints a text as it is.
    pub fn print(self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Prints a line.
    pub fn line(self, text: &str) -> Result<(), Failure> {
        self.print(&format!("{text}\n"))
    }

    /// Prints bytes.
    pub fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        Ok(out.flush()?)
    }

    /// Prints a table, the first row in bold.
    pub fn table(self, table: &Table) -> Result<(), Failure> {
        self.print(&table.text(|heading| self.styled(Style::Bold, heading)))
    }

    /// Prints a value for programs, or, in table format, the output of `table`.
    pub fn object<T: Serialize>(
        self,
        format: Format,
        value: &T,
        table: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match format {
            Format::Table => table(),
            Format::Json => self.line(&serde_json::to_string_pretty(value)?),
            Format::Yaml => {
                let value = serde_json::to_value(value)?;
                self.print(&nfluid_control::yaml::to_text(&value))
            }
        }
    }

    /// Clears the terminal, if it is one.
    pub fn clear(self) -> Result<(), Failure> {
        if self.is_terminal() {
            self.print("\x1b[H\x1b[2J")?;
        }
        Ok(())
    }

    /// Prints errors and warnings to standard error.
    pub fn diagnostics(self, found: &[Diagnostic]) {
        for diagnostic in found {
            let (word, style) = match diagnostic.severity {
                Severity::Error => ("error:", Style::Red),
                Severity::Warning => ("warning:", Style::Yellow),
            };
            let text = printable_lines(&diagnostic.to_string());
            let styled = styled(self.colors_err, style, word);
            eprintln!("{}", text.replacen(word, &styled, 1));
        }
    }

    /// Prints the reason of a failure to standard error.
    pub fn failure(self, failure: &Failure) {
        let message = match failure {
            Failure::ReaderGone | Failure::Reported => return,
            // The function has reported the fault itself.
            Failure::Function(_, message) if message.is_empty() => return,
            Failure::Diagnostics(message, found) => {
                self.diagnostics(found);
                message
            }
            Failure::Operation(message)
            | Failure::Function(_, message)
            | Failure::Usage(message)
            | Failure::NotReachable(message)
            | Failure::NotPermitted(message) => message,
        };
        let word = styled(self.colors_err, Style::Red, "error:");
        // The message may contain text of an instance.
        eprintln!("{word} {}", printable_lines(message));
    }
}

fn styled(enabled: bool, style: Style, text: &str) -> String {
    if enabled {
        format!("\x1b[{}m{text}\x1b[0m", style.code())
    } else {
        text.to_owned()
    }
}

/// Rows and columns.
#[derive(Clone, Debug)]
pub struct Table {
    headings: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(headings: &'static [&'static str]) -> Self {
        Table {
            headings,
            rows: Vec::new(),
        }
    }

    /// Adds a row, one cell per heading.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(printable).collect());
    }

    /// The headings.
    pub fn headings(&self) -> &'static [&'static str] {
        self.headings
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The width of each column in characters.
    pub fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.headings.iter().map(|h| h.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    /// The table as lines; `emphasize` is applied to the line of headings.
    pub fn text(&self, emphasize: impl Fn(&str) -> String) -> String {
        let widths = self.widths();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded = cells
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            let line: Vec<String> = padded.collect();
            line.join("  ").trim_end().to_owned()
        };
        let mut text = emphasize(&line(&mut self.headings.iter().copied())) + "\n";
        for row in &self.rows {
            text += &line(&mut row.iter().map(String::as_str));
            text.push('\n');
        }
        text
    }
}

/// Removes characters that could control the terminal from foreign text.
pub fn printable(text: String) -> String {
    if text.chars().any(char::is_control) {
        return text.chars().flat_map(char::escape_debug).collect();
    }
    text
}

/// Does the same for a text of several lines.
pub fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| printable(line.to_owned()))
        .collect();
    lines.join("\n")
}

/// A number of packets or bits per second, short: `12.3k`.
pub fn short_number(value: f64) -> String {
    for (unit, size) in [("G", 1e9), ("M", 1e6), ("k", 1e3)] {
        if value >= size {
            let scaled = value / size;
            return if scaled >= 100.0 {
                format!("{scaled:.0}{unit}")
            } else {
                format!("{scaled:.1}{unit}")
            };
        }
    }
    format!("{value:.0}")
}

/// A number of bytes, short: `12.3MiB`.
pub fn short_bytes(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size {
            return format!("{:.1}{unit}", bytes as f64 / size as f64);
        }
    }
    format!("{bytes}B")
}

/// A length of time, short: `3d4h`, `5m10s`.
pub fn short_time(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// A latency, short: `12us`.
pub fn short_ns(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{:.1}us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}ms", ns as f64 / 1e6),
        _ => format!("{:.1}s", ns as f64 / 1e9),
    }
}

/// A share of a core.
pub fn core(number: Option<u32>) -> String {
    number.map_or_else(|| "-".into(), |number| number.to_string())
}

/// A percentage.
pub fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |percent| format!("{percent:.1}%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms() {
        assert_eq!(short_number(999.0), "999");
        assert_eq!(short_number(12_345.0), "12.3k");
        assert_eq!(short_number(1.5e9), "1.5G");
        assert_eq!(short_bytes(16 << 20), "16.0MiB");
        assert_eq!(short_time(90_061_000), "1d1h");
        assert_eq!(short_time(61_000), "1m1s");
        assert_eq!(short_ns(12_345), "12.3us");
    }

    // promise: 8.6
    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb".into()), "a\\u{1b}[2Jb");
        assert_eq!(printable("übrig".into()), "übrig");
        let lines = printable_lines("one\n  two\u{9b}2J\r\n");
        assert_eq!(lines, "one\n  two\\u{9b}2J\\r\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["A", "LONG"]);
        table.row(["xyz".to_owned(), "1".to_owned()]);
        assert_eq!(table.text(str::to_owned), "A    LONG\nxyz  1\n");
    }
}
