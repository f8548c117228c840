//! Conversion of JSON values to YAML text, for people to read and to apply again.

use super::node::Node;
use serde_json::{Map, Value};
use std::fmt::Write;

/// Writes a value as YAML in block style.
pub fn to_text(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => mapping(&mut out, map, 0),
        Value::Array(items) if !items.is_empty() => sequence(&mut out, items, 0),
        _ => {
            inline(&mut out, value);
            out.push('\n');
        }
    }
    out
}

fn mapping(out: &mut String, map: &Map<String, Value>, indent: usize) {
    for (i, (key, value)) in map.iter().enumerate() {
        if i > 0 {
            pad(out, indent);
        }
        text(out, key);
        out.push(':');
        below(out, value, indent);
    }
}

fn sequence(out: &mut String, items: &[Value], indent: usize) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            pad(out, indent);
        }
        out.push('-');
        match item {
            Value::Object(map) if !map.is_empty() => {
                out.push(' ');
                mapping(out, map, indent + 2);
            }
            _ => below(out, item, indent),
        }
    }
}

/// Writes the value of a key or of a list item: on the same line, or in the lines below.
fn below(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            pad(out, indent + 2);
            mapping(out, map, indent + 2);
        }
        Value::Array(items) if !items.is_empty() && !is_short(items) => {
            out.push('\n');
            pad(out, indent + 2);
            sequence(out, items, indent + 2);
        }
        Value::String(lines) if is_block(lines) => {
            out.push_str(" |\n");
            for line in lines.lines() {
                if !line.is_empty() {
                    pad(out, indent + 2);
                    out.push_str(line);
                }
                out.push('\n');
            }
        }
        _ => {
            out.push(' ');
            inline(out, value);
            out.push('\n');
        }
    }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Returns true if a list is shown in one line.
fn is_short(items: &[Value]) -> bool {
    const CHARS_MAX: usize = 60;
    let chars = items.iter().map(|item| match item {
        Value::String(text) if !text.contains('\n') => Some(text.chars().count() + 4),
        Value::Bool(_) | Value::Number(_) => Some(8),
        _ => None,
    });
    let total: Option<usize> = chars.sum();
    total.is_some_and(|total| total <= CHARS_MAX)
}

/// Returns true if a text can be a block scalar without loss: whole lines of printable characters, the first one not
/// indented, no blank lines at the end.
fn is_block(text: &str) -> bool {
    text.ends_with('\n')
        && !text.ends_with("\n\n")
        && !text.starts_with([' ', '\n', '\t'])
        && text.chars().all(|c| c == '\n' || is_printable(c))
}

fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}'
        )
}

fn inline(out: &mut String, value: &Value) {
    match value {
        Value::Object(_) => out.push_str("{}"),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                inline(out, item);
            }
            out.push(']');
        }
        Value::String(string) => text(out, string),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            // Writing into a String cannot fail.
            let _ = write!(out, "{value}");
        }
    }
}

/// Writes a text: without quotes if YAML reads it back as a text, else in JSON's form.
fn text(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
    } else {
        quoted(out, text);
    }
}

fn is_plain(text: &str) -> bool {
    let starts_well = text
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '.'));
    let goes_on_well = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || " /_.-%+@=()<>".contains(c));
    let stays_a_text = Node::plain_text(text).to_json() == Value::String(text.to_owned());
    starts_well && goes_on_well && stays_a_text && !text.ends_with(' ')
}

fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_printable(c) => out.push(c),
            c => {
                let _ = write!(out, "\\U{:08x}", u32::from(c));
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn it_reads_like_a_document_by_hand() {
        let value = json!({
            "version": 1,
            "instances": {
                "fw1": {
                    "nf": "firewall",
                    "config": {"rules_text": "allow ip from any to any\n\ndeny ip\n"},
                    "ports": {"in": {}, "out": {"switch": "lan", "mac": "02:00:00:00:00:01"}},
                    "share": "30%",
                    "cpus": [0, 1],
                }
            },
            "links": [["fw1.out", "nat1.in"]],
            "chains": {"web": {"match": [{"vlan": 10, "dport": "80-90"}, {"ether": "arp"}]}},
        });
        let expected = "\
version: 1
instances:
  fw1:
    nf: firewall
    config:
      rules_text: |
        allow ip from any to any

        deny ip
    ports:
      in: {}
      out:
        switch: lan
        mac: \"02:00:00:00:00:01\"
    share: 30%
    cpus: [0, 1]
links:
  - [fw1.out, nat1.in]
chains:
  web:
    match:
      - vlan: 10
        dport: 80-90
      - ether: arp
";
        assert_eq!(to_text(&value), expected);
    }

    fn values() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[ -~\n\t]{0,12}",
            "\\PC{0,6}",
            any::<String>().prop_map(|s| s.chars().take(6).filter(|c| *c != '\0').collect()),
            Just("~".to_owned()),
            Just("true".to_owned()),
            Just("1e3".to_owned()),
            Just("0x10".to_owned()),
            Just("---".to_owned()),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1e6f64..1e6).prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((text.clone(), inner), 0..5)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in values()) {
            let text = to_text(&value);
            let read = parse(&text).map(|node| node.to_json());
            prop_assert_eq!(read, Ok(value), "{}", text);
        }
    }
}
