//! Quantities of different units, measured round by round.

use crate::report::{Report, significant, table};
use nfluid_figures::plot::Series;
use nfluid_figures::statistics::Samples;

/// A quantity.
struct Row {
    id: String,
    what: String,
    unit: &'static str,
    samples: Samples,
}

/// Quantities in the order in which they came first.
#[derive(Default)]
pub struct Rows(Vec<Row>);

impl Rows {
    /// Adds a sample.
    pub fn add(&mut self, id: &str, what: &str, unit: &'static str, value: f64) {
        if !self.0.iter().any(|row| row.id == id) {
            self.0.push(Row {
                id: id.to_owned(),
                what: what.to_owned(),
                unit,
                samples: Samples::default(),
            });
        }
        if let Some(row) = self.0.iter_mut().find(|row| row.id == id) {
            row.samples.push(value);
        }
    }

    /// The samples of a quantity.
    pub fn samples(&self, id: &str) -> Samples {
        let row = self.0.iter().find(|row| row.id == id);
        row.map(|row| row.samples.clone()).unwrap_or_default()
    }

    /// Adds, round by round, how many times `of` is `over`.
    pub fn ratio(&mut self, id: &str, what: &str, of: &str, over: &str) {
        let ratios = self.samples(of).ratios(&self.samples(over));
        for &ratio in ratios.values() {
            self.add(id, what, "x", ratio);
        }
    }

    /// Prints the table, and reports all figures.
    pub fn finish(self, report: &mut Report, title: &str, conditions: &str) {
        let cells = self.0.iter().map(|row| {
            vec![
                row.what.clone(),
                significant(row.samples.median()),
                row.unit.to_owned(),
                format!("{:.0} %", row.samples.spread_percent()),
            ]
        });
        table(
            title,
            &["what", "median", "unit", "spread"],
            &cells.collect::<Vec<_>>(),
        );
        for row in self.0 {
            let conditions = format!("{}; {conditions}", row.what);
            report.figure(row.id, &row.samples, row.unit, &conditions);
        }
    }
}

/// A line of a plot: how many percent of the samples are not above each of them.
pub fn distribution(name: &str, samples: &Samples) -> Series {
    const PERCENT: [f64; 12] = [
        0.1, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0,
    ];
    let mut series = Series::new(name);
    for percent in PERCENT {
        let value = samples.quantile(percent / 100.0);
        series.push(value, &Samples::from(percent));
    }
    series
}
