//! Answers of an instance.
//!
//! The daemon reads these structures from a hostile instance: each number is the instance's word, and is checked where it is used.

use crate::request::Address;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What an instance answers to a beat whose work was late since the last one; otherwise it answers `null`.
pub const LATE: &str = "late";

/// An answer. On the wire: `{"ok": ...}` or `{"error": "..."}`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request was carried out. The value is what it asked for.
    Ok(Value),
    /// The request was refused, with the reason.
    Error(String),
}

impl Answer {
    /// The answer that has this structure as its value.
    pub fn of(value: &impl Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => Answer::Ok(value),
            Err(error) => Answer::Error(format!("writing the answer: {error}")),
        }
    }

    /// The answer as a line of text.
    ///
    /// # Errors
    /// The answer cannot be written as JSON.
    pub fn line(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

/// A state that was written to the request's file, and behind it the frames that waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exported {
    /// Bytes of the state.
    pub state_bytes: u64,
    /// Bytes of the frames with their heads.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// Number of frames.
    #[serde(default)]
    pub waiting: u64,
    /// The addresses that frames for the instance were for lately, unless the state alone was asked for.
    #[serde(default)]
    pub addresses: Vec<Address>,
}

/// A state that was taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Imported {
    /// Entries that the NF has now.
    pub taken: u64,
    /// Entries for which the NF had no room, or which it has already.
    pub left_out: u64,
    /// Time of the import in microseconds.
    pub took_us: u64,
}

/// An instance that has handled what was before its flows went elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Bytes of the state.
    pub state_bytes: u64,
    /// Time in microseconds until the rings were read up to the positions.
    #[serde(default)]
    pub drain_us: u64,
    /// Time of the export in microseconds.
    #[serde(default)]
    pub export_us: u64,
}

/// A hand-over to a successor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandedOver {
    /// Entries that the successor has taken.
    pub taken: u64,
    /// Entries for which the successor had no room.
    pub left_out: u64,
    /// Bytes of the state.
    pub state_bytes: u64,
    /// Time in microseconds until the instance had nothing of its own in the rings.
    pub settle_us: u64,
    /// Time of the export in microseconds.
    pub export_us: u64,
    /// Time of the successor's import in microseconds.
    pub import_us: u64,
    /// Time in microseconds in which no process handled frames.
    pub silent_us: u64,
}

/// An instance that stands still because it leaves the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Departed {
    /// Bytes of the state.
    pub state_bytes: u64,
    /// Time in microseconds until the instance had nothing of its own in the rings.
    pub settle_us: u64,
    /// Time of the export in microseconds.
    pub export_us: u64,
    /// The addresses that frames for the instance were for lately.
    pub addresses: Vec<Address>,
}

/// The connections that a terminator still has while it drains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    /// Number of connections.
    pub connections: u64,
}

/// Reads an instance's answer as this structure; `None`: the answer is something else. More fields than expected are no error:
/// the instance may be of a newer version.
pub fn read<T: DeserializeOwned>(answer: Value) -> Option<T> {
    serde_json::from_value(answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_ok_or_an_error() {
        let written = |answer: &Answer| serde_json::to_value(answer).expect("JSON");
        let done = Answer::of(&Draining { connections: 3 });
        assert_eq!(written(&done), json!({ "ok": { "connections": 3 } }));
        let refused = Answer::Error("no".to_owned());
        assert_eq!(written(&refused), json!({ "error": "no" }));
    }

    /// Catches: an answer of a hostile instance that stops the daemon, or that counts as a length.
    #[test]
    fn an_answer_of_any_shape_is_read_or_is_none() {
        let length = |answer: Value| read::<Exported>(answer).map(|it| it.state_bytes);
        assert_eq!(length(json!({ "state_bytes": 7, "more": 1 })), Some(7));
        for strange in [
            json!(null),
            json!([]),
            json!({}),
            json!({ "state_bytes": -1 }),
            json!({ "state_bytes": "7" }),
        ] {
            assert_eq!(length(strange.clone()), None, "{strange}");
        }
        let taken = |answer: Value| read::<Imported>(answer).unwrap_or_default().taken;
        assert_eq!(taken(json!({ "taken": 2 })), 2);
        assert_eq!(taken(json!({ "taken": 2.5 })), 0);
        assert_eq!(taken(json!(null)), 0);
    }
}
