//! A run of the program: experiments one after the other, each with its own report and results.

use crate::experiment::Experiment;
use crate::options::Options;
use crate::report::{PROGRAM, Report, print_figures};
use anyhow::{Context, bail};
use nfluid_figures::record::{Record, command};
use nfluid_figures::results::{Results, json};
use nfluid_testbed::CannotRun;
use nfluid_testbed::interrupt::{self, Interrupted};
use nfluid_testbed::program::install;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The experiments that have run.
pub struct Session {
    folder: PathBuf,
    quick: bool,
    /// The options of the command line.
    pub options: Options,
    records: Vec<Record>,
}

impl Session {
    /// Makes an empty session; results will go to `folder`.
    pub fn new(folder: &Path, quick: bool) -> Self {
        Session {
            folder: folder.to_owned(),
            quick,
            options: Options::default(),
            records: Vec::new(),
        }
    }

    /// Runs one experiment and writes its results. After a failure, the figures measured so far are printed, not
    /// written.
    ///
    /// # Errors
    /// Those of the experiment; [`CannotRun`] and [`Interrupted`] among them.
    pub fn run(&mut self, experiment: &Experiment) -> anyhow::Result<()> {
        let [required, compared] = experiment.needs.missing();
        if !required.is_empty() {
            let all: BTreeSet<_> = required.into_iter().chain(compared).collect();
            let all: Vec<_> = all.into_iter().collect();
            return Err(CannotRun(install(&all.join(" "))).into());
        }
        if !compared.is_empty() {
            let how = install(&compared.join(" "));
            println!(
                "# {} leaves out what it would be compared with: {how}",
                experiment.name
            );
        }
        let start = Instant::now();
        let mut report = Report::new(
            experiment.name,
            experiment.summary,
            self.quick,
            &self.options,
        );
        let outcome = (experiment.run)(&mut report);
        let record = report.finish();
        if outcome.is_err() && !record.figures.is_empty() {
            println!("# {} did not end; measured until then:", experiment.name);
            print_figures(&record.figures);
        }
        outcome?;
        let files = Results::new(&self.folder).write(&record)?;
        self.records.push(record);
        println!(
            "# {} took {:.1} s, results in {}: {}",
            experiment.name,
            start.elapsed().as_secs_f64(),
            self.folder.display(),
            files.join(", ")
        );
        Ok(())
    }

    /// Runs several experiments. The others run also after an experiment that fails or that this host cannot run.
    ///
    /// # Errors
    /// [`CannotRun`] when this host can run none of them; [`Interrupted`]; an error with the names of the failed
    /// experiments.
    pub fn run_all(&mut self, experiments: &[&Experiment]) -> anyhow::Result<()> {
        let (mut failed, mut left_out) = (Vec::new(), 0);
        for experiment in experiments {
            println!("\n== {}: {}", experiment.name, experiment.summary);
            match self.run(experiment) {
                Ok(()) => {}
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) if error.is::<CannotRun>() => {
                    println!("{} left out: {error:#}", experiment.name);
                    left_out += 1;
                }
                Err(error) => {
                    eprintln!("nfluid-bench: {} failed: {error:#}", experiment.name);
                    failed.push(experiment.name);
                }
            }
            interrupt::check()?;
        }
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        if left_out == experiments.len() {
            return Err(CannotRun("not one of them; the reasons are above".to_owned()).into());
        }
        Ok(())
    }

    /// Prints the figures of all experiments, one per line.
    pub fn print_figures(&self) {
        for record in &self.records {
            print_figures(&record.figures);
        }
    }

    /// Writes the results of all experiments to one file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        let Some(joined) = Record::join(&self.records, &command(PROGRAM, "all", self.quick)) else {
            return Ok(());
        };
        std::fs::write(path, json(&joined)?).with_context(|| format!("writing {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::Session;
    use crate::experiment::Experiment;
    use crate::needs::{NOTHING, Needs};
    use nfluid_figures::statistics::Samples;
    use nfluid_testbed::CannotRun;

    fn experiment(name: &'static str, run: crate::experiment::Run) -> Experiment {
        Experiment {
            name,
            aliases: &[],
            summary: "for a test",
            needs: NOTHING,
            run,
        }
    }

    // promise: 13.6
    #[test]
    fn what_fails_or_cannot_run_does_not_stop_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut session = Session::new(folder.path(), true);
        let cannot = experiment("cannot", |_| Err(CannotRun("no NIC".to_owned()).into()));
        let fails = experiment("fails", |_| anyhow::bail!("broken"));
        let works = experiment("works", |report| {
            report.figure("works.figure", &Samples::default(), "us", "");
            Ok(())
        });
        let error = session.run_all(&[&cannot, &fails, &works]).unwrap_err();
        assert_eq!(error.to_string(), "failed: fails");
        assert!(folder.path().join("works.json").exists());
        assert!(!folder.path().join("fails.json").exists());
        let file = folder.path().join("joined");
        session.write_json(&file).unwrap();
        let joined = std::fs::read_to_string(file).unwrap();
        assert!(joined.contains("works.figure"), "{joined}");
        session.run_all(&[&cannot, &works]).unwrap();
        let error = session.run_all(&[&cannot]).unwrap_err();
        assert!(error.is::<CannotRun>(), "{error}");
    }

    // promise: 13.18
    #[test]
    fn all_missing_packages_are_named_at_once_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mut needy = experiment("needy", |_| panic!("it ran"));
        needy.needs = Needs {
            required: &[&[("sh", "dash")], &[("no-such-a", "pack")]],
            compared: &[&[("no-such-b", "peer")]],
        };
        let error = Session::new(folder.path(), true).run(&needy).unwrap_err();
        assert!(error.is::<CannotRun>(), "{error}");
        assert!(
            error.to_string().ends_with("recommends pack peer"),
            "{error}"
        );
    }
}
