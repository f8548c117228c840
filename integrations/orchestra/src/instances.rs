//! The starts of nfluid's instances, from its events.

use crate::trace::values;
use nfluid_api::types::{Event, EventKind, Kind};
use serde_json::Value;
use std::collections::HashMap;

/// Digits of an engine's object in the names of its instances.
const DIGITS: usize = 12;

/// When instances have started, by the end of their names: the engine's object.
#[derive(Debug, Default)]
pub struct Starts(HashMap<String, f64>);

impl Starts {
    /// Reads events: one after the other, or in lists.
    ///
    /// # Errors
    /// It is no JSON.
    pub fn read(&mut self, text: &str) -> anyhow::Result<()> {
        for value in values(text)? {
            let list = match value {
                Value::Array(list) => list,
                Value::Object(mut page) if page.contains_key("events") => {
                    let list = page.remove("events").unwrap_or_default();
                    serde_json::from_value(list).unwrap_or_default()
                }
                one => vec![one],
            };
            for event in list {
                if let Ok(event) = serde_json::from_value(event) {
                    self.note(&event);
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, event: &Event) {
        let is_start = event.kind == EventKind::Started && event.object == Some(Kind::Instance);
        if let (true, Some((_, object))) = (is_start, event.name.rsplit_once('-')) {
            // Of an object with several instances, the last one counts.
            let at = self.0.entry(object.to_owned()).or_insert(0.0);
            *at = at.max(event.time_ms as f64);
        }
    }

    /// Returns when the instances of the engine's object with this id had started.
    pub fn of(&self, id: &str) -> Option<f64> {
        let digits = id.chars().filter(char::is_ascii_alphanumeric);
        let digits: String = digits.take(DIGITS).collect();
        self.0.get(&digits).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_start_of_an_object_counts() {
        let mut starts = Starts::default();
        let event = |name: &str, kind: &str, at: u64| {
            format!(
                r#"{{"seq":1,"time_ms":{at},"kind":"{kind}","object":"instance","name":"{name}","message":""}}"#
            )
        };
        let page = format!(
            r#"{{"events":[{}],"next":2}}"#,
            event("fw-0b1c2d3e4f50", "started", 10)
        );
        let lines = [
            event("nat-0b1c2d3e4f50", "started", 12),
            event("x-0b1c2d3e4f50", "exited", 99),
        ];
        starts.read(&page).expect("a page");
        starts.read(&lines.join("\n")).expect("lines");
        assert_eq!(
            starts.of("0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"),
            Some(12.0)
        );
        assert_eq!(starts.of("other"), None);
    }
}
