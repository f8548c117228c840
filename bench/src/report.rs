//! What an experiment prints: tables for people, `figure ID VALUE UNIT` lines for programs.

use crate::environment::Environment;
use crate::host::distance::{Steady, core_to_core_ns};
use crate::statistics::Samples;
use anyhow::Context;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// As in the issues and docs/performance.md.
    pub id: String,
    /// Median.
    pub value: f64,
    /// Unit.
    pub unit: &'static str,
    /// Distance of the quartiles in percent of the median.
    pub spread_percent: f64,
    /// All repetitions.
    pub samples: Vec<f64>,
    /// Cores used, batch, ring size, ...
    pub conditions: String,
}

/// The figures of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    environment: Environment,
    /// As in the environment, when the run ended.
    core_to_core_ns_end: Option<f64>,
    quick: bool,
    figures: Vec<Figure>,
    #[serde(skip)]
    steady: Option<Steady>,
}

/// How long an experiment may wait for near cores, in all.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_QUICK: Duration = Duration::from_secs(1);

impl Report {
    /// An empty report; prints where it runs.
    pub fn new(quick: bool) -> Self {
        let environment = Environment::read();
        println!(
            "# kernel {}, {}, {} cores, {} apart, load {}{}{}",
            environment.kernel,
            environment.cpu,
            environment.cores,
            apart(environment.core_to_core_ns),
            environment.load,
            if environment.virtualised {
                ", virtual machine"
            } else {
                ""
            },
            if environment.optimised {
                ""
            } else {
                ", NOT OPTIMISED: figures are worthless"
            },
        );
        Report {
            environment,
            core_to_core_ns_end: None,
            quick,
            figures: Vec::new(),
            steady: None,
        }
    }

    /// `full` in a full run, `quick` in a quick one.
    pub fn choose<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Before each measurement of an experiment in which two cores share memory: waits, for a limited
    /// time, until the host has put them near to each other.
    pub fn settle(&mut self) {
        let patience = self.choose(PATIENCE, PATIENCE_QUICK);
        let known = self.environment.core_to_core_ns;
        let steady = self.steady.get_or_insert_with(|| {
            let mut steady = Steady::new(known, patience);
            steady.look_around();
            steady
        });
        steady.settle();
    }

    /// Adds a figure: the median of `samples`.
    pub fn figure(
        &mut self,
        id: impl Into<String>,
        samples: &Samples,
        unit: &'static str,
        conditions: &str,
    ) {
        self.figures.push(Figure {
            id: id.into(),
            value: samples.median(),
            unit,
            spread_percent: samples.spread_percent(),
            samples: samples.values().to_vec(),
            conditions: conditions.to_owned(),
        });
    }

    /// Adds a figure that is computed from others.
    pub fn derived(
        &mut self,
        id: impl Into<String>,
        value: f64,
        unit: &'static str,
        conditions: &str,
    ) {
        self.figure(id, &[value].into_iter().collect(), unit, conditions);
    }

    /// Prints all figures, one per line, after whether the machine has stayed the same.
    pub fn print_figures(&mut self) {
        self.core_to_core_ns_end = core_to_core_ns([0, 1]);
        println!(
            "\n# cores {} apart at the beginning, {} at the end; waited {:.1} s for near ones",
            apart(self.environment.core_to_core_ns),
            apart(self.core_to_core_ns_end),
            self.steady
                .as_ref()
                .map_or(0.0, |steady| steady.waited().as_secs_f64())
        );
        for figure in &self.figures {
            println!(
                "figure {} {} {}",
                figure.id,
                significant(figure.value),
                figure.unit
            );
        }
    }

    /// Writes everything as JSON.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }
}

/// The distance of two cores, for people.
fn apart(core_to_core_ns: Option<f64>) -> String {
    core_to_core_ns.map_or_else(|| "unknown".to_owned(), |ns| format!("{ns:.0} ns"))
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
    println!("\n{title}");
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
        println!("  {}", padded.join("  "));
    };
    line(&mut header.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
}

#[cfg(test)]
mod tests {
    use super::significant;

    #[test]
    fn four_significant_digits() {
        assert_eq!(significant(12.3456), "12.35");
        assert_eq!(significant(0.012_345_6), "0.01235");
        assert_eq!(significant(123_456.0), "123456");
        assert_eq!(significant(0.0), "0");
    }
}
