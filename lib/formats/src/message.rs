//! Messages between two daemons: a kind (1 byte), a length (4, little-endian), and so many bytes.
//!
//! The source speaks first, and each of its words has one answer, but for frames. No length in it allocates anything: bytes
//! are kept as they come, and a message longer than its kind may be is refused before the first of them.

use crate::json::{self, JsonError};
use nfluid_api::types::SAVED_BYTES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::AddAssign;

/// The protocol version of this program.
pub const PROTOCOL: u32 = 2;
/// Longest message of a kind that carries no state, in bytes.
pub const TEXT_MAX: usize = 4 << 20;
/// Bytes that are sent with the head of their message.
const PIECE: usize = 16_000;
/// Longest list of frames in bytes.
pub const FRAMES_MAX: usize = 256 << 10;

/// Most addresses that are announced for an instance that moves.
pub const ADDRESSES_MAX: usize = 256;

/// A port of an instance, counted from 0, and an address that frames were for which came by it.
pub type Address = (u8, [u8; 6]);

/// Reason for which a message is not read, or not written.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// No message has this kind.
    #[error("there is no message {0}")]
    Unknown(u8),
    /// A message that comes is longer than a message of its kind may be.
    #[error("a message of {length} bytes, where {most} are the most")]
    TooLong {
        /// The length by the message's head.
        length: usize,
        /// The most bytes that a message of its kind may have.
        most: usize,
    },
    /// A message that is to be written is longer than a message of its kind may be.
    #[error("'{name}' has {length} bytes, more than the {most} that it may have")]
    TooLongToWrite {
        /// The message.
        name: &'static str,
        /// The length of the message.
        length: usize,
        /// The most bytes that a message of its kind may have.
        most: usize,
    },
    /// The other end has gone within a message.
    #[error("the connection was cut")]
    Cut,
    /// The bytes of the message mean nothing.
    #[error("message {kind} is not understood")]
    NotUnderstood {
        /// The kind of the message.
        kind: u8,
        /// The reason.
        source: JsonError,
    },
    /// The message cannot be written as JSON.
    #[error("'{name}' cannot be written")]
    NotWritten {
        /// The message.
        name: &'static str,
        /// The cause.
        source: serde_json::Error,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for MessageError {
    /// TLS says at length that the other end has gone without a farewell.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => MessageError::Cut,
            _ => MessageError::Io(error),
        }
    }
}

/// The instance that is to be moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The protocol; whatever else there is depends on it.
    pub protocol: u32,
    /// The id of this move and no other.
    pub id: String,
    /// The instance.
    pub name: String,
    /// A deployment with the instance, and its flavor, if that is the deployment's own.
    pub document: Value,
    /// The document of the instance with its links and chains.
    pub wires: Value,
    /// The names of its chains.
    pub chains: Vec<String>,
}

/// Result of restoring the entries of a state, or frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Entries that were taken over.
    pub taken: u64,
    /// Entries that were left out.
    pub left_out: u64,
}

impl AddAssign for Taken {
    fn add_assign(&mut self, more: Self) {
        self.taken += more.taken;
        self.left_out += more.left_out;
    }
}

/// Reason for which the target refuses a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// In words.
    pub why: String,
    /// The remedy.
    #[serde(default)]
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why.trim() {
            "" => f.write_str("the other daemon refuses and does not say why"),
            why => f.write_str(why),
        }
    }
}

/// A message of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Source: make this.
    Hello(Box<Hello>),
    /// Target: it is made and stands still.
    Prepared,
    /// Source: its state was this a moment ago.
    Rehearsal(Vec<u8>),
    /// Target: it has the memory for that, if it can.
    Rehearsed,
    /// Source: it stands still, and this is its state.
    State(Vec<u8>),
    /// Target: it has it.
    Ready(Taken),
    /// Source: it is yours; and these addresses were behind it lately, by port. From here on the source does not go on by itself.
    Go(Vec<Address>),
    /// Target: it goes on here.
    Started,
    /// Source: frames that waited, or still come: port (1), length (2), bytes.
    Frames(Vec<u8>),
    /// Source: those were all that waited; from now on the network may send to the target.
    Announce,
    /// Source: there are no more.
    End,
    /// Target: so many frames found room in the rings, and so many did not; and the target's part outlives a power
    /// cut.
    Kept(Taken),
    /// Source: it is gone here; the move can be forgotten.
    Done,
    /// Source, in another conversation: is the move with this id done?
    Ask(String),
    /// Target: it is, or it never will be.
    Verdict(bool),
    /// Target: no.
    Refused(Refusal),
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Message::Hello(_) => 1,
            Message::Prepared => 2,
            Message::State(_) => 3,
            Message::Ready(_) => 4,
            Message::Go(_) => 5,
            Message::Started => 6,
            Message::Frames(_) => 7,
            Message::End => 8,
            Message::Kept(_) => 9,
            Message::Done => 10,
            Message::Ask(_) => 11,
            Message::Verdict(_) => 12,
            Message::Refused(_) => 13,
            Message::Announce => 14,
            Message::Rehearsal(_) => 15,
            Message::Rehearsed => 16,
        }
    }

    /// Returns the name of the message, for errors.
    pub fn name(&self) -> &'static str {
        match self {
            Message::Hello(_) => "hello",
            Message::Prepared => "prepared",
            Message::State(_) => "state",
            Message::Ready(_) => "ready",
            Message::Go(_) => "go",
            Message::Started => "started",
            Message::Frames(_) => "frames",
            Message::End => "end",
            Message::Kept(_) => "kept",
            Message::Done => "done",
            Message::Ask(_) => "ask",
            Message::Verdict(_) => "verdict",
            Message::Refused(_) => "refused",
            Message::Announce => "announce",
            Message::Rehearsal(_) => "rehearsal",
            Message::Rehearsed => "rehearsed",
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// The message is too long, or the other end does not take it.
    pub fn write(&self, to: &mut impl Write) -> Result<(), MessageError> {
        let text;
        let bytes: &[u8] = match self {
            Message::State(bytes) | Message::Rehearsal(bytes) | Message::Frames(bytes) => bytes,
            _ => {
                let (name, written) = (self.name(), self.text());
                text = written.map_err(|source| MessageError::NotWritten { name, source })?;
                &text
            }
        };
        let (kind, length) = (self.kind(), bytes.len());
        let most = length_max(kind).ok_or(MessageError::Unknown(kind))?;
        if length > most {
            let name = self.name();
            return Err(MessageError::TooLongToWrite { name, length, most });
        }
        let mut start = vec![kind];
        start.extend((length as u32).to_le_bytes());
        // The message is sent in one piece as far as it is short: each piece is a packet.
        let (with_head, rest) = bytes.split_at(length.min(PIECE));
        start.extend(with_head);
        to.write_all(&start)?;
        to.write_all(rest)?;
        Ok(to.flush()?)
    }

    /// The JSON of a message that carries some.
    fn text(&self) -> serde_json::Result<Vec<u8>> {
        match self {
            Message::State(_)
            | Message::Rehearsal(_)
            | Message::Frames(_)
            | Message::Prepared
            | Message::Rehearsed
            | Message::Started
            | Message::Announce
            | Message::End
            | Message::Done => Ok(Vec::new()),
            Message::Go(addresses) => serde_json::to_vec(addresses),
            Message::Hello(hello) => serde_json::to_vec(hello),
            Message::Ready(taken) => serde_json::to_vec(taken),
            Message::Kept(frames) => serde_json::to_vec(frames),
            Message::Ask(id) => serde_json::to_vec(id),
            Message::Verdict(is_done) => serde_json::to_vec(is_done),
            Message::Refused(refusal) => serde_json::to_vec(refusal),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// The connection is cut, or the bytes are no message.
    pub fn read(from: &mut impl Read) -> Result<Self, MessageError> {
        let mut head = [0; 5];
        from.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        let most = length_max(kind).ok_or(MessageError::Unknown(kind))?;
        if length > most {
            return Err(MessageError::TooLong { length, most });
        }
        let mut bytes = Vec::new();
        from.take(length as u64).read_to_end(&mut bytes)?;
        if bytes.len() != length {
            return Err(MessageError::Cut);
        }
        let understood = Message::parse(kind, bytes);
        let understood =
            understood.map_err(|source| MessageError::NotUnderstood { kind, source })?;
        understood.ok_or(MessageError::Unknown(kind))
    }

    /// The message of a kind with these bytes; nothing if there is no such kind.
    fn parse(kind: u8, bytes: Vec<u8>) -> Result<Option<Self>, JsonError> {
        Ok(Some(match kind {
            1 => Message::Hello(Box::new(hello(&bytes)?)),
            2 => Message::Prepared,
            3 => Message::State(bytes),
            4 => Message::Ready(json::read(&bytes)?),
            5 => Message::Go(json::read(&bytes)?),
            6 => Message::Started,
            7 => Message::Frames(bytes),
            8 => Message::End,
            9 => Message::Kept(json::read(&bytes)?),
            10 => Message::Done,
            11 => Message::Ask(json::read(&bytes)?),
            12 => Message::Verdict(json::read(&bytes)?),
            13 => Message::Refused(json::read(&bytes)?),
            14 => Message::Announce,
            15 => Message::Rehearsal(bytes),
            16 => Message::Rehearsed,
            _ => return Ok(None),
        }))
    }
}

/// The protocol is looked at first: of another one, nothing else is known.
fn hello(bytes: &[u8]) -> Result<Hello, JsonError> {
    #[derive(Deserialize)]
    struct Version {
        protocol: u32,
    }
    let Version { protocol } = json::read(bytes)?;
    if protocol != PROTOCOL {
        return Ok(Hello {
            protocol,
            id: String::new(),
            name: String::new(),
            document: Value::Null,
            wires: Value::Null,
            chains: Vec::new(),
        });
    }
    json::read(bytes)
}

/// The most bytes that a message of a kind may have; nothing if there is no such kind.
fn length_max(kind: u8) -> Option<usize> {
    match kind {
        1 => Some(TEXT_MAX),
        2 | 6 | 8 | 10 | 14 | 16 => Some(0),
        5 => Some(64 << 10),
        3 | 15 => Some(SAVED_BYTES_MAX),
        4 | 9 | 11 | 12 => Some(256),
        7 => Some(FRAMES_MAX),
        13 => Some(64 << 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn all() -> Vec<Message> {
        vec![
            Message::Hello(Box::new(Hello {
                protocol: PROTOCOL,
                id: "7f".into(),
                name: "fw".into(),
                document: json!({ "version": 1 }),
                wires: json!({ "links": [] }),
                chains: vec!["web".into()],
            })),
            Message::Prepared,
            Message::Rehearsal(vec![1; 300_000]),
            Message::Rehearsed,
            Message::State(vec![1; 300_000]),
            Message::Ready(Taken {
                taken: 3,
                left_out: 1,
            }),
            Message::Go(vec![(1, [2, 0, 0, 0, 0, 9])]),
            Message::Started,
            Message::Frames(vec![2; 63]),
            Message::Announce,
            Message::End,
            Message::Kept(Taken::default()),
            Message::Done,
            Message::Ask("7f".into()),
            Message::Verdict(true),
            Message::Refused(Refusal {
                why: "full".into(),
                remedy: "make room".into(),
            }),
        ]
    }

    #[test]
    fn every_message_survives_the_way_through_bytes() {
        let mut bytes = Vec::new();
        for message in all() {
            message.write(&mut bytes).expect("short");
        }
        let mut rest = bytes.as_slice();
        for message in all() {
            assert_eq!(Message::read(&mut rest).expect("whole"), message);
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_message_that_is_cut_is_none() {
        for message in all() {
            let mut bytes = Vec::new();
            message.write(&mut bytes).expect("short");
            let step = (bytes.len() / 50).max(1);
            for cut in (0..bytes.len()).step_by(step) {
                Message::read(&mut &bytes[..cut]).expect_err("cut");
            }
        }
    }

    /// A reader that fails the test when it is read.
    struct Untouched;

    impl std::io::Read for Untouched {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            panic!("it is read behind a length that lies");
        }
    }

    /// Catches: a kind of message without a bound of its length.
    // promise: 5.38
    #[test]
    fn a_length_that_lies_is_refused_before_a_byte_is_read() {
        for kind in 0..=255 {
            let head = [kind, 0xff, 0xff, 0xff, 0x7f];
            let mut from = head.as_slice().chain(Untouched);
            Message::read(&mut from).expect_err("too long");
        }
    }

    #[test]
    fn of_another_protocol_only_its_number_is_looked_at() {
        let hello = serde_json::to_vec(&json!({ "protocol": 9, "unknown": [] })).expect("JSON");
        let mut bytes = vec![1];
        bytes.extend((hello.len() as u32).to_le_bytes());
        bytes.extend(hello);
        match Message::read(&mut bytes.as_slice()).expect("a hello") {
            Message::Hello(hello) => assert_eq!(hello.protocol, 9),
            other => panic!("{other:?}"),
        }
    }

    /// A hello with this for its document.
    fn hello_with(document: &str) -> Vec<u8> {
        let text = format!(
            r#"{{"protocol":{PROTOCOL},"id":"7f","name":"fw","document":{document},"wires":{{}},"chains":[]}}"#
        );
        let mut bytes = vec![1];
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    }

    // promise: 7.43
    #[test]
    fn a_hello_that_would_fill_the_memory_is_refused() {
        let objects = vec![r#"{"":0}"#; json::VALUES_MAX / 3 + 1].join(",");
        let bytes = hello_with(&format!("[{objects}]"));
        assert!(bytes.len() < TEXT_MAX);
        let refused = Message::read(&mut bytes.as_slice());
        let source = match refused {
            Err(MessageError::NotUnderstood { kind: 1, source }) => source,
            other => panic!("{:?}", other.map(|message| message.name())),
        };
        assert!(matches!(source, JsonError::TooManyValues), "{source}");
        Message::read(&mut hello_with("{}").as_slice()).expect("a hello");
    }

    #[test]
    fn a_refusal_without_a_reason_says_so() {
        let refusal = |why: &str| Refusal {
            why: why.into(),
            remedy: String::new(),
        };
        assert_eq!(refusal("full").to_string(), "full");
        for why in ["", " \n"] {
            let said = refusal(why).to_string();
            assert!(said.contains("does not say why"), "{said:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for kind in [1, 4, 5, 9, 11, 12, 13] {
            let mut bytes = vec![kind, 3, 0, 0, 0];
            bytes.extend(b"no!");
            Message::read(&mut bytes.as_slice()).expect_err("no JSON");
        }
    }
}
