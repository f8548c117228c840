//! Files that a document names. The sender of the document sends the texts of the files as attachments.

use crate::yaml::Node;
use std::collections::BTreeMap;

/// Texts of the files that a document names, by the name in the document.
pub type Attachments = BTreeMap<String, String>;

/// Keys of an NF's configuration that name a file, and the keys under which the NF gets its text.
pub const FILE_KEYS: [(&str, &str); 2] = [("rules_file", "rules"), ("routes_file", "routes_text")];

/// Returns the files that a document names in configurations of instances, with the key path of each. The sender of the
/// document sends their texts as attachments.
pub fn attached_files(root: &Node) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let entries = |table| match root.get(table).map(|table| &table.kind) {
        Some(crate::yaml::Kind::Mapping(entries)) => entries.as_slice(),
        _ => &[],
    };
    let instances = entries("instances").iter().map(|entry| {
        let path = format!("instances.{}", entry.key);
        (path, Some(&entry.value))
    });
    let of = |table: &'static str| {
        let entries = entries(table).iter();
        entries.map(move |entry| (format!("{table}.{}", entry.key), &entry.value))
    };
    let templates = of("templates").chain(of("chains").filter(|(_, chain)| is_on_demand(chain)));
    let stages = templates.flat_map(|(path, template)| {
        let several = match template.get("via").map(|via| &via.kind) {
            Some(crate::yaml::Kind::Sequence(items)) => items.as_slice(),
            _ => &[],
        };
        let several = several.iter().enumerate();
        let several = several.map(|(at, item)| (format!("{path}.via[{at}].instance"), item));
        let one = (format!("{path}.instance"), template);
        let all: Vec<_> = several.chain([one]).collect();
        all.into_iter()
            .map(|(path, stage)| (path, stage.get("instance")))
    });
    for (path, instance) in instances.chain(stages) {
        let Some(config) = instance.and_then(|instance| instance.get("config")) else {
            continue;
        };
        for (key, _) in FILE_KEYS {
            if let Some(scalar) = config.get(key).and_then(Node::as_scalar) {
                files.push((format!("{path}.config.{key}"), scalar.text.clone()));
            }
        }
    }
    files
}

/// Returns true if `chain` is created on demand. Such a chain is a template under another name.
pub(crate) fn is_on_demand(chain: &Node) -> bool {
    chain.get("activate").is_some()
}
