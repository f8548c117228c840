//! Answers of an NF on its control socket: a line of JSON, `{"ok": ...}` or `{"error": "..."}`; and the NF's state, behind the
//! state's length.
//!
//! The NF is hostile. A line is bounded in bytes ([`ANSWER_MAX`], or [`EACH_MAX`] where many are asked at once) and in
//! values ([`crate::json::VALUES_MAX`]), a state in bytes.

use crate::json::{self, JsonError};
use crate::message::Address;
use nfluid_api::types::SAVED_BYTES_MAX;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};

/// Longest answer in bytes. A thousand sessions of a NAT have some 150 KiB.
pub const ANSWER_MAX: u64 = 4 << 20;
/// Longest answer in bytes of each of many instances: as many may come at once.
pub const EACH_MAX: usize = 1 << 20;
/// The error text for an NF that refuses without a reason.
const NO_REASON: &str = "the NF refuses and does not say why";

/// Reason for which there is no line of an answer.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The stream ended, or was reset.
    #[error("it has ended before it answered")]
    Ended,
    /// The line has no end within [`ANSWER_MAX`] bytes.
    #[error("it answers more than {ANSWER_MAX} bytes; ask for less ('limit=')")]
    TooLong,
    /// Reading failed, or the time for it was over.
    #[error("reading its answer")]
    Io(#[source] io::Error),
}

/// Reads the first line of a stream. Text that ends without a line break counts as a line.
///
/// # Errors
/// [`LineError`].
pub fn read_line(stream: impl Read) -> Result<String, LineError> {
    let mut line = String::new();
    let read = BufReader::new(stream).take(ANSWER_MAX).read_line(&mut line);
    match read {
        Ok(0) => Err(LineError::Ended),
        Ok(_) if line.len() as u64 >= ANSWER_MAX && !line.ends_with('\n') => {
            Err(LineError::TooLong)
        }
        Ok(_) => Ok(line),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(LineError::Ended),
        Err(error) => Err(LineError::Io(error)),
    }
}

/// Reason for which a line is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The line is not JSON.
    #[error("the answer is not JSON")]
    Json(#[source] serde_json::Error),
    /// The line has more JSON values than [`json::VALUES_MAX`], and would take too much memory.
    #[error("the answer has more than {} values", json::VALUES_MAX)]
    TooManyValues,
    /// The NF refuses, in its own words.
    #[error("{0}")]
    Refused(String),
    /// The line has neither `ok` nor `error`.
    #[error("the answer is neither success nor error")]
    Neither,
}

/// Returns the part behind `ok` in a line of an answer.
///
/// # Errors
/// [`AnswerError`].
pub fn understood(line: &[u8]) -> Result<Value, AnswerError> {
    let mut answer: Value = json::read(line).map_err(|error| match error {
        JsonError::TooManyValues => AnswerError::TooManyValues,
        JsonError::Json(error) => AnswerError::Json(error),
    })?;
    if let Some(value) = answer.get_mut("ok") {
        return Ok(value.take());
    }
    let error = answer.get("error").and_then(Value::as_str);
    let why = error.ok_or(AnswerError::Neither)?;
    let why = if why.trim().is_empty() {
        NO_REASON
    } else {
        why
    };
    Err(AnswerError::Refused(why.to_owned()))
}

/// Takes the addresses, at most `most`, out of the answer of an instance that is to leave. An instance of an older
/// version, and an instance with another answer, names none.
pub fn take_addresses(answer: &mut Value, most: usize) -> Vec<Address> {
    // The answer need not be an object: it cannot be indexed.
    let found = answer.as_object_mut();
    let found = found.and_then(|answer| answer.remove("addresses"));
    let found = found.and_then(|found| serde_json::from_value(found).ok());
    let mut addresses: Vec<Address> = found.unwrap_or_default();
    addresses.truncate(most);
    addresses
}

/// The part of an NF's answer that has come by now, where many NFs are asked at once.
#[derive(Debug, Default)]
pub struct Gathered {
    got: Vec<u8>,
}

impl Gathered {
    /// Adds a received piece. Returns true if no more is to be read: the answer is whole, or longer than
    /// [`EACH_MAX`].
    pub fn add(&mut self, piece: &[u8]) -> bool {
        self.got.extend_from_slice(piece);
        piece.contains(&b'\n') || self.got.len() > EACH_MAX
    }

    /// The line that the instance has answered, as far as it has come, without its end.
    pub fn line(&self) -> &[u8] {
        let mut lines = self.got.split(|byte| *byte == b'\n');
        lines.next().unwrap_or_default()
    }
}

/// Reason for which there is no state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The stream fails, or the time for it was over.
    #[error("reading its state")]
    Io(#[source] io::Error),
    /// The length is more than can be moved.
    #[error("its state has {0} bytes, more than the {SAVED_BYTES_MAX} that can be moved")]
    TooLong(u64),
    /// The stream ends before the state's length.
    #[error("its state is not whole")]
    Cut,
}

/// Reads a state as an instance writes it: its length (8 bytes, little-endian), then its bytes.
///
/// # Errors
/// [`StateError`].
pub fn read_state(mut stream: impl Read) -> Result<Vec<u8>, StateError> {
    let mut length = [0; 8];
    stream.read_exact(&mut length).map_err(StateError::Io)?;
    let length = u64::from_le_bytes(length);
    // The length is not believed: no more than this is read, and memory is taken as the bytes come.
    if length > SAVED_BYTES_MAX as u64 {
        return Err(StateError::TooLong(length));
    }
    let mut state = Vec::new();
    let read = stream.take(length).read_to_end(&mut state);
    read.map_err(StateError::Io)?;
    if state.len() as u64 != length {
        return Err(StateError::Cut);
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // Catches: the length of an answer is bounded and its values are not.
    // promise: 7.42
    #[test]
    fn an_answer_that_would_fill_the_memory_is_refused() {
        let list = |object: &str, count: usize| {
            let objects = vec![object; count].join(",");
            format!("{{\"ok\":[{objects}]}}\n").into_bytes()
        };
        let honest = list(
            "{\"protocol\":\"tcp\",\"inside\":\"10.0.0.1:40000\"}",
            50_000,
        );
        assert!(understood(&honest).is_ok());
        let amplified = list("{\"\":0}", ANSWER_MAX as usize / 8);
        assert!(amplified.len() < ANSWER_MAX as usize);
        let why = understood(&amplified).expect_err("too many");
        assert!(matches!(why, AnswerError::TooManyValues), "{why}");
    }

    // promise: 7.43
    #[test]
    fn an_error_without_a_reason_says_so() {
        let said = |answer: Value| {
            let refused = understood(answer.to_string().as_bytes());
            refused.expect_err("an error").to_string()
        };
        assert_eq!(said(json!({ "error": "no room" })), "no room");
        for why in ["", " \t"] {
            assert_eq!(said(json!({ "error": why })), NO_REASON);
        }
        for neither in [json!({}), json!([]), json!({ "error": 7 }), json!("ok")] {
            assert!(said(neither).contains("neither"));
        }
    }

    // promise: 7.43
    #[test]
    fn whatever_is_answered_names_addresses_or_none() {
        let mut answer = json!({ "addresses": [[0, [2, 0, 0, 0, 0, 1]], [1, [2, 0, 0, 0, 0, 2]]] });
        let first = (0, [2, 0, 0, 0, 0, 1]);
        assert_eq!(take_addresses(&mut answer.clone(), 1), [first]);
        assert_eq!(take_addresses(&mut answer, 9).len(), 2);
        for other in [
            json!(7),
            json!("ok"),
            json!([]),
            json!(null),
            json!({ "addresses": 7 }),
        ] {
            assert_eq!(take_addresses(&mut other.clone(), 9), [], "{other}");
        }
    }

    #[test]
    fn a_line_ends_with_its_break_or_its_stream_and_has_a_bound() {
        assert_eq!(read_line(&b"{}\n{}"[..]).expect("a line"), "{}\n");
        assert_eq!(read_line(&b"{}"[..]).expect("a line"), "{}");
        assert!(matches!(read_line(io::empty()), Err(LineError::Ended)));
        let endless = read_line(io::repeat(b'x'));
        assert!(matches!(endless, Err(LineError::TooLong)), "{endless:?}");
        assert!(matches!(read_line(&b"\xff\n"[..]), Err(LineError::Io(_))));
    }

    #[test]
    fn an_answer_is_bounded_and_ends_with_its_first_line() {
        let mut gathered = Gathered::default();
        assert!(!gathered.add(b"{\"ok\":"));
        assert!(gathered.add(b"1}\nmore"));
        assert_eq!(gathered.line(), b"{\"ok\":1}");
        let (mut endless, mut pieces) = (Gathered::default(), 0);
        while !endless.add(&[b'x'; 4096]) {
            pieces += 1;
        }
        assert_eq!(pieces, EACH_MAX / 4096);
    }

    #[test]
    fn a_state_is_read_whole_or_not_at_all() {
        let read = |length: u64, bytes: &[u8]| {
            let all = [&length.to_le_bytes()[..], bytes].concat();
            read_state(all.as_slice())
        };
        assert_eq!(read(3, b"abc").expect("whole"), b"abc");
        assert!(matches!(read(4, b"abc"), Err(StateError::Cut)));
        for length in [SAVED_BYTES_MAX as u64 + 1, u64::MAX] {
            assert!(matches!(read(length, b"abc"), Err(StateError::TooLong(_))));
        }
        let cut = read_state(&b"abc"[..]);
        assert!(matches!(cut, Err(StateError::Io(_))), "{cut:?}");
    }
}
