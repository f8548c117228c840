//! Health checks of instances.

use super::fields::{Fields, list, read, text, wrong_type};
use crate::health::{Check, Health, Remedy};
use crate::quantity::{Millis, ValueError};
use crate::report::{Report, did_you_mean};
use crate::yaml::Node;

const REMEDIES: [(&str, Remedy); 2] = [("restart", Remedy::Restart), ("report", Remedy::Report)];

const CHECKS: [(&str, Check); 2] = [("process", Check::Process), ("progress", Check::Progress)];

/// Reads `restart` or `report`, or a mapping.
pub fn health(node: &Node, path: &str, report: &mut Report<'_>) -> Health {
    let mut health = Health::default();
    if let Some(scalar) = node.as_scalar() {
        match REMEDIES.iter().find(|(name, _)| *name == scalar.text) {
            Some((_, remedy)) => health.action = *remedy,
            None => wrong_type(node, path, "restart, report, or a mapping", report),
        }
        return health;
    }
    let Some(mut fields) = Fields::new(node, path, report) else {
        return health;
    };
    if let Some((node, path)) = fields.get("checks") {
        health.checks = checks(node, &path, report);
    }
    let mut time = |key: &'static str, parse: Parse, report: &mut Report<'_>| {
        let (node, path) = fields.get(key)?;
        read(node, &path, report, parse)
    };
    let interval = time("interval", between_looks, report);
    let timeout = time("timeout", between_looks, report);
    let grace = time("grace", grace, report);
    health.interval = interval.unwrap_or(health.interval);
    health.timeout = timeout.unwrap_or(health.timeout);
    health.grace = grace.unwrap_or(health.grace);
    if let Some(failures) = fields.integer("failures", (1, 1_000), report) {
        health.failures = u32::try_from(failures).unwrap_or(1);
    }
    if let Some(action) = fields.choice("action", &REMEDIES, report) {
        health.action = action;
    }
    fields.finish(report);
    health
}

type Parse = fn(&str) -> Result<Millis, ValueError>;

fn checks(node: &Node, path: &str, report: &mut Report<'_>) -> Vec<Check> {
    let items = list(node, path, report);
    let mut checks = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let Some(word) = text(item, &path, report) else {
            continue;
        };
        match CHECKS.iter().find(|(name, _)| *name == word) {
            Some((_, check)) if checks.contains(check) => {
                let message = format!("'{word}' is in the list already");
                report.error_at(item.mark, &path, message, "remove one of them");
            }
            Some((_, check)) => checks.push(*check),
            None => {
                let names = CHECKS.iter().map(|(name, _)| *name);
                let message = format!("there is no check '{}'", word.escape_debug());
                let remedy = did_you_mean(word, names, "there are");
                report.error_at(item.mark, &path, message, remedy);
            }
        }
    }
    if items.is_empty() {
        report.error_at(
            node.mark,
            path,
            "nothing is checked",
            "name 'process', 'progress' or both, or remove 'checks': then all are made that the program allows",
        );
    }
    checks
}

/// Reads the interval between two checks. A check costs some microseconds; an interval of hours does not detect
/// anything in time.
fn between_looks(word: &str) -> Result<Millis, ValueError> {
    bounded(word, Millis(100), "write 100ms to 1h")
}

fn grace(word: &str) -> Result<Millis, ValueError> {
    bounded(word, Millis(0), "write 0s to 1h")
}

fn bounded(word: &str, least: Millis, remedy: &str) -> Result<Millis, ValueError> {
    let time: Millis = word.parse()?;
    if (least..=Millis::secs(3_600)).contains(&time) {
        return Ok(time);
    }
    Err(ValueError::new(format!("{time} is out of range"), remedy))
}
