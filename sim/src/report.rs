//! Parameters of an experiment, and its results.

use crate::outcome::Outcome;
use crate::plan::{Plan, PlanError, enough};
use crate::simulation;
use crate::tcp::Control;
use nfluid_figures::environment::Environment;
use nfluid_figures::plot::Plot;
use nfluid_figures::record::{Figure, Record, command};
use nfluid_figures::statistics::Samples;
use nfluid_figures::terminal::table_text;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The name of this program.
pub const PROGRAM: &str = "nfluid-sim";

/// Packets that all simulations of an experiment may have: some hours.
const PACKETS_MAX: u64 = 20_000_000_000;

/// Parameters that every experiment has.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// Fewer seeds, shorter simulations, fewer cases.
    #[arg(long, global = true)]
    pub quick: bool,
    /// The first seed; repetition i has seed + i.
    #[arg(long, global = true, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Simulations of each case [default: 5, quick: 2].
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub repetitions: Option<u64>,
    /// Simulated seconds of each measurement [default: 60, quick: 10].
    #[arg(long, global = true, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
    /// Base round trip in microseconds.
    #[arg(long, global = true, value_name = "US", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    pub round_trip_us: u64,
    /// Queue delay that self-tuning signals aim at, in microseconds.
    #[arg(long, global = true, value_name = "US", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    pub target_us: u64,
    /// Congestion avoidance of senders with a single path.
    #[arg(long, global = true, value_name = "NAME", default_value = "reno")]
    pub control: Control,
    /// Senders without ECN: signals are drops.
    #[arg(long, global = true)]
    pub drop: bool,
}

impl Settings {
    /// The settings that differ from the defaults, in the form of the command line.
    fn words(&self) -> String {
        let mut words = String::new();
        let mut add = |name: &str, value: Option<u64>| {
            if let Some(value) = value {
                words += &format!(" --{name} {value}");
            }
        };
        add("seed", (self.seed != 1).then_some(self.seed));
        add("repetitions", self.repetitions);
        add("seconds", self.seconds);
        add(
            "round-trip-us",
            (self.round_trip_us != 5000).then_some(self.round_trip_us),
        );
        add(
            "target-us",
            (self.target_us != 5000).then_some(self.target_us),
        );
        if self.control != Control::Reno {
            words += &format!(" --control {:?}", self.control).to_lowercase();
        }
        if self.drop {
            words += " --drop";
        }
        words
    }
}

/// The results of an experiment.
#[derive(Debug)]
pub struct Report {
    record: Record,
    settings: Settings,
    text: String,
}

impl Report {
    /// An empty report.
    pub fn new(name: &str, summary: &str, settings: &Settings) -> Self {
        Report {
            record: Record {
                experiment: name.to_owned(),
                summary: summary.to_owned(),
                command: command(PROGRAM, name, settings.quick) + &settings.words(),
                date: String::new(),
                environment: Environment::simulated(env!("CARGO_PKG_VERSION")),
                core_to_core_ns_end: None,
                quick: settings.quick,
                figures: Vec::new(),
                plots: Vec::new(),
            },
            settings: settings.clone(),
            text: String::new(),
        }
    }

    /// Returns the requested settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// `full` in a full run, `quick` in a quick one.
    pub fn choose<T>(&self, full: T, quick: T) -> T {
        if self.settings.quick { quick } else { full }
    }

    /// Simulates each case once per repetition, on all cores of this machine, and returns the outcomes of each
    /// case. `plan` makes a plan of a case and a seed.
    ///
    /// # Errors
    /// The first plan that cannot be carried out; too many packets in all.
    pub fn simulate<C: Sync>(
        &self,
        cases: &[C],
        plan: impl Fn(&C, u64) -> Plan + Sync,
    ) -> Result<Vec<Vec<Outcome>>, PlanError> {
        let repetitions = self.settings.repetitions.unwrap_or(self.choose(5, 2)) as usize;
        let planned = |job: usize| {
            let seed = self.settings.seed.wrapping_add((job % repetitions) as u64);
            plan(&cases[job / repetitions], seed)
        };
        let plans: Vec<Plan> = (0..cases.len() * repetitions).map(planned).collect();
        let packets = plans.iter().map(Plan::packets);
        enough(packets.fold(0, u64::saturating_add), PACKETS_MAX)?;
        let simulate = |job: usize| simulation::run(&plans[job]);
        let mut outcomes = in_parallel(plans.len(), simulate).into_iter();
        let of_case = |_: &C| outcomes.by_ref().take(repetitions).collect();
        cases.iter().map(of_case).collect()
    }

    /// Adds a figure: the median of `samples`, one per seed.
    pub fn figure(
        &mut self,
        id: impl Into<String>,
        samples: &Samples,
        unit: &'static str,
        what: &str,
    ) {
        let figure = Figure::of(id, samples, unit, what);
        self.record.figures.push(figure);
    }

    /// Adds a plot.
    pub fn plot(&mut self, plot: Plot) {
        self.record.plots.push(plot);
    }

    /// Adds a table.
    pub fn table(&mut self, title: &str, header: &[&str], rows: &[Vec<String>]) {
        self.text += &table_text(title, header, rows);
    }

    /// Text for the terminal, and what is kept.
    pub fn finish(self) -> (String, Record) {
        (self.text, self.record)
    }
}

/// Returns the results of `work` for 0 to `jobs` - 1, in that order; no result depends on which thread did the work.
fn in_parallel<T: Send>(jobs: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let one_thread = || {
        let mut done = Vec::new();
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= jobs {
                return done;
            }
            done.push((job, work(job)));
        }
    };
    let mut done = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(jobs))
            .map(|_| scope.spawn(one_thread))
            .collect();
        let results = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.flatten().collect::<Vec<_>>()
    });
    done.sort_by_key(|(job, _)| *job);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::in_parallel;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        assert_eq!(in_parallel(100, |job| job * job)[99], 9801);
        assert!(in_parallel(0, |job| job).is_empty());
    }
}
