//! A document that may be an addition: read, and not checked. Reading needs nothing of the deployment, and so no lock.

use crate::attachments::Attachments;
use crate::decode::decode;
use crate::model::Deployment;
use crate::report::Report;
use crate::slices;
use crate::stopwatch::Stopwatch;
use crate::yaml::{DEPTH_MAX, Node};
use nfluid_api::types::ApplyRequest;
use serde_json::Value;

/// Longest document in bytes that may be handled as an addition.
const BYTES_MAX: usize = 256 << 10;

/// The objects of a document.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub(crate) file: Option<String>,
    pub(crate) root: Node,
    pub(crate) added: Deployment,
    pub(crate) watch: Stopwatch,
}

impl Proposal {
    /// Reads a request. `None`: the request asks for more than an addition, is too long, or cannot be read.
    pub fn of(request: &ApplyRequest) -> Option<Self> {
        if !request.merge || request.dry_run || request.text.len() > BYTES_MAX {
            return None;
        }
        let watch = Stopwatch::start();
        let root = slices::document(&request.text).ok()?;
        Self::read(root, &request.attachments, request.file.clone(), watch)
    }

    /// Reads a document that a program has built, and that was never text. `None`: the document is too long, or cannot be
    /// read.
    pub fn made(document: &Value, attachments: &Attachments) -> Option<Self> {
        let watch = Stopwatch::start();
        let mut left = BYTES_MAX;
        if !fits(document, DEPTH_MAX, &mut left) {
            return None;
        }
        Self::read(
            slices::write_out(Node::from_json(document)),
            attachments,
            None,
            watch,
        )
    }

    fn read(
        root: Node,
        attachments: &Attachments,
        file: Option<String>,
        mut watch: Stopwatch,
    ) -> Option<Self> {
        let mut report = Report::new(None, None);
        let added = decode(&root, attachments, &mut report);
        report.finish().ok()?;
        watch.lap("read");
        Some(Proposal {
            file,
            root,
            added,
            watch,
        })
    }
}

/// Returns true if a value has at most `levels` levels and about `left` bytes.
fn fits(value: &Value, levels: usize, left: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => text.len(),
        Value::Object(entries) => entries.keys().map(String::len).sum(),
        _ => 0,
    };
    let Some(rest) = left.checked_sub(own + 1).filter(|_| levels > 0) else {
        return false;
    };
    *left = rest;
    let fits = |inner: &Value| fits(inner, levels - 1, left);
    match value {
        Value::Array(items) => items.iter().all(fits),
        Value::Object(entries) => entries.values().all(fits),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, Proposal};
    use nfluid_api::types::ApplyRequest;
    use serde_json::{Value, json};

    fn document(instance: Value) -> Value {
        json!({ "version": 1, "instances": { "x": instance }, "links": [["x.in", "lan"]] })
    }

    fn made(document: &Value) -> Option<Proposal> {
        Proposal::made(document, &Default::default())
    }

    #[test]
    fn a_document_says_the_same_as_a_text_and_as_a_value() {
        for instance in [
            json!({ "nf": "bridge", "flavor": "small" }),
            json!({ "nf": "firewall", "config": { "rules": "allow ip from any to any\n" }, "share": "3%" }),
            json!({ "program": "/bin/nf", "args": ["1", "true", "1e3"], "cpus": [0, 1] }),
        ] {
            let document = document(instance);
            let request = ApplyRequest {
                text: document.to_string(),
                merge: true,
                ..ApplyRequest::default()
            };
            let text = Proposal::of(&request).expect("a text");
            assert_eq!(made(&document).expect("a value").added, text.added);
        }
    }

    #[test]
    fn what_is_wrong_long_or_deep_is_left_to_others() {
        assert!(made(&document(json!({ "nf": "bridge", "flavour": "small" }))).is_none());
        let named = |name: String| document(json!({ "nf": "bridge", "config": { "a": name } }));
        assert!(made(&named("a".repeat(BYTES_MAX / 2))).is_some());
        assert!(made(&named("a".repeat(BYTES_MAX))).is_none());
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let config =
            |levels| document(json!({ "nf": "bridge", "config": { "a": nested(levels) } }));
        assert!(made(&config(20)).is_some());
        assert!(made(&config(40)).is_none());
    }
}
