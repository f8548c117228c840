//! Output of a test run: a line per finished job, the progress of the run, the remaining time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::evidence;
use super::history::History;
use super::job::{Ended, Job};
use super::lanes::Done;

/// Printed lines of a failed job; the evidence folder has all lines.
const SHOWN_LINES: usize = 400;
/// Number of slowest jobs that are named at the end.
const SLOWEST: usize = 20;

pub struct Progress {
    start: Instant,
    lanes: usize,
    total: usize,
    state: Mutex<State>,
}

struct State {
    done: usize,
    failed: usize,
    /// Expected seconds of waiting jobs.
    waiting: HashMap<String, f64>,
    /// Start and expected seconds of running jobs.
    running: HashMap<String, (Instant, f64)>,
}

impl Progress {
    /// Prints the number of jobs, and how long they took in the last run.
    pub fn begin(jobs: &[Job], lanes: usize, history: &History) -> Self {
        let expected = |job: &Job| history.of(&job.name).unwrap_or(job.seconds);
        let waiting: HashMap<_, _> = jobs
            .iter()
            .map(|job| (job.name.clone(), expected(job)))
            .collect();
        let known = jobs.iter().filter(|job| history.of(&job.name).is_some());
        let known = known.count();
        println!("\n== {} jobs in {lanes} lanes", jobs.len());
        let progress = Self {
            start: Instant::now(),
            lanes,
            total: jobs.len(),
            state: Mutex::new(State {
                done: 0,
                failed: 0,
                waiting,
                running: HashMap::new(),
            }),
        };
        match known {
            0 => println!("how long they take will be known after this run"),
            _ => println!(
                "about {} by the last run, in which {known} of them ran",
                minutes(progress.left(&progress.state()))
            ),
        }
        progress
    }

    pub fn begins(&self, job: &str) {
        let mut state = self.state();
        let expected = state.waiting.remove(job).unwrap_or(0.0);
        let begun = (Instant::now(), expected);
        state.running.insert(job.to_owned(), begun);
    }

    /// Prints the result of one test of a guest, whose job has many tests and takes minutes.
    pub fn case(&self, name: &str, seconds: f64, verdict: &str) {
        println!(
            "{} {verdict:<7} {seconds:6.1} s  {name}",
            self.place(&self.state())
        );
    }

    pub fn ended(&self, job: &str, ended: &Ended) {
        let mut state = self.state();
        state.running.remove(job);
        state.done += 1;
        let is_failed = ended.tally.has_failures();
        state.failed += usize::from(is_failed);
        let verdict = match (
            is_failed,
            ended.tally.has_passed(),
            ended.tally.has_skipped(),
        ) {
            (true, _, _) => "FAILED",
            (false, true, _) => "ok",
            (false, false, true) => "skipped",
            (false, false, false) => "no test",
        };
        println!(
            "{} {verdict:<7} {:6.1} s  {job}",
            self.place(&state),
            ended.seconds
        );
        if is_failed {
            let lines = &ended.transcript;
            let hidden = lines.len().saturating_sub(SHOWN_LINES);
            if hidden > 0 {
                println!("  | ({hidden} lines before these)");
            }
            lines[hidden..]
                .iter()
                .for_each(|line| println!("  | {line}"));
        }
    }

    /// Prints the slowest jobs.
    pub fn slowest(&self, done: impl Iterator<Item = (String, f64)>) {
        let mut all: Vec<_> = done.collect();
        let total: f64 = all.iter().map(|(_, seconds)| seconds).sum();
        println!(
            "\n{} jobs took {} in {} lanes, {} one after the other; the slowest:",
            all.len(),
            minutes(self.start.elapsed()),
            self.lanes,
            minutes(Duration::from_secs_f64(total))
        );
        all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        for (name, seconds) in all.iter().take(SLOWEST) {
            println!("{seconds:8.1} s  {name}");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `[ 3:12, 120 of 455, 9 min left]`
    fn place(&self, state: &State) -> String {
        let elapsed = self.start.elapsed().as_secs();
        let failed = match state.failed {
            0 => String::new(),
            failed => format!(", {failed} FAILED"),
        };
        format!(
            "[{:2}:{:02}, {} of {}{failed}, {} left]",
            elapsed / 60,
            elapsed % 60,
            state.done,
            self.total,
            minutes(self.left(state))
        )
    }

    /// Estimates the remaining time from the last run: the larger of all lanes together and the longest job.
    fn left(&self, state: &State) -> Duration {
        let rest = |(since, expected): &(Instant, f64)| {
            (expected - since.elapsed().as_secs_f64()).max(0.0)
        };
        let running: f64 = state.running.values().map(rest).sum();
        let all = (running + state.waiting.values().sum::<f64>()) / self.lanes as f64;
        let longest = state.running.values().map(rest).fold(all, f64::max);
        Duration::from_secs_f64(longest)
    }
}

/// `under a minute`, `12 min`
fn minutes(time: Duration) -> String {
    match time.as_secs().div_ceil(60) {
        0 | 1 => "1 min".to_owned(),
        minutes => format!("{minutes} min"),
    }
}

/// Prints the number of jobs of each step, and their time.
pub fn steps(done: &[Done]) {
    let mut steps: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for job in done {
        let (jobs, seconds) = steps.entry(job.step).or_default();
        *jobs += 1;
        *seconds += job.ended.seconds;
    }
    for (step, (jobs, seconds)) in steps {
        println!("{step}: {jobs} jobs, {seconds:.0} s in their lanes");
    }
}

/// Counts the failures of each job over several runs.
#[derive(Default)]
pub struct Flakes {
    /// Runs and failures.
    jobs: BTreeMap<String, (u32, u32)>,
}

impl Flakes {
    pub fn count(&mut self, job: &Done) {
        let (runs, failures) = self.jobs.entry(job.name.clone()).or_default();
        *runs += 1;
        *failures += u32::from(job.ended.tally.has_failures());
    }

    /// Prints the failed jobs, and the failure rate of all runs.
    pub fn print(&self) {
        println!();
        let (mut all_runs, mut all_failures) = (0, 0);
        for (name, (runs, failures)) in &self.jobs {
            all_runs += runs;
            all_failures += failures;
            if *failures > 0 {
                println!("{failures} of {runs} runs of {name} failed");
            }
        }
        let rate = f64::from(all_failures) * 1000.0 / f64::from(all_runs.max(1));
        println!("{all_failures} of {all_runs} runs of a test failed: {rate:.2} per thousand");
    }
}

/// Prints the path of the evidence folder, if there is evidence.
pub fn print_evidence_folder(folder: &std::path::Path) {
    if evidence::is_there(folder) {
        println!(
            "\nlogs, journals and kernel messages of failed tests: {}",
            folder.display()
        );
    }
}
