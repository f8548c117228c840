//! `make test`: every test of the repository, counted.
//!
//! One build builds everything. Then all tests run in parallel lanes, each platform test as its own process. All tests
//! run, also after a failure: one run shows everything. The last line of the output is `N passed, N failed, N skipped`.

mod changed;
mod checks;
mod evidence;
mod history;
mod job;
mod lanes;
mod progress;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::deps;
use crate::guest;
use crate::leftovers::Leftovers;
use crate::programs::{self, Program, Programs};
use crate::session::Session;
use crate::tally::Tally;
use changed::Touched;
use checks::NO_STD;
use history::History;
use job::{Job, Surroundings, Work};
use progress::{Flakes, Progress};

/// Captures of real traffic, outside the project; tests that need them are skipped without them.
const CAPTURES: &str = "../shared/data/pcap";
/// Parallel jobs per core: on two cores, two guests need a core each, and two other tests wait most of the time. More
/// lanes do not shorten the whole run, and lengthen each test.
const LANES_PER_CORE: usize = 2;

/// Rough times of jobs that have not run before, in seconds: long jobs must start first.
const GUEST_SECONDS: f64 = 600.0;
const CASE_SECONDS: f64 = 5.0;
const WHOLE_SECONDS: f64 = 2.0;

/// Selection of tests.
#[derive(Args)]
pub struct Options {
    /// Run only these steps (repeatable, or separated by commas)
    #[arg(long = "step", value_enum, value_delimiter = ',')]
    steps: Vec<Step>,
    /// Run only tests that a change can affect: uncommitted changes, or the differences from the commit BASE
    #[arg(long, value_name = "BASE", num_args = 0..=1, default_missing_value = "HEAD", require_equals = true)]
    changed: Option<String>,
    /// Run only tests whose name (`platform_crash: a_test`, or a program of unit tests) contains this
    #[arg(long)]
    filter: Option<String>,
    /// Number of tests that run in parallel
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    lanes: Option<u16>,
    /// Run the tests this many times, and print how often each failed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    times: u16,
    /// Run the long form of tests, as `make soak` does: longer oracles, 100,000 instances, experiments with --quick
    #[arg(long)]
    soak: bool,
}

impl Options {
    /// Returns the options of `make soak`: all steps.
    pub fn soak() -> Self {
        Self {
            steps: Vec::new(),
            changed: None,
            filter: None,
            lanes: None,
            times: 1,
            soak: true,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Unit, property and documentation tests of all crates; they need no root
    Unit,
    /// tests/tests: need root for network namespaces and cgroups
    Root,
    /// The guest_* and security_* tests inside Debian's stock kernels: all in the oldest, some in the others
    Guest,
    /// Build crates without an operating system for x86_64-unknown-none and wasm
    Targets,
    /// Rings and queues under loom's exhaustive scheduler
    Loom,
    /// The C port library's tests, and the completeness of an installation
    C,
}

struct Run<'a> {
    session: &'a Session,
    options: &'a Options,
    touched: Touched,
    leftovers: Leftovers,
    tally: Tally,
}

/// Runs the tests.
///
/// # Errors
/// A dependency cannot be installed, a test failed, or an interrupt.
pub fn run(session: &Session, options: &Options) -> Result<()> {
    deps::install(session, deps::FOR_TEST)?;
    let path = path_with(deps::install_python(session)?)?;
    let touched = match &options.changed {
        Some(base) => changed::since(session, base)?,
        None => Touched::Everything,
    };
    let mut run = Run {
        session,
        options,
        touched,
        leftovers: Leftovers::watch()?,
        tally: Tally::default(),
    };
    if !session.root.join(CAPTURES).is_dir() {
        println!("{CAPTURES} is absent: tests that need captures are skipped");
    }
    let result = run.everything(path);
    let Run {
        leftovers, tally, ..
    } = run;
    drop(leftovers);
    let conclusion = tally.conclude();
    result?;
    Ok(conclusion?)
}

fn path_with(first: PathBuf) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(first).chain(std::env::split_paths(&path)))
        .context("the project's folder must not have a colon in its name")
}

impl Run<'_> {
    fn wants(&self, step: Step) -> bool {
        let steps = &self.options.steps;
        let is_touched = match step {
            Step::Unit | Step::Root | Step::Guest => true, // each of their programs by itself
            // The builds of this step have no names to filter.
            Step::Targets if self.options.filter.is_some() => false,
            Step::Targets => NO_STD.iter().any(|name| self.touched.package(name)),
            Step::Loom => programs::LOOM_PACKAGES
                .iter()
                .any(|name| self.touched.package(name)),
            Step::C => self.touched.package("nfluid-ring"),
        };
        is_touched && (steps.is_empty() || steps.contains(&step))
    }

    fn everything(&mut self, path: OsString) -> Result<()> {
        let surroundings = Surroundings {
            path,
            temp_dir: self.leftovers.temp_dir().to_owned(),
            evidence: self.session.target.join("evidence"),
            is_soak: self.options.soak,
        };
        let _of_the_last_run = std::fs::remove_dir_all(&surroundings.evidence);
        let mut flakes = Flakes::default();
        for _ in 0..self.options.times {
            let begun = Instant::now();
            let jobs = self.jobs()?;
            println!("built in {} s", begun.elapsed().as_secs());
            self.run_jobs(jobs, &surroundings, &mut flakes)?;
        }
        if self.options.times > 1 {
            flakes.print();
        }
        Ok(())
    }

    /// Builds the wanted programs, and lists the jobs.
    fn jobs(&mut self) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        if self.wants(Step::Targets) {
            println!("\n== targets");
            self.targets()?;
        }
        let needs_programs = [Step::Unit, Step::Root, Step::Guest, Step::C];
        if needs_programs.into_iter().any(|step| self.wants(step)) {
            println!("\n== build");
            let built = Programs::build(self.session);
            if let Some(programs) = self.result("building the workspace", built)? {
                self.workspace_jobs(programs, &mut jobs)?;
            }
        }
        if self.wants(Step::Loom) {
            println!("\n== loom");
            let built = Programs::loom(self.session);
            if let Some(models) = self.result("building loom's models", built)? {
                jobs.extend(models.unit.into_iter().map(|model| whole("loom", model)));
            }
        }
        if let Some(filter) = &self.options.filter {
            jobs.retain(|job| job.name.contains(filter));
        }
        Ok(jobs)
    }

    /// Appends the jobs of one build.
    fn workspace_jobs(&mut self, programs: Programs, jobs: &mut Vec<Job>) -> Result<()> {
        if self.wants(Step::C) {
            println!("\n== C");
            jobs.extend(self.c()?);
            if self.options.filter.is_none() {
                self.installed()?;
            }
        }
        if self.wants(Step::Unit) {
            let units = programs.unit.iter();
            let units = units.filter(|program| self.touched.package(&program.package));
            jobs.extend(units.map(|program| whole("unit", program.clone())));
            let mut cargo = programs::cargo_workspace(self.session, "test");
            cargo.args(["--doc", "--no-fail-fast"]);
            jobs.push(Job {
                name: "documentation".to_owned(),
                step: "unit",
                seconds: WHOLE_SECONDS,
                work: Work::Documentation(Box::new(cargo)),
            });
        }
        if self.wants(Step::Root) {
            if deps::is_root() {
                // Instances of tier linux boot it. Without it their test says what is missing.
                if let Err(why) = guest::unpack_oldest_kernel(self.session) {
                    println!("no kernel for instances of tier linux: {why:#}");
                }
                let touched = programs.platform.iter();
                let touched = touched.filter(|program| self.touched.program(&program.name));
                for program in touched.collect::<Vec<_>>() {
                    let listed = self.cases(program);
                    let cases = self.result(&format!("root: {}", program.name), listed)?;
                    jobs.extend(cases.into_iter().flatten());
                }
            } else {
                self.tally
                    .skipped("root: tests/tests need root, for network namespaces and cgroups");
            }
        }
        let mut programs = programs;
        programs
            .platform
            .retain(|program| self.touched.program(&program.name));
        if self.wants(Step::Guest) {
            let guests = guest::all(programs, self.options.soak);
            jobs.extend(guests.into_iter().map(|guest| Job {
                name: format!("kernel {}", guest.series),
                step: "guest",
                seconds: GUEST_SECONDS,
                work: Work::Guest(guest),
            }));
        }
        Ok(())
    }

    /// Returns each test of a program as a job.
    fn cases(&self, program: &Program) -> Result<Vec<Job>> {
        let mut list = self.session.command(&program.path);
        let listing = self
            .session
            .output(list.args(["--list", "--format=terse"]))?;
        let cases = listing
            .lines()
            .filter_map(|line| line.strip_suffix(": test"));
        let job = |case: &str| Job {
            name: format!("{}: {case}", program.name),
            step: "root",
            seconds: CASE_SECONDS,
            work: Work::Libtest(program.clone(), Some(case.to_owned())),
        };
        Ok(cases.map(job).collect())
    }

    fn run_jobs(
        &mut self,
        mut jobs: Vec<Job>,
        surroundings: &Surroundings,
        flakes: &mut Flakes,
    ) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let history = History::read(&self.session.target);
        lanes::sort(&mut jobs, &history);
        let lanes = self.lanes();
        let progress = Progress::begin(&jobs, lanes, &history);
        let mut done = lanes::run(self.session, jobs, lanes, surroundings, &progress)?;
        let took = |job: &lanes::Done| (job.name.clone(), job.ended.seconds);
        progress.slowest(done.iter().map(took));
        history.update(done.iter().map(took));
        progress::steps(&done);
        done.sort_by(|a, b| a.name.cmp(&b.name));
        for job in done {
            flakes.count(&job);
            self.tally.merge(job.ended.tally);
        }
        progress::print_evidence_folder(&surroundings.evidence);
        Ok(())
    }

    fn lanes(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let asked = self.options.lanes.map(usize::from);
        asked.unwrap_or(cores * LANES_PER_CORE)
    }
}

/// Returns all tests of a program as one job.
fn whole(step: &'static str, program: Program) -> Job {
    Job {
        name: format!("{}: {}", program.package, program.name),
        step,
        seconds: WHOLE_SECONDS,
        work: Work::Libtest(program, None),
    }
}
