//! The programs of the workspace that tests run or start, as cargo reports them during the build.
//!
//! One command with one choice of packages builds everything: another choice would unify other features, and cargo
//! would rebuild most crates.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::instance::{self, Profile};
use crate::session::{Outcome, Session};

/// The package of the platform tests.
const PLATFORM_TESTS: &str = "nfluid-tests";
/// The packages that have models for loom.
pub const LOOM_PACKAGES: [&str; 2] = ["nfluid-ring", "nfluid-dataflow"];
/// Prefixes of the names of those integration tests that run in guests.
const GUEST_PREFIXES: [&str; 2] = ["guest_", "security_"];

/// A program that cargo built.
#[derive(Debug, Clone)]
pub struct Program {
    /// Cargo's name of the target.
    pub name: String,
    pub package: String,
    pub path: PathBuf,
    /// The package's folder, the working directory of its tests.
    pub folder: PathBuf,
}

/// The programs of one build.
#[derive(Clone, Default)]
pub struct Programs {
    /// Unit and integration tests of all crates except the platform's.
    pub unit: Vec<Program>,
    /// The programs of tests/tests, sorted by name.
    pub platform: Vec<Program>,
    /// Programs that tests start: the platform's own programs and the tests' helpers.
    pub others: Vec<Program>,
    /// Package ids, and the packages' names.
    packages: HashMap<String, String>,
}

/// Returns `cargo VERB` of every package except those of the programs that run in instances, which [`instance`] builds
/// separately.
pub fn cargo_workspace(session: &Session, verb: &str) -> Command {
    let mut cargo = session.cargo([verb, "--workspace"]);
    for program in &instance::PROGRAMS {
        cargo.args(["--exclude", program.package]);
    }
    cargo
}

impl Programs {
    /// Builds all tests and all programs in the dev profile; cargo's output goes to the terminal.
    ///
    /// # Errors
    /// Something does not build.
    pub fn build(session: &Session) -> Result<Self> {
        let mut programs = Self::named(session)?;
        let mut everything = cargo_workspace(session, "build");
        everything.args(["--lib", "--bins", "--tests", "--examples"]);
        programs.add(session, everything)?;
        programs.add_instance(session, Profile::Debug)?;
        let mut tests = instance::cargo(session, "test", Profile::Debug);
        tests.arg("--no-run");
        programs.add(session, tests)?;
        programs.platform.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(programs)
    }

    /// Builds the tests of the platform and, unless no test starts them, the programs of the platform.
    ///
    /// # Errors
    /// Something does not build, or no test remains.
    pub fn for_guests(session: &Session, only: &[String], without_platform: bool) -> Result<Self> {
        let mut programs = if without_platform {
            let mut programs = Self::named(session)?;
            let tests = session.cargo(["test", "--package", PLATFORM_TESTS, "--no-run"]);
            programs.add(session, tests)?;
            programs.platform.sort_by(|a, b| a.name.cmp(&b.name));
            programs
        } else {
            Self::build(session)?
        };
        if !only.is_empty() {
            programs.platform.retain(|test| only.contains(&test.name));
        }
        if programs.guest_tests().next().is_none() {
            bail!(
                "no such test; tests for guests begin with {}",
                GUEST_PREFIXES.join(" or ")
            );
        }
        Ok(programs)
    }

    /// Builds the platform's programs in the release profile, and no test.
    ///
    /// # Errors
    /// Something does not build.
    pub fn release(session: &Session) -> Result<Self> {
        let mut programs = Self::named(session)?;
        let mut build = cargo_workspace(session, "build");
        build.args(["--release", "--bins"]);
        programs.add(session, build)?;
        programs.add_instance(session, Profile::Release)?;
        Ok(programs)
    }

    /// Builds the models of rings and queues: in release mode because loom tries every schedule, and in their own
    /// target folder because the flag would rebuild the whole workspace.
    ///
    /// # Errors
    /// Something does not build.
    pub fn loom(session: &Session) -> Result<Self> {
        let mut programs = Self::named(session)?;
        let mut cargo = session.cargo(["test", "--release", "--no-run", "--test", "loom_*"]);
        cargo.args(LOOM_PACKAGES.map(|package| format!("--package={package}")));
        cargo.env("RUSTFLAGS", "--cfg loom");
        cargo.env("CARGO_TARGET_DIR", session.target.join("loom"));
        programs.add(session, cargo)?;
        Ok(programs)
    }

    /// The tests that run in guests.
    pub fn guest_tests(&self) -> impl Iterator<Item = &Program> {
        let for_guests = |name: &str| GUEST_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        self.platform
            .iter()
            .filter(move |test| for_guests(&test.name))
    }

    /// Returns the folder of the platform's programs, in which they find each other.
    pub fn folder(&self) -> Option<&Path> {
        self.others.first()?.path.parent()
    }

    fn named(session: &Session) -> Result<Self> {
        let metadata = session.metadata()?;
        let packages = metadata["packages"].as_array();
        let name = |package: &Value| {
            let [id, name] = ["id", "name"].map(|key| package[key].as_str().map(str::to_owned));
            id.zip(name)
        };
        Ok(Self {
            packages: packages.into_iter().flatten().filter_map(name).collect(),
            ..Self::default()
        })
    }

    fn add_instance(&mut self, session: &Session, profile: Profile) -> Result<()> {
        for (program, path) in instance::build(session, profile)? {
            self.others.push(Program {
                name: program.name.to_owned(),
                package: program.package.to_owned(),
                folder: session.root.clone(),
                path,
            });
        }
        Ok(())
    }

    fn add(&mut self, session: &Session, mut cargo: Command) -> Result<()> {
        cargo.arg("--message-format=json-render-diagnostics");
        let mut messages = Vec::new();
        let outcome = session.stream(&mut cargo, None, |line| messages.push(line.to_owned()))?;
        if !matches!(outcome, Outcome::Exited(status) if status.success()) {
            bail!("the tests, or the programs that they start, do not build");
        }
        messages
            .iter()
            .try_for_each(|message| self.message(message))
    }

    /// Takes the program from one of cargo's messages, which are JSON, one per line.
    fn message(&mut self, line: &str) -> Result<()> {
        if !line.starts_with('{') {
            return Ok(());
        }
        let message: Value = serde_json::from_str(line).context("reading cargo's messages")?;
        let target = &message["target"];
        let (Some(name), Some(path)) = (target["name"].as_str(), message["executable"].as_str())
        else {
            return Ok(());
        };
        let id = message["package_id"].as_str().unwrap_or_default();
        let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
        let program = Program {
            name: name.to_owned(),
            package: self.packages.get(id).cloned().unwrap_or_default(),
            path: path.into(),
            folder: manifest.parent().unwrap_or(Path::new("/")).to_owned(),
        };
        let kinds = target["kind"].as_array().map_or(&[][..], Vec::as_slice);
        let is_integration = kinds.iter().any(|kind| kind == "test");
        match message["profile"]["test"].as_bool() {
            Some(true) if is_integration && program.package == PLATFORM_TESTS => {
                self.platform.push(program);
            }
            Some(true) => self.unit.push(program),
            Some(false) if name.starts_with("nfluid") => self.others.push(program),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(programs: &[Program]) -> Vec<&str> {
        programs
            .iter()
            .map(|program| program.name.as_str())
            .collect()
    }

    #[test]
    fn tests_of_the_platform_of_crates_and_plain_programs_are_told_apart() {
        let messages = [
            r#"{"target":{"kind":["lib"],"name":"a"},"profile":{"test":false},"executable":null}"#,
            r#"{"package_id":"t","manifest_path":"/p/tests/Cargo.toml","target":{"kind":["test"],"name":"guest_a"},"profile":{"test":true},"executable":"/1"}"#,
            r#"{"package_id":"t","target":{"kind":["test"],"name":"platform_a"},"profile":{"test":true},"executable":"/2"}"#,
            r#"{"package_id":"d","target":{"kind":["bin"],"name":"nfluidd"},"profile":{"test":true},"executable":"/3"}"#,
            r#"{"package_id":"d","target":{"kind":["bin"],"name":"nfluidd"},"profile":{"test":false},"executable":"/4"}"#,
            r#"{"package_id":"x","target":{"kind":["bin"],"name":"xtask"},"profile":{"test":false},"executable":"/5"}"#,
            r#"{"package_id":"d","target":{"kind":["test"],"name":"guest_of_another"},"profile":{"test":true},"executable":"/6"}"#,
            r#"{"reason":"build-finished","success":true}"#,
            "some other line",
        ];
        let mut programs = Programs::default();
        let named = [("t", PLATFORM_TESTS), ("d", "nfluidd")];
        programs.packages = named.map(|(id, name)| (id.into(), name.into())).into();
        messages
            .iter()
            .try_for_each(|message| programs.message(message))
            .unwrap();
        assert_eq!(names(&programs.platform), ["guest_a", "platform_a"]);
        assert_eq!(programs.platform[0].folder, Path::new("/p/tests"));
        assert_eq!(names(&programs.unit), ["nfluidd", "guest_of_another"]);
        assert_eq!(names(&programs.others), ["nfluidd"]);
        assert_eq!(programs.others[0].path, Path::new("/4"));
        let guests: Vec<_> = programs.guest_tests().map(|test| &test.name).collect();
        assert_eq!(guests, ["guest_a"]);
        assert!(programs.message("{not json").is_err());
    }
}
