//! Output of an experiment: tables for readers, `figure ID VALUE UNIT` lines for programs, plots.

pub use nfluid_figures::terminal::{print_figures, significant, table};

use crate::environment;
use crate::host::distance::{Steady, core_to_core_ns};
use crate::options::Options;
use nfluid_api::time::utc;
use nfluid_figures::plot::Plot;
use nfluid_figures::record::{Figure, Record, command};
use nfluid_figures::statistics::Samples;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// This program's name.
pub const PROGRAM: &str = "nfluid-bench";

/// The results of an experiment.
#[derive(Debug)]
pub struct Report {
    record: Record,
    options: Options,
    steady: Option<Steady>,
}

/// A number of repetitions, or a time.
pub trait Effort {
    /// Returns a quarter of the effort, at least one repetition or 0.1 s.
    fn brief(self) -> Self;
}

/// Divisor of a quick run's repetitions and times in a brief run.
const BRIEF_PART: u8 = 4;

macro_rules! counted {
    ($($number:ty)*) => {$(
        impl Effort for $number {
            fn brief(self) -> Self {
                (self / Self::from(BRIEF_PART)).max(1)
            }
        }
    )*};
}

counted!(i32 u32 u64 usize);

/// Least time of a brief run: on a shared core, a process gets some turns within this time.
const BRIEF_SECONDS_MIN: f64 = 0.1;

impl Effort for f64 {
    fn brief(self) -> Self {
        (self / Self::from(BRIEF_PART))
            .max(BRIEF_SECONDS_MIN)
            .min(self)
    }
}

impl Effort for Duration {
    fn brief(self) -> Self {
        self / u32::from(BRIEF_PART)
    }
}

impl<T: Effort, const N: usize> Effort for [T; N] {
    fn brief(self) -> Self {
        self.map(T::brief)
    }
}

impl<A: Effort, B: Effort> Effort for (A, B) {
    fn brief(self) -> Self {
        (self.0.brief(), self.1.brief())
    }
}

impl<A: Effort, B: Effort, C: Effort> Effort for (A, B, C) {
    fn brief(self) -> Self {
        (self.0.brief(), self.1.brief(), self.2.brief())
    }
}

/// Total time for which an experiment may wait for near cores.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_QUICK: Duration = Duration::from_secs(1);

impl Report {
    /// Returns the empty report of the experiment `name`; prints the run's environment.
    pub fn new(name: &str, summary: &str, quick: bool, options: &Options) -> Self {
        let environment = environment::read();
        println!(
            "# kernel {}, {}, {} cores, {} apart, load {}{}{}",
            environment.kernel,
            environment.cpu,
            environment.cores,
            core_distance(environment.core_to_core_ns),
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
        let record = Record {
            experiment: name.to_owned(),
            summary: summary.to_owned(),
            command: command(PROGRAM, name, quick) + &options.command_line(),
            date: String::new(),
            environment,
            core_to_core_ns_end: None,
            quick,
            figures: Vec::new(),
            plots: Vec::new(),
        };
        Report {
            record,
            options: options.clone(),
            steady: None,
        }
    }

    /// Returns the options of the command line.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns `full` in a full run, `quick` in a quick run.
    pub fn choose<T>(&self, full: T, quick: T) -> T {
        if self.record.quick { quick } else { full }
    }

    /// Returns the repetitions or the time of a measurement: `full` in a full run, `quick` in a quick run, a part of
    /// that in a brief run.
    pub fn effort<T: Effort>(&self, full: T, quick: T) -> T {
        let chosen = self.choose(full, quick);
        if self.options.brief {
            chosen.brief()
        } else {
            chosen
        }
    }

    /// Waits, for a limited time, until the host has placed the cores near to each other. Called before each
    /// measurement of an experiment in which two cores share memory.
    pub fn settle(&mut self) {
        let patience = self.choose(PATIENCE, PATIENCE_QUICK);
        let known = self.record.environment.core_to_core_ns;
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
        let figure = Figure::of(id, samples, unit, conditions);
        self.record.figures.push(figure);
    }

    /// Adds a figure that is computed from others.
    pub fn derived(
        &mut self,
        id: impl Into<String>,
        value: f64,
        unit: &'static str,
        conditions: &str,
    ) {
        self.figure(id, &Samples::from(value), unit, conditions);
    }

    /// Adds a plot, which is drawn when the results are written. A further plot of the same id adds its points; a plot
    /// without points is not drawn.
    pub fn plot(&mut self, plot: Plot) {
        let plots = &mut self.record.plots;
        if plot.series.iter().all(|series| series.points.is_empty()) {
            return;
        }
        match plots.iter_mut().find(|known| known.id == plot.id) {
            Some(known) => known.extend(plot),
            None => plots.push(plot),
        }
    }

    /// Ends the run; prints whether the machine's state has changed.
    pub fn finish(self) -> Record {
        let Report {
            mut record, steady, ..
        } = self;
        record.core_to_core_ns_end = core_to_core_ns([0, 1]);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        record.date = utc(since_1970.unwrap_or_default().as_millis() as u64);
        println!(
            "\n# cores {} apart at the beginning, {} at the end; waited {:.1} s for near ones",
            core_distance(record.environment.core_to_core_ns),
            core_distance(record.core_to_core_ns_end),
            steady.map_or(0.0, |steady| steady.waited().as_secs_f64())
        );
        record
    }
}

/// Returns the distance of two cores as a text.
pub fn core_distance(core_to_core_ns: Option<f64>) -> String {
    core_to_core_ns.map_or_else(|| "unknown".to_owned(), |ns| format!("{ns:.0} ns"))
}

/// Returns the Gbit/s of `mpps` million frames of `len` bytes per second.
pub fn gbps(mpps: f64, len: usize) -> f64 {
    mpps * len as f64 * 8.0 / 1e3
}
