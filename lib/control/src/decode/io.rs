//! I/O models.

use super::cpus::cpus;
use super::fields::{Fields, text};
use crate::io::{Io, IoIdle, IoModel, IoSettings};
use crate::report::{Report, did_you_mean};
use crate::yaml::Node;

/// Reads the word of a model, or a mapping.
pub fn io(node: &Node, path: &str, report: &mut Report<'_>) -> Io {
    if node.as_scalar().is_some() {
        return Io {
            model: model(node, path, report),
            ..Io::default()
        };
    }
    let Some(mut fields) = Fields::new(node, path, report) else {
        return Io::default();
    };
    let mut io = Io::default();
    if let Some((node, path)) = fields.get("model") {
        io.model = model(node, &path, report);
    }
    io.settings = settings(&mut fields, report);
    fields.finish(report);
    io
}

fn settings(fields: &mut Fields<'_>, report: &mut Report<'_>) -> IoSettings {
    let idles = [("sleep", IoIdle::Sleep), ("poll", IoIdle::Poll)];
    IoSettings {
        cores: fields
            .get("cores")
            .map_or_else(Vec::new, |(node, path)| cpus(node, &path, report)),
        idle: fields.choice("idle", &idles, report).unwrap_or_default(),
        cap: fields.parsed("cap", report),
    }
}

/// Reads the word of a model.
pub fn model(node: &Node, path: &str, report: &mut Report<'_>) -> IoModel {
    let Some(word) = text(node, path, report) else {
        return IoModel::default();
    };
    let found = IoModel::WORDS.iter().find(|(known, _)| *known == word);
    if found.is_none() {
        let words = IoModel::WORDS.iter().map(|(known, _)| *known);
        report.error_at(
            node.mark,
            path,
            format!("there is no I/O model '{}'", word.escape_debug()),
            did_you_mean(word, words, "there are"),
        );
    }
    found.map_or_else(IoModel::default, |(_, model)| *model)
}
