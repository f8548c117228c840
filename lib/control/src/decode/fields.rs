//! Reads one mapping key by key.

use crate::model::check_name;
use crate::quantity::ValueError;
use crate::report::{Report, did_you_mean};
use crate::yaml::{Entry, Kind, Mark, Node};
use std::collections::HashMap;
use std::str::FromStr;

/// A mapping whose valid keys are known in advance. Each request for a key marks the key as known; [`Fields::finish`]
/// reports all other keys.
pub struct Fields<'n> {
    path: String,
    entries: &'n [Entry],
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// Opens the mapping at `path`; a null counts as an empty mapping.
    pub fn new(node: &'n Node, path: &str, report: &mut Report<'_>) -> Option<Self> {
        let entries = mapping(node, path, report)?;
        Some(Fields {
            path: path.to_owned(),
            entries,
            known: Vec::new(),
        })
    }

    /// Returns the value of a key and its path. A key without a value counts as absent.
    pub fn get(&mut self, key: &'static str) -> Option<(&'n Node, String)> {
        self.known.push(key);
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        (!entry.value.is_null()).then(|| (&entry.value, join(&self.path, key)))
    }

    /// Returns the value of a key, parsed by the type's `FromStr`.
    pub fn parsed<T>(&mut self, key: &'static str, report: &mut Report<'_>) -> Option<T>
    where
        T: FromStr<Err = ValueError>,
    {
        let (node, path) = self.get(key)?;
        parsed(node, &path, report)
    }

    /// Returns the text of a key.
    pub fn text(&mut self, key: &'static str, report: &mut Report<'_>) -> Option<String> {
        let (node, path) = self.get(key)?;
        text(node, &path, report).map(str::to_owned)
    }

    /// Returns the boolean of a key.
    pub fn flag(&mut self, key: &'static str, report: &mut Report<'_>) -> Option<bool> {
        let (node, path) = self.get(key)?;
        let found = node.as_scalar().and_then(|scalar| scalar.as_bool());
        if found.is_none() {
            wrong_type(node, &path, "true or false", report);
        }
        found
    }

    /// Returns the whole number of a key, within bounds.
    pub fn integer(
        &mut self,
        key: &'static str,
        (least, most): (i64, i64),
        report: &mut Report<'_>,
    ) -> Option<i64> {
        let (node, path) = self.get(key)?;
        integer(node, &path, (least, most), report)
    }

    /// Returns the choice for a key among several words.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
        report: &mut Report<'_>,
    ) -> Option<T> {
        let (node, path) = self.get(key)?;
        let word = text(node, &path, report)?;
        let found = choices.iter().find(|(name, _)| *name == word);
        if found.is_none() {
            let names = choices.iter().map(|(name, _)| *name);
            let message = format!("there is no {key} '{}'", word.escape_debug());
            report.error_at(
                node.mark,
                &path,
                message,
                did_you_mean(word, names, "there are"),
            );
        }
        found.map(|(_, value)| *value)
    }

    /// Reports the unknown keys.
    pub fn finish(self, report: &mut Report<'_>) {
        for entry in self.entries {
            if !self.known.contains(&entry.key.as_str()) {
                let known = self.known.iter().copied();
                report.error_at(
                    entry.key_mark,
                    &join(&self.path, &entry.key),
                    format!("unknown key '{}'", entry.key.escape_debug()),
                    did_you_mean(&entry.key, known, "the keys here are"),
                );
            }
        }
    }
}

/// Returns the path of `key` within `path`.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// Returns the entries of a mapping; a null counts as an empty mapping.
pub fn mapping<'n>(node: &'n Node, path: &str, report: &mut Report<'_>) -> Option<&'n [Entry]> {
    match &node.kind {
        Kind::Mapping(entries) => Some(entries),
        Kind::Scalar(scalar) if scalar.is_null() => Some(&[]),
        _ => {
            wrong_type(node, path, "a mapping (key: value)", report);
            None
        }
    }
}

/// Returns the items of a list.
pub fn list<'n>(node: &'n Node, path: &str, report: &mut Report<'_>) -> &'n [Node] {
    match &node.kind {
        Kind::Sequence(items) => items,
        Kind::Scalar(scalar) if scalar.is_null() => &[],
        _ => {
            wrong_type(node, path, "a list ([a, b])", report);
            &[]
        }
    }
}

/// Returns the text of a scalar. Numbers and booleans are returned as they are written.
pub fn text<'n>(node: &'n Node, path: &str, report: &mut Report<'_>) -> Option<&'n str> {
    match node.as_scalar() {
        Some(scalar) if !scalar.is_null() => Some(&scalar.text),
        _ => {
            wrong_type(node, path, "a text", report);
            None
        }
    }
}

/// Parses a scalar by the type's `FromStr`.
pub fn parsed<T>(node: &Node, path: &str, report: &mut Report<'_>) -> Option<T>
where
    T: FromStr<Err = ValueError>,
{
    read(node, path, report, str::parse)
}

/// Reads the name of an object.
pub fn name(node: &Node, path: &str, report: &mut Report<'_>) -> Option<String> {
    read(node, path, report, |name| {
        check_name(name).map(str::to_owned)
    })
}

/// Parses a scalar by a function.
pub fn read<T>(
    node: &Node,
    path: &str,
    report: &mut Report<'_>,
    parse: impl FnOnce(&str) -> Result<T, ValueError>,
) -> Option<T> {
    match parse(text(node, path, report)?) {
        Ok(value) => Some(value),
        Err(error) => {
            report.bad_value(node.mark, path, error);
            None
        }
    }
}

/// Reads a whole number within bounds.
pub fn integer(
    node: &Node,
    path: &str,
    (least, most): (i64, i64),
    report: &mut Report<'_>,
) -> Option<i64> {
    match node.as_scalar().and_then(|scalar| scalar.as_integer()) {
        Some(n) if (least..=most).contains(&n) => Some(n),
        Some(n) => {
            let message = format!("{n} is out of range");
            let remedy = format!("write a whole number from {least} to {most}");
            report.error_at(node.mark, path, message, remedy);
            None
        }
        None => {
            wrong_type(node, path, "a whole number, without quotes", report);
            None
        }
    }
}

/// Reports a value of the wrong type.
pub fn wrong_type(node: &Node, path: &str, wanted: &str, report: &mut Report<'_>) {
    let message = format!("wrong type: this is {}", node.type_name());
    report.error_at(node.mark, path, message, format!("write {wanted}"));
}

/// Reports every key that a mapping has more than once, in the whole tree.
pub fn report_duplicates(node: &Node, path: &str, report: &mut Report<'_>) {
    match &node.kind {
        Kind::Scalar(_) => {}
        Kind::Sequence(items) => {
            for (i, item) in items.iter().enumerate() {
                report_duplicates(item, &format!("{path}[{i}]"), report);
            }
        }
        Kind::Mapping(entries) => {
            let mut first: HashMap<&str, Mark> = HashMap::with_capacity(entries.len());
            for entry in entries {
                let path = join(path, &entry.key);
                if let Some(mark) = first.get(entry.key.as_str()) {
                    report.error_at(
                        entry.key_mark,
                        &path,
                        format!("duplicate name '{}'", entry.key.escape_debug()),
                        format!("it is in line {} already; rename or remove one", mark.line),
                    );
                } else {
                    first.insert(&entry.key, entry.key_mark);
                }
                report_duplicates(&entry.value, &path, report);
            }
        }
    }
}
