//! Sides of an experiment, measured alternately: interleaved repetitions, then a table, figures and lines of a plot.
//!
//! An experiment defines what it measures ([`Quantity`]) and of what ([`Side`]); a [`Sweep`] runs the sides round by
//! round, so that changes of the machine affect all sides alike, and keeps a [`Row`] of samples for each.

mod quantity;

pub use quantity::{Quantity, Shown};

use crate::report::{Report, table};
use nfluid_figures::plot::Series;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use std::ops::Range;

/// A side of the comparison, at one point of the axis.
#[derive(Debug)]
pub struct Side<S> {
    /// The first cells of its row.
    pub key: Vec<String>,
    /// The prefix of its figure ids.
    pub id: String,
    /// The conditions of its figures.
    pub conditions: String,
    /// Its line in a plot, and its position on the axis.
    pub line: String,
    pub x: f64,
    /// The measured object.
    pub subject: S,
}

impl<S> Side<S> {
    /// Makes a side with these first cells of its row and this prefix of its figure ids.
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

    /// Sets the conditions of its figures.
    pub fn under(self, conditions: &str) -> Self {
        let conditions = conditions.to_owned();
        Side { conditions, ..self }
    }

    /// Places the side on a line of the plot.
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
    /// The prefix of the figure ids.
    pub id: String,
    /// The conditions of the figures.
    pub conditions: String,
    /// Its line in a plot, and its position on the axis.
    pub line: String,
    pub x: f64,
    /// Samples of each quantity.
    pub samples: [Samples; N],
    /// The last cells.
    pub notes: Vec<String>,
}

impl<const N: usize> Row<N> {
    /// Returns the row of a side, with these samples.
    fn of<S>(side: &Side<S>, samples: [Samples; N]) -> Self {
        Row {
            key: side.key.clone(),
            id: side.id.clone(),
            conditions: side.conditions.clone(),
            line: side.line.clone(),
            x: side.x,
            samples,
            notes: Vec::new(),
        }
    }
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
    /// Each repetition waits until the cores are near, because two cores share memory.
    pub settles: bool,
    /// A round before the others does not count.
    pub warms_up: bool,
}

impl<const N: usize> Sweep<N> {
    /// Makes a sweep without rows. `keys` are the headers of the sides' first cells.
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

    /// Returns a sweep without rows, whose rounds neither wait for near cores nor warm up.
    pub fn plain(keys: &'static [&'static str], quantities: [Quantity; N]) -> Self {
        Sweep {
            settles: false,
            warms_up: false,
            ..Sweep::new(keys, quantities)
        }
    }

    /// Adds a row of samples that were not taken by [`Sweep::run`].
    pub fn add(&mut self, side: &Side<()>, samples: [Samples; N]) {
        self.rows.push(Row::of(side, samples));
    }

    /// Measures all sides in each of `rounds` rounds, and adds a row for each; returns the numbers of these rows.
    /// `measure` gets true if the round counts, and returns NaN for a quantity that the side does not have: then the
    /// cell is empty, and there is no figure.
    ///
    /// # Errors
    /// The errors of `measure`; when interrupted.
    pub fn run<S>(
        &mut self,
        report: &mut Report,
        rounds: usize,
        sides: &mut [Side<S>],
        mut measure: impl FnMut(&mut S, bool) -> anyhow::Result<[f64; N]>,
    ) -> anyhow::Result<Range<usize>> {
        let first = self.rows.len();
        let empty = || [(); N].map(|()| Samples::default());
        let rows = sides.iter().map(|side| Row::of(side, empty()));
        self.rows.extend(rows);
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

    /// Returns all rows.
    pub fn rows(&self) -> &[Row<N>] {
        &self.rows
    }

    /// Returns all rows, for completing conditions and last cells from results.
    pub fn rows_mut(&mut self) -> &mut [Row<N>] {
        &mut self.rows
    }

    /// Reports the figures of these rows.
    pub fn report(&self, report: &mut Report, rows: Range<usize>) {
        let all: [usize; N] = std::array::from_fn(|quantity| quantity);
        for row in &self.rows[rows] {
            self.report_some(report, row, &all);
        }
    }

    /// Reports the figures of all rows.
    pub fn report_all(&self, report: &mut Report) {
        self.report(report, 0..self.rows.len());
    }

    /// Hands in the figures of a row for these quantities.
    pub fn report_some(&self, report: &mut Report, row: &Row<N>, quantities: &[usize]) {
        let of = |at: &usize| (&self.quantities[*at], &row.samples[*at]);
        let measured = quantities.iter().map(of);
        for (quantity, samples) in measured.filter(|(_, it)| !it.values().is_empty()) {
            let Some((ending, unit)) = quantity.figure else {
                continue;
            };
            let conditions = match (quantity.meaning, row.conditions.as_str()) {
                ("", conditions) => conditions.to_owned(),
                (meaning, "") => meaning.to_owned(),
                (meaning, conditions) => format!("{meaning}; {conditions}"),
            };
            report.figure(format!("{}{ending}", row.id), samples, unit, &conditions);
            if let Some(ending) = quantity.p99 {
                let id = format!("{}{ending}", row.id);
                report.derived(id, samples.p99(), unit, &conditions);
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

/// A line of a plot with a name of its own: a quantity of these rows over the axis.
pub fn line<'a, const N: usize>(
    name: &str,
    rows: impl IntoIterator<Item = &'a Row<N>>,
    quantity: usize,
) -> Series {
    let mut line = Series::new(name);
    for row in rows {
        line.push(row.x, &row.samples[quantity]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{Quantity, Shown, Side, Sweep, line, lines};
    use crate::options::Options;
    use crate::report::Report;
    use nfluid_figures::statistics::Samples;

    const SPEED: Quantity = Quantity::new(
        ".mpps",
        "Mpps",
        &[("Mpps", Shown::Median), ("spread", Shown::Spread)],
    );
    const LOST: Quantity = Quantity::shown(&[("lost", Shown::Sum)]);

    #[test]
    fn figures_say_what_they_mean_and_may_have_a_percentile() {
        let mut report = Report::new("x", "for a test", true, &Options::default());
        const DELAY: Quantity = Quantity::new(".ms", "ms", &[("longest", Shown::Largest)])
            .with_p99(".p99_ms")
            .meaning("from end to end");
        let mut sweep = Sweep::plain(&["side"], [DELAY]);
        let side = Side::new(["a".to_owned()], "x.a", ()).under("alone");
        sweep.add(&side, [[1.0, 2.0, 9.0].into_iter().collect()]);
        sweep.add(
            &Side::new(["b".to_owned()], "x.b", ()),
            [Samples::default()],
        );
        assert_eq!(sweep.cells(&sweep.rows()[0]), ["a", "9.000"]);
        sweep.report_all(&mut report);
        let figures = report.finish().figures;
        let found: Vec<_> = figures
            .iter()
            .map(|it| (it.id.as_str(), it.value))
            .collect();
        assert_eq!(found[0], ("x.a.ms", 2.0));
        assert_eq!(found[1].0, "x.a.p99_ms");
        assert_eq!(found.len(), 2, "a side without samples has no figure");
        assert_eq!(figures[0].conditions, "from end to end; alone");
    }

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
        let both = line("both", sweep.rows(), 0);
        let points: Vec<_> = both.points.iter().map(|it| (it.x, it.median)).collect();
        assert_eq!(points, [(1.0, 1.0), (2.0, 2.0)]);
        sweep.report(&mut report, 1..2);
        sweep.report_some(&mut report, &sweep.rows()[0], &[1]);
        sweep.report_some(&mut report, &sweep.rows()[0], &[0]);
        let figures = report.finish().figures;
        let ids: Vec<_> = figures.iter().map(|figure| figure.id.as_str()).collect();
        assert_eq!(ids, ["x.b.mpps", "x.a.mpps"]);
    }
}
