//! The programs that go into a guest, as cargo names them while it builds.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::instance::{self, Profile};
use crate::session::{Outcome, Session};

/// Integration tests of nfluid-tests that run in guests, by the beginning of their names.
const PREFIXES: [&str; 2] = ["guest_", "security_"];

/// A program that cargo built.
pub struct Program {
    pub name: String,
    pub path: PathBuf,
}

/// What one guest gets.
#[derive(Default)]
pub struct Programs {
    /// Run one after the other, in the order of their names.
    pub tests: Vec<Program>,
    /// Started by tests: the platform's own programs and the tests' helpers.
    pub others: Vec<Program>,
}

impl Programs {
    /// Builds the tests and what they start; cargo's own words go to the terminal.
    ///
    /// # Errors
    /// Something does not build, or no test is left.
    pub fn build(session: &Session, only: &[String], without_platform: bool) -> Result<Self> {
        let mut programs = Self::default();
        programs.add(
            session,
            session.cargo(["test", "-p", "nfluid-tests", "--no-run"]),
        )?;
        if !without_platform {
            programs.add(session, instance::build_others(session))?;
            programs.add_instance(session, Profile::Debug)?;
        }
        if !only.is_empty() {
            programs.tests.retain(|test| only.contains(&test.name));
        }
        programs.tests.sort_by(|a, b| a.name.cmp(&b.name));
        if programs.tests.is_empty() {
            bail!(
                "no such test; tests for guests begin with {}",
                PREFIXES.join(" or ")
            );
        }
        Ok(programs)
    }

    /// Builds the platform's programs as they are released, and no test.
    ///
    /// # Errors
    /// Something does not build.
    pub fn release(session: &Session) -> Result<Self> {
        let mut programs = Self::default();
        let mut build = instance::build_others(session);
        build.args(["--release", "--bins"]);
        programs.add(session, build)?;
        programs.add_instance(session, Profile::Release)?;
        Ok(programs)
    }

    /// The folder of the platform's programs, in which they look for each other.
    pub fn folder(&self) -> Option<&Path> {
        self.others.first()?.path.parent()
    }

    fn add_instance(&mut self, session: &Session, profile: Profile) -> Result<()> {
        self.others.push(Program {
            name: instance::PROGRAM.to_owned(),
            path: instance::build(session, profile)?,
        });
        Ok(())
    }

    fn add(&mut self, session: &Session, mut cargo: Command) -> Result<()> {
        cargo.arg("--message-format=json-render-diagnostics");
        let mut messages = Vec::new();
        let outcome = session.stream(&mut cargo, None, |line| messages.push(line.to_owned()))?;
        if !matches!(outcome, Outcome::Exited(status) if status.success()) {
            bail!("the programs for the guest do not build");
        }
        messages
            .iter()
            .try_for_each(|message| self.message(message))
    }

    /// Takes the program out of one of cargo's messages, which are JSON, one per line.
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
        let kinds = target["kind"].as_array().map_or(&[][..], Vec::as_slice);
        let program = Program {
            name: name.to_owned(),
            path: path.into(),
        };
        // A program's own unit tests are built under its name too: they belong to no guest.
        let is_test = kinds.iter().any(|kind| kind == "test");
        let for_guests = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        match message["profile"]["test"].as_bool() {
            Some(true) if is_test && for_guests => self.tests.push(program),
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
    fn tests_for_guests_and_plain_programs_are_told_apart() {
        let messages = [
            r#"{"target":{"kind":["lib"],"name":"a"},"profile":{"test":false},"executable":null}"#,
            r#"{"target":{"kind":["test"],"name":"guest_a"},"profile":{"test":true},"executable":"/1"}"#,
            r#"{"target":{"kind":["test"],"name":"demo"},"profile":{"test":true},"executable":"/2"}"#,
            r#"{"target":{"kind":["bin"],"name":"nfluidd"},"profile":{"test":true},"executable":"/3"}"#,
            r#"{"target":{"kind":["bin"],"name":"nfluidd"},"profile":{"test":false},"executable":"/4"}"#,
            r#"{"target":{"kind":["bin"],"name":"xtask"},"profile":{"test":false},"executable":"/5"}"#,
            r#"{"reason":"build-finished","success":true}"#,
            "some other line",
        ];
        let mut programs = Programs::default();
        messages
            .iter()
            .try_for_each(|message| programs.message(message))
            .unwrap();
        assert_eq!(names(&programs.tests), ["guest_a"]);
        assert_eq!(names(&programs.others), ["nfluidd"]);
        assert_eq!(programs.others[0].path, std::path::Path::new("/4"));
        assert!(programs.message("{not json").is_err());
    }
}
