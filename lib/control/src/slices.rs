//! `slices:` of a document: each slice is written out as the instance that it is, an engine with this slice alone.
//!
//! What remains of a deployment are instances: whoever reads it back, or compares it, needs no other kind. Values keep their
//! places in the document, so that faults of the instance are shown where the slice was written.

use crate::yaml::{Entry, Kind, Mark, Node, Scalar, SyntaxError, parse};

/// The NF of a slice's instance.
pub const NF: &str = "dataflow";
/// Keys of a slice that are the engine's: the rest of its configuration is below `slices`.
const ENGINE_KEYS: [&str; 4] = ["back_end", "manager", "pes", "port"];
/// Keys of a slice that are the slice's in its engine. All others are the instance's.
const SLICE_KEYS: [&str; 6] = ["deadline", "graph", "id", "interval", "parameters", "rank"];

/// Reads a document, and writes its slices out.
///
/// # Errors
/// The text is no YAML.
pub fn document(text: &str) -> Result<Node, SyntaxError> {
    parse(text).map(write_out)
}

/// Writes the slices of a document out. A `slices` that is no mapping stays, and is reported by whoever reads the document.
pub fn write_out(mut root: Node) -> Node {
    let Kind::Mapping(entries) = &mut root.kind else {
        return root;
    };
    let mut instances = Vec::new();
    let mut place = Mark::default();
    entries.retain_mut(|entry| {
        let Kind::Mapping(slices) = &mut entry.value.kind else {
            return true;
        };
        if entry.key != "slices" {
            return true;
        }
        place = entry.key_mark;
        instances.extend(slices.drain(..).map(instance));
        false
    });
    if instances.is_empty() {
        return root;
    }
    let present = entries.iter_mut().find(|entry| entry.key == "instances");
    match present.map(|entry| &mut entry.value.kind) {
        Some(Kind::Mapping(present)) => present.extend(instances),
        _ => entries.push(mapping("instances", place, instances)),
    }
    root
}

/// The instance of a slice.
fn instance(mut slice: Entry) -> Entry {
    let (name, place) = (slice.key.clone(), slice.key_mark);
    let Kind::Mapping(keys) = &mut slice.value.kind else {
        return slice;
    };
    let mut take = |names: &[&str]| {
        let is_one = |entry: &mut Entry| names.contains(&entry.key.as_str());
        keys.extract_if(.., is_one).collect::<Vec<Entry>>()
    };
    let own = mapping(&name, place, take(&SLICE_KEYS));
    let mut config = take(&ENGINE_KEYS);
    config.push(mapping("slices", place, vec![own]));
    let nf = Kind::Scalar(Scalar {
        text: NF.to_owned(),
        plain: true,
        first_line: place.line,
    });
    keys.insert(0, entry("nf", place, nf));
    keys.insert(1, mapping("config", place, config));
    slice
}

fn mapping(key: &str, mark: Mark, entries: Vec<Entry>) -> Entry {
    entry(key, mark, Kind::Mapping(entries))
}

fn entry(key: &str, mark: Mark, kind: Kind) -> Entry {
    Entry {
        key: key.to_owned(),
        key_mark: mark,
        value: Node { mark, kind },
    }
}
