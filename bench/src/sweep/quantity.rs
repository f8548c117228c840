//! Quantities of an experiment: the ids and units of figures, and the columns of tables.

use crate::report::significant;
use nfluid_figures::statistics::Samples;

/// A quantity that each repetition measures.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// Suffix of the figure's id, and its unit; `None` if the quantity is no figure.
    pub figure: Option<(&'static str, &'static str)>,
    /// Suffix of the id of a figure that is the 99th percentile of the samples.
    pub p99: Option<&'static str>,
    /// Meaning of the quantity, if the figure's id does not express it: the beginning of the figure's conditions.
    pub meaning: &'static str,
    /// Columns of the table: header and displayed value.
    pub columns: &'static [(&'static str, Shown)],
}

impl Quantity {
    /// Returns a quantity whose median is a figure, with the suffix of its id (including the separator) and its unit.
    pub const fn new(
        ending: &'static str,
        unit: &'static str,
        columns: &'static [(&'static str, Shown)],
    ) -> Self {
        Quantity {
            figure: Some((ending, unit)),
            ..Quantity::shown(columns)
        }
    }

    /// Returns a quantity that appears only in the table.
    pub const fn shown(columns: &'static [(&'static str, Shown)]) -> Self {
        Quantity {
            figure: None,
            p99: None,
            meaning: "",
            columns,
        }
    }

    /// Adds a figure: the 99th percentile of the samples.
    pub const fn with_p99(self, ending: &'static str) -> Self {
        Quantity {
            p99: Some(ending),
            ..self
        }
    }

    /// Sets the meaning, with which the conditions of the quantity's figures begin.
    pub const fn meaning(self, meaning: &'static str) -> Self {
        Quantity { meaning, ..self }
    }

    /// Frames per second by the clock, with its spread.
    pub const MPPS: Quantity = Quantity::new(
        ".mpps",
        "Mpps",
        &[("Mpps", Shown::Median), ("spread", Shown::Spread)],
    );
    /// Frames per second of CPU time, in addition to [`Quantity::MPPS`] by the clock.
    pub const MPPS_PER_CPU: Quantity = Quantity::new(".mpps_per_cpu", "Mpps", PER_CPU_SECOND);
    /// Frames per second of CPU time, as the first quantity.
    pub const CPU_MPPS: Quantity = Quantity::new(".mpps", "Mpps", PER_CPU_SECOND);
    /// Frames per second by the clock, in addition to [`Quantity::CPU_MPPS`].
    pub const WALL_MPPS: Quantity = Quantity::new(
        ".wall_mpps",
        "Mpps",
        &[("Mpps by the clock", Shown::Median)],
    );
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
    /// The interquartile range in percent of the median.
    Spread,
    /// The interquartile range with one decimal, for values in percent.
    Quartiles,
    /// The 99th percentile, to four significant digits.
    P99,
    /// The largest of all repetitions, to four significant digits.
    Largest,
    /// The sum of all repetitions, for counters.
    Sum,
}

impl Shown {
    /// Returns the text of the cell; empty without samples.
    pub fn cell(self, samples: &Samples) -> String {
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
            Shown::P99 => significant(samples.p99()),
            Shown::Largest => significant(samples.quantile(1.0)),
            Shown::Sum => format!("{:.0}", samples.values().iter().sum::<f64>()),
        }
    }
}
