//! Lists, as their queries ask for them: `?field=id&field=name&limit=10&name=fw`.

use super::content::Answer;
use super::front::Outcome;
use crate::fault::Fault;
use crate::objects::Object;
use serde_json::{Map, Value, json};

/// Rows of a list, unless the query says otherwise.
const LIMIT: usize = 100;

/// The pairs of a query string.
pub type Pairs = Vec<(String, String)>;

/// A query of a list.
pub struct Query {
    fields: Vec<String>,
    conditions: Pairs,
    limit: usize,
}

impl Query {
    /// Reads the query of a list of `T`.
    ///
    /// # Errors
    /// An attribute is none of a list.
    pub fn read<T: Object>(pairs: Pairs) -> Result<Self, Fault> {
        let mut query = Query {
            fields: Vec::new(),
            conditions: Vec::new(),
            limit: LIMIT,
        };
        for (key, value) in pairs {
            let wrong = || {
                let known = T::LISTED.join(", ");
                Fault::bad(format!(
                    "Invalid query string at '{key}={value}': attributes of {} are {known}",
                    T::PLURAL
                ))
            };
            match key.as_str() {
                "limit" => query.limit = value.parse().map_err(|_| wrong())?,
                "field" if T::LISTED.contains(&value.as_str()) => query.fields.push(value),
                _ if T::LISTED.contains(&key.as_str()) => query.conditions.push((key, value)),
                _ => return Err(wrong()),
            }
        }
        Ok(query)
    }

    /// Returns true if an object is asked for, as far as its stored attributes say.
    fn has(&self, attributes: &Map<String, Value>) -> bool {
        self.conditions
            .iter()
            .all(|(key, wanted)| match attributes.get(key) {
                None | Some(Value::Null) => wanted == "null",
                Some(Value::String(text)) => text == wanted,
                Some(other) => {
                    let text = other.to_string();
                    text == *wanted
                }
            })
    }

    /// Returns the answer: the rows that the query asks for, with the attributes that it asks for. `links` is an attribute of each row that has it.
    pub fn answer<T: Object>(&self, rows: impl IntoIterator<Item = Map<String, Value>>) -> Outcome {
        let wanted = rows
            .into_iter()
            .filter(|row| self.has(row))
            .take(self.limit);
        let rows = wanted.map(|mut row| {
            row.retain(|key, _| {
                let is_wanted = self.fields.is_empty() || self.fields.contains(key);
                key == "links" || is_wanted && T::LISTED.contains(&key.as_str())
            });
            row
        });
        Ok(Answer(json!({ T::PLURAL: rows.collect::<Vec<_>>() })))
    }
}
