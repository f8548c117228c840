//! Reads volumes, capabilities, and how a program is run.

use super::fields::{Fields, list, read, text};
use crate::access::{Access, CAPABILITIES, Stop, StopSignal, VARIABLES_MAX, VOLUMES_MAX, Volume};
use crate::quantity::ValueError;
use crate::report::{Report, did_you_mean};
use crate::yaml::{Kind, Node};

/// Reads what a program on the kernel's stack is given; `None`: nothing is said.
pub fn access(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<Access> {
    let mut access = Access::default();
    if let Some((node, path)) = fields.get("volumes") {
        access.volumes = entries(node, &path, VOLUMES_MAX, report, volume);
    }
    if let Some((node, path)) = fields.get("capabilities") {
        access.capabilities = entries(node, &path, CAPABILITIES.len(), report, word);
    }
    if let Some((node, path)) = fields.get("environment") {
        access.environment = entries(node, &path, VARIABLES_MAX, report, word);
    }
    access.user = fields.text("user", report);
    access.directory = fields.text("directory", report);
    access.writable = fields.parsed("writable", report);
    access.forwarding = fields.flag("forwarding", report).unwrap_or(false);
    access.stop = fields
        .get("stop")
        .map(|(node, path)| stop(node, &path, report));
    (access != Access::default()).then_some(access)
}

fn word(node: &Node, path: &str, report: &mut Report<'_>) -> Option<String> {
    text(node, path, report).map(str::to_owned)
}

/// Reads a path, or a mapping.
fn volume(node: &Node, path: &str, report: &mut Report<'_>) -> Option<Volume> {
    if !matches!(node.kind, Kind::Mapping(_)) {
        return Some(Volume {
            from: word(node, path, report)?,
            at: None,
            is_writable: false,
        });
    }
    let mut fields = Fields::new(node, path, report)?;
    let from = fields.get("from");
    if from.is_none() {
        let remedy = "write '{ from: /srv/data, at: /data, write: true }', or the path alone";
        report.error_at(node.mark, path, "'from' is missing", remedy);
    }
    let from = from.and_then(|(node, path)| word(node, &path, report));
    let at = fields.text("at", report);
    let is_writable = fields.flag("write", report).unwrap_or(false);
    fields.finish(report);
    Some(Volume {
        from: from?,
        at,
        is_writable,
    })
}

fn stop(node: &Node, path: &str, report: &mut Report<'_>) -> Stop {
    let mut stop = Stop::default();
    if let Some(mut fields) = Fields::new(node, path, report) {
        stop.signal = fields
            .get("signal")
            .and_then(|(node, path)| read(node, &path, report, signal));
        stop.wait = fields.parsed("wait", report);
        fields.finish(report);
    }
    stop
}

fn signal(text: &str) -> Result<StopSignal, ValueError> {
    StopSignal::find(text).ok_or_else(|| {
        ValueError::new(
            format!("no program is asked to end by '{}'", text.escape_debug()),
            did_you_mean(text, StopSignal::names(), "signals"),
        )
    })
}

/// Reads the entries of a list of bounded length.
pub fn entries<T>(
    node: &Node,
    path: &str,
    most: usize,
    report: &mut Report<'_>,
    mut entry: impl FnMut(&Node, &str, &mut Report<'_>) -> Option<T>,
) -> Vec<T> {
    let items = list(node, path, report);
    if items.len() > most {
        let message = format!("{} entries are too many", items.len());
        report.error_at(node.mark, path, message, format!("write at most {most}"));
        return Vec::new();
    }
    let items = items.iter().enumerate();
    items
        .filter_map(|(i, item)| entry(item, &format!("{path}[{i}]"), report))
        .collect()
}
