//! Output on a terminal: tables for people, a line per figure for programs.

use crate::record::Figure;

/// Prints figures, one per line.
pub fn print_figures(figures: &[Figure]) {
    print!("{}", figure_lines(figures));
}

/// Figures, one per line.
pub fn figure_lines(figures: &[Figure]) -> String {
    let line = |figure: &Figure| {
        let value = significant(figure.value);
        format!("figure {} {value} {}\n", figure.id, figure.unit)
    };
    figures.iter().map(line).collect()
}

/// Four significant digits.
pub fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    format!("{value:.*}", digits.clamp(0, 9) as usize)
}

/// Prints a table: a header, then rows of equal length.
pub fn table(title: &str, header: &[&str], rows: &[Vec<String>]) {
    print!("{}", table_text(title, header, rows));
}

/// A table: an empty line, the title, a header, then rows of equal length.
pub fn table_text(title: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells
            .chain([header[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}", width = *width))
            .collect();
        format!("  {}\n", padded.join("  "))
    };
    let rows = rows
        .iter()
        .map(|row| line(&mut row.iter().map(String::as_str)));
    let lines: String = [line(&mut header.iter().copied())]
        .into_iter()
        .chain(rows)
        .collect();
    format!("\n{title}\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::{significant, table_text};

    #[test]
    fn four_significant_digits() {
        assert_eq!(significant(12.3456), "12.35");
        assert_eq!(significant(0.012_345_6), "0.01235");
        assert_eq!(significant(123_456.0), "123456");
        assert_eq!(significant(0.0), "0");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = table_text("T", &["a", "b"], &[row(["1", "20"]), row(["300", "4"])]);
        assert_eq!(text, "\nT\n    a   b\n    1  20\n  300   4\n");
    }
}
