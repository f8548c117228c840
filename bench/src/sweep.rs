//! Sides of an experiment, measured in turn: repetitions interleaved, then a table, figures and lines of a plot.
//!
//! An experiment says what it measures ([`Quantity`]) and of what ([`Side`]); a [`Sweep`] runs the sides round by round, so
//! that whatever the machine does meanwhile happens to all of them, and keeps a [`Row`] of samples for each.

use crate::report::{Report, significant, table};
use nfluid_figures::plot::Series;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use std::ops::Range;

/// Something that each repetition measures.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// The end of the figure's id, with what joins it to the row's, and the figure's unit; `None` if it is no figure.
    pub figure: Option<(&'static str, &'static str)>,
    /// Columns of the table: header, and what is shown.
    pub columns: &'static [(&'static str, Shown)],
}

impl Quantity {
    /// Frames per second by the clock, with its spread.
    pub const MPPS: Quantity = Quantity {
        figure: Some((".mpps", "Mpps")),
        columns: &[("Mpps", Shown::Median), ("spread", Shown::Spread)],
    };
    /// Frames per second of CPU time, beside [`Quantity::MPPS`] by the clock.
    pub const MPPS_PER_CPU: Quantity = Quantity {
        figure: Some((".mpps_per_cpu", "Mpps")),
        columns: PER_CPU_SECOND,
    };
    /// Frames per second of CPU time, as the first quantity.
    pub const CPU_MPPS: Quantity = Quantity {
        figure: Some((".mpps", "Mpps")),
        columns: PER_CPU_SECOND,
    };
    /// Frames per second by the clock, beside [`Quantity::CPU_MPPS`].
    pub const WALL_MPPS: Quantity = Quantity {
        figure: Some((".wall_mpps", "Mpps")),
        columns: &[("Mpps by the clock", Shown::Median)],
    };
}

const PER_CPU_SECOND: &[(&str, Shown)] = &[
    ("Mpps per CPU-second", Shown::Median),
    ("spread", Shown::Spread),
];

/// A way to show a row's samples in a cell of the table.
#[derive(Clone, Copy, Debug)]
pub enum Shown {
    /// The median, to four significant digits.
    Median,
    /// The median as a whole number.
    Whole,
    /// The median as a whole number of percent.
    Percent,
    /// The median with one decimal.
    Tenths,
    /// The distance of the quartiles in percent of the median.
    Spread,
    /// The distance of the quartiles with one decimal, of what is in percent itself.
    Quartiles,
    /// The sum of all repetitions, of what is counted.
    Sum,
}

impl Shown {
    fn cell(self, samples: &Samples) -> String {
        if samples.values().is_empty() {
            return String::new();
        }
        match self {
            Shown::Median => significant(samples.median()),
            Shown::Whole => format!("{:.0}", samples.median()),
            Shown::Percent => format!("{:.0} %", samples.median()),
            Shown::Tenths => format!("{:.1}", samples.median()),
            Shown::Spread => format!("{:.0} %", samples.spread_percent()),
            Shown::Quartiles => {
                format!("{:.1}", samples.high_quartile() - samples.low_quartile())
            }
            Shown::Sum => format!("{:.0}", samples.values().iter().sum::<f64>()),
        }
    }
}

/// A side of the comparison, at one point of the axis.
#[derive(Debug)]
pub struct Side<S> {
    /// The first cells of its row.
    pub key: Vec<String>,
    /// The beginning of its figures' ids.
    pub id: String,
    /// Under which conditions its figures hold.
    pub conditions: String,
    /// The line of a plot on which it is, and its place on the axis.
    pub line: String,
    pub x: f64,
    /// The quantities of a repetition.
    pub subject: S,
}

impl<S> Side<S> {
    /// A side with these first cells of its row and the beginning of its figures' ids.
    pub fn new(key: impl Into<Vec<String>>, id: impl Into<String>, subject: S) -> Self {
        Side {
            key: key.into(),
            id: id.into(),
            conditions: String::new(),
            line: String::new(),
            x: 0.0,
            subject,
        }
    }

    /// Has its figures hold under these conditions.
    pub fn under(self, conditions: &str) -> Self {
        let conditions = conditions.to_owned();
        Side { conditions, ..self }
    }

    /// Places it on a line of the plot.
    pub fn on(self, line: &str, x: impl Into<f64>) -> Self {
        let (line, x) = (line.to_owned(), x.into());
        Side { line, x, ..self }
    }
}

/// The samples of a side.
#[derive(Debug)]
pub struct Row<const N: usize> {
    /// The first cells.
    pub key: Vec<String>,
    /// The beginning of the figures' ids.
    pub id: String,
    /// Under which conditions the figures hold.
    pub conditions: String,
    /// The line of a plot on which it is, and its place on the axis.
    pub line: String,
    pub x: f64,
    /// Of each quantity.
    pub samples: [Samples; N],
    /// The last cells.
    pub notes: Vec<String>,
}

/// The rows of an experiment.
#[derive(Debug)]
pub struct Sweep<const N: usize> {
    quantities: [Quantity; N],
    /// Headers of the rows' first cells.
    keys: &'static [&'static str],
    /// Headers of the rows' last cells.
    pub notes: &'static [&'static str],
    rows: Vec<Row<N>>,
    /// Two cores share memory: each repetition waits until they are near.
    pub settles: bool,
    /// A round before the others does not count.
    pub warms_up: bool,
}

impl<const N: usize> Sweep<N> {
    /// Without rows. `keys` are the headers of the sides' first cells.
    pub fn new(keys: &'static [&'static str], quantities: [Quantity; N]) -> Self {
        Sweep {
            quantities,
            keys,
            notes: &[],
            rows: Vec::new(),
            settles: true,
            warms_up: true,
        }
    }

    /// Measures all sides in each of so many rounds, and adds a row for each; the numbers of these rows. `measure` is told
    /// whether the round counts, and returns NaN for a quantity that the side does not have: the cell is then empty, and there
    /// is no figure.
    ///
    /// # Errors
    /// Those of `measure`; when interrupted.
    pub fn run<S>(
        &mut self,
        report: &mut Report,
        rounds: usize,
        sides: &mut [Side<S>],
        mut measure: impl FnMut(&mut S, bool) -> anyhow::Result<[f64; N]>,
    ) -> anyhow::Result<Range<usize>> {
        let first = self.rows.len();
        self.rows.extend(sides.iter().map(|side| Row {
            key: side.key.clone(),
            id: side.id.clone(),
            conditions: side.conditions.clone(),
            line: side.line.clone(),
            x: side.x,
            samples: [(); N].map(|()| Samples::default()),
            notes: Vec::new(),
        }));
        for round in usize::from(!self.warms_up)..=rounds {
            for (side, row) in sides.iter_mut().zip(&mut self.rows[first..]) {
                interrupt::check()?;
                if self.settles {
                    report.settle();
                }
                let counts = round > 0;
                let values = measure(&mut side.subject, counts)?;
                let measured = row.samples.iter_mut().zip(values);
                measured
                    .filter(|(_, value)| counts && !value.is_nan())
                    .for_each(|(samples, value)| samples.push(value));
            }
        }
        Ok(first..self.rows.len())
    }

    /// All rows.
    pub fn rows(&self) -> &[Row<N>] {
        &self.rows
    }

    /// All rows, to complete conditions and last cells by what was measured.
    pub fn rows_mut(&mut self) -> &mut [Row<N>] {
        &mut self.rows
    }

    /// Hands in the figures of these rows.
    pub fn report(&self, report: &mut Report, rows: Range<usize>) {
        for row in &self.rows[rows] {
            self.figures(report, row);
        }
    }

    fn figures(&self, report: &mut Report, row: &Row<N>) {
        let measured = self.quantities.iter().zip(&row.samples);
        for (quantity, samples) in measured.filter(|(_, it)| !it.values().is_empty()) {
            if let Some((ending, unit)) = quantity.figure {
                let id = format!("{}{ending}", row.id);
                report.figure(id, samples, unit, &row.conditions);
            }
        }
    }

    /// Prints all rows.
    pub fn print(&self, title: &str) {
        let columns = self.quantities.iter().flat_map(|it| it.columns);
        let header = self.keys.iter().chain(columns.map(|(name, _)| name));
        let header = header.chain(self.notes);
        let header: Vec<&str> = header.copied().collect();
        let rows: Vec<_> = self.rows.iter().map(|row| self.cells(row)).collect();
        table(title, &header, &rows);
    }

    fn cells(&self, row: &Row<N>) -> Vec<String> {
        let measured = self.quantities.iter().zip(&row.samples);
        let cells = measured.flat_map(|(quantity, samples)| {
            let columns = quantity.columns.iter();
            columns.map(|(_, shown)| shown.cell(samples))
        });
        let cells = row.key.iter().cloned().chain(cells);
        cells.chain(row.notes.iter().cloned()).collect()
    }
}

/// The lines of a plot: a quantity of these rows over the axis, lines in the order in which they first appear.
pub fn lines<const N: usize>(rows: &[Row<N>], quantity: usize) -> Vec<Series> {
    let mut lines: Vec<Series> = Vec::new();
    for row in rows {
        let known = lines.iter().position(|line| line.name == row.line);
        let at = known.unwrap_or(lines.len());
        if known.is_none() {
            lines.push(Series::new(row.line.as_str()));
        }
        lines[at].push(row.x, &row.samples[quantity]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{Quantity, Shown, Side, Sweep, lines};
    use crate::options::Options;
    use crate::report::Report;

    const SPEED: Quantity = Quantity {
        figure: Some((".mpps", "Mpps")),
        columns: &[("Mpps", Shown::Median), ("spread", Shown::Spread)],
    };
    const LOST: Quantity = Quantity {
        figure: None,
        columns: &[("lost", Shown::Sum)],
    };

    fn side(name: &str, subject: f64) -> Side<f64> {
        let key = [name.to_owned()];
        Side::new(key, format!("x.{name}"), subject).on(name, subject)
    }

    #[test]
    fn rounds_are_interleaved_and_the_first_one_does_not_count() {
        let mut report = Report::new("x", "for a test", true, &Options::default());
        let mut sweep = Sweep::new(&["side"], [SPEED, LOST]);
        sweep.settles = false;
        let mut order = Vec::new();
        let mut sides = [side("a", 1.0), side("b", 2.0)];
        let rows = sweep.run(&mut report, 2, &mut sides, |subject, counts| {
            order.push((*subject, counts));
            Ok([*subject, if *subject > 1.0 { f64::NAN } else { 3.0 }])
        });
        assert_eq!(rows.unwrap(), 0..2);
        let expected = [false, true, true].map(|counts| [(1.0, counts), (2.0, counts)]);
        assert_eq!(order, expected.concat());
        assert_eq!(sweep.cells(&sweep.rows()[0]), ["a", "1.000", "0 %", "6"]);
        assert_eq!(sweep.cells(&sweep.rows()[1]), ["b", "2.000", "0 %", ""]);
        let names: Vec<_> = lines(sweep.rows(), 0)
            .into_iter()
            .map(|it| it.name)
            .collect();
        assert_eq!(names, ["a", "b"]);
        sweep.report(&mut report, 1..2);
        let figures = report.finish().figures;
        let ids: Vec<_> = figures.iter().map(|figure| figure.id.as_str()).collect();
        assert_eq!(ids, ["x.b.mpps"]);
    }
}
