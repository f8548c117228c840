//! What traces of all engines have in common.

use anyhow::Context;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Something that an engine was asked for, from the request until it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its name at the engine.
    pub name: String,
    /// The times in milliseconds since 1970 at which its phases have ended, in order, with the phases' names. The first one is the
    /// beginning, and has no name.
    pub marks: Vec<(&'static str, f64)>,
}

impl Run {
    /// Creates a run that begins at this time.
    pub fn new(name: impl Into<String>, begun_ms: f64) -> Self {
        Run {
            name: name.into(),
            marks: vec![("", begun_ms)],
        }
    }

    /// Adds a phase that ends at this time; without a time, the engine has not told it.
    pub fn end_of(&mut self, phase: &'static str, at_ms: Option<f64>) {
        self.marks.extend(at_ms.map(|at| (phase, at)));
    }
}

/// Reads values of JSON that follow each other, with or without line breaks. A last one that was cut off is left out.
///
/// # Errors
/// Something is no JSON; its position.
pub fn values(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut values = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter() {
        match value {
            Ok(value) => values.push(value),
            Err(error) if error.is_eof() => break,
            Err(error) => return Err(error).context("it is no JSON"),
        }
    }
    Ok(values)
}

/// Returns a time of RFC 3339 in milliseconds since 1970.
pub fn time_ms(value: &Value) -> Option<f64> {
    let time: Timestamp = value.as_str()?.parse().ok()?;
    Some(time.as_nanosecond() as f64 / 1e6)
}

/// Returns a time in nanoseconds since 1970 in milliseconds.
pub fn ns_in_ms(value: &Value) -> Option<f64> {
    value.as_f64().filter(|ns| *ns > 0.0).map(|ns| ns / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // promise: 28.1
    #[test]
    fn a_trace_that_is_cut_off_is_read_as_far_as_it_goes() {
        let read = values("{\"a\":1}\n{}\n[2]{\"b\":").expect("as far as it goes");
        assert_eq!(read, [json!({ "a": 1 }), json!({}), json!([2])]);
        values("{} nonsense").expect_err("it is none");
    }

    #[test]
    fn times_have_parts_of_milliseconds() {
        let one = time_ms(&json!("2026-11-28T09:18:44.869123Z")).expect("a time");
        let other = time_ms(&json!("2026-11-28T10:18:44.870Z")).expect("a time");
        assert!(
            (other - one - 3_600_000.877).abs() < 1e-3,
            "{}",
            other - one
        );
        assert_eq!(time_ms(&json!("yesterday")), None);
    }
}
