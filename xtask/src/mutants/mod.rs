//! `cargo xtask mutants`: inserts faults into the switch, one at a time, and checks that a test detects each.
//!
//! The switch is compiled from a copy of bpf/ in its own target folder; the work tree is not touched. (For Rust code
//! use cargo-mutants, see CONTRIBUTING.md.)

mod long;
mod switch;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::deps;
use crate::leftovers::Leftovers;
use crate::session::{Outcome, Session, Watchdog};

/// A test that hangs because of a fault has detected the fault.
const WATCHDOG: Watchdog = Watchdog {
    silence: Duration::from_secs(120),
    total: Duration::from_secs(5 * 60),
};

/// Selection of faults.
#[derive(Args)]
pub struct Options {
    /// Only faults whose description contains this text
    #[arg(long)]
    filter: Option<String>,
    /// Only this test program, instead of all that test the switch. May be given several times
    #[arg(long)]
    test: Vec<String>,
}

impl Options {
    fn tests(&self) -> Vec<&str> {
        match &self.test[..] {
            [] => switch::TESTS.to_vec(),
            chosen => chosen.iter().map(String::as_str).collect(),
        }
    }
}

/// All faults.
fn mutants() -> impl Iterator<Item = &'static Mutant> {
    switch::MUTANTS.iter().chain(long::MUTANTS)
}

/// A fault: `from`, which occurs once in the file, becomes `to`.
pub struct Mutant {
    what: &'static str,
    /// Path below bpf/.
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// The reason why tests on a real kernel do not reliably detect the fault, if so.
    hidden: Option<&'static str>,
}

/// Inserts each fault and prints the test program that detects it.
///
/// # Errors
/// A fault was not detected, the tests fail without a fault, or an interrupt.
pub fn run(session: &Session, options: &Options) -> Result<()> {
    deps::install(session, deps::FOR_TEST)?;
    let _leftovers = Leftovers::watch()?;
    let folder = session.target.join("mutants");
    let sources = folder.join("bpf");
    copy(session, &sources)?;
    let tests = options.tests();
    if let Some(test) = detecting_test(session, &folder, &tests)? {
        bail!("{test} fails without any mistake");
    }
    let chosen = |mutant: &&Mutant| {
        let filter = options.filter.as_deref();
        filter.is_none_or(|part| mutant.what.contains(part))
    };
    let (mut noticed, mut missed) = (0, Vec::new());
    for mutant in mutants().filter(chosen) {
        copy(session, &sources)?;
        mutant.plant(&sources)?;
        match detecting_test(session, &folder, &tests)? {
            Some(test) => {
                noticed += 1;
                println!("noticed by {test}: {}", mutant.what);
            }
            None if let Some(why) = mutant.hidden => println!("hidden: {} ({why})", mutant.what),
            None => {
                println!("NOT NOTICED: {} ({})", mutant.what, mutant.file);
                missed.push(mutant.what);
            }
        }
    }
    println!("{noticed} of {} mistakes noticed", noticed + missed.len());
    if !missed.is_empty() {
        bail!("not noticed: {}", missed.join("; "));
    }
    Ok(())
}

impl Mutant {
    fn plant(&self, sources: &Path) -> Result<()> {
        let path = sources.join(self.file);
        let text = fs::read_to_string(&path)?;
        Ok(fs::write(&path, self.in_text(&text)?)?)
    }

    /// The text of the file with the fault.
    fn in_text(&self, text: &str) -> Result<String> {
        let places = text.matches(self.from).count();
        if places != 1 {
            bail!(
                "{}: {places} places for \"{}\": adapt it in xtask/src/mutants",
                self.file,
                self.what
            );
        }
        Ok(text.replace(self.from, self.to))
    }
}

/// Makes a fresh copy of bpf/.
fn copy(session: &Session, to: &Path) -> Result<()> {
    let _of_the_last_one = fs::remove_dir_all(to);
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    let mut command = session.command("cp");
    command.args(["-r", "bpf/."]).arg(to);
    session.output(&mut command).map(|_| ())
}

/// Returns the first test program that fails with the copy's switch. If the kernel refuses the switch, the first
/// program fails.
fn detecting_test<'a>(
    session: &Session,
    folder: &Path,
    tests: &[&'a str],
) -> Result<Option<&'a str>> {
    let cargo = |test: &str| {
        let mut cargo = session.cargo(["test", "--quiet", "--package", "nfluid-tests"]);
        cargo.args(["--test", test]);
        cargo.env("CARGO_TARGET_DIR", folder);
        cargo.env("NFLUID_BPF", folder.join("bpf"));
        cargo
    };
    for test in tests {
        let mut build = cargo(test);
        session.output(build.arg("--no-run"))?;
        let mut run: Command = cargo(test);
        run.args(["--", "--test-threads=1"]);
        match session.capture(&mut run, WATCHDOG, |_| ())? {
            Outcome::Exited(status) if status.success() => {}
            Outcome::Exited(_) | Outcome::Hung => return Ok(Some(test)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_fault_has_its_place_in_the_switch() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf");
        let mut names = BTreeSet::new();
        for mutant in mutants() {
            let text = fs::read_to_string(sources.join(mutant.file)).expect("a file of the switch");
            let faulty = mutant.in_text(&text).expect("one place");
            assert_ne!(faulty, text, "{}", mutant.what);
            assert!(names.insert(mutant.what), "twice: {}", mutant.what);
        }
    }
}
