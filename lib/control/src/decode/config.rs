//! Configurations of NFs.

use super::fields::{join, mapping};
use crate::attachments::{Attachments, FILE_KEYS};
use crate::report::Report;
use crate::yaml::Node;
use serde_json::Value;

/// Returns the NF's configuration, with the texts of the files that it names.
pub fn config(
    node: &Node,
    path: &str,
    attachments: &Attachments,
    report: &mut Report<'_>,
) -> Value {
    if mapping(node, path, report).is_none() {
        return Value::Null;
    }
    let mut config = node.to_json();
    let Some(object) = config.as_object_mut() else {
        return config;
    };
    for (file_key, text_key) in FILE_KEYS {
        let Some(value) = object.remove(file_key) else {
            continue;
        };
        let path = join(path, file_key);
        let Value::String(file) = value else {
            report.error(
                &path,
                "wrong type: a file's name is a text",
                "quote the name",
            );
            continue;
        };
        if object.contains_key(text_key) {
            let message = format!("there is a '{text_key}' as well");
            report.error(&path, message, "remove one of them");
        } else if let Some(text) = attachments.get(&file) {
            object.insert(text_key.into(), Value::String(text.clone()));
        } else {
            report.error(
                &path,
                format!("the text of '{file}' was not sent along"),
                "'nfluid apply' sends it; other clients put it into 'attachments'",
            );
        }
    }
    config
}
