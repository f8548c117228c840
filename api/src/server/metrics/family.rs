//! Metric families in Prometheus' text format.

use std::fmt::Write;

/// A metric family with all of its samples.
pub(super) struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl<'a> Family<'a> {
    pub(super) fn new(out: &'a mut String, name: &'static str, kind: &str, help: &str) -> Self {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { out, name }
    }

    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.out.push_str(self.name);
        for (i, (name, text)) in labels.iter().enumerate() {
            self.out.push_str(if i == 0 { "{" } else { "," });
            let _ = write!(self.out, "{name}=\"");
            escape(self.out, text);
            self.out.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{end} {value}");
    }
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
