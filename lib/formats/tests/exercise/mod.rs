//! The bodies that the property tests and the fuzz targets share: formats with any content.

use nfluid_formats::answer::{
    AnswerError, Gathered, LineError, read_line, read_state, take_addresses, understood,
};
use nfluid_formats::frames::{MARK, check_beginning, frames, frames_in, whole_frames};
use nfluid_formats::message::{Message, MessageError};
use nfluid_formats::saved::Image;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

/// Reads a saved instance without its checksum, which is added, as a forger can do. A valid image is written as the
/// same bytes, and has a name that can be changed; an invalid image has neither. Returns true if the bytes are a
/// saved instance.
pub fn saved(bytes: &[u8]) -> bool {
    let _damaged = Image::parse(bytes);
    let summed = [bytes, &xxh3_64(bytes).to_le_bytes()].concat();
    let Ok(image) = Image::parse(&summed) else {
        return false;
    };
    let written = image.to_bytes().expect("what was read is short");
    assert_eq!(Image::parse(&written).expect("what was written"), image);
    for config in [None, Some(json!({ "rules": "" }))] {
        let mut clone = image.clone();
        if clone.rename("clone", config.clone()).is_ok() {
            assert_eq!(clone.name().expect("one instance"), "clone");
            let instance = &clone.document["instances"]["clone"];
            if config.is_some() {
                assert_eq!(instance.get("config"), config.as_ref());
            }
            assert!(instance["config"].get("seed").is_none());
        }
    }
    true
}

/// A conversation from another daemon, up to the first error: what is read is written as the same. Returns how many messages
/// were read.
pub fn messages(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    let mut read = 0;
    while let Ok(message) = Message::read(&mut rest) {
        read += 1;
        if let Message::Frames(bytes) = &message {
            frames_of(bytes);
        }
        if let Message::Refused(refusal) = &message {
            assert!(!refusal.to_string().trim().is_empty());
        }
        let mut written = Vec::new();
        match message.write(&mut written) {
            Ok(()) => {
                let again = Message::read(&mut written.as_slice());
                assert_eq!(again.expect("what was written"), message);
            }
            // Omitted members, and numbers, may be written in more bytes.
            Err(MessageError::TooLongToWrite { .. }) => assert!(bytes.len() > 100),
            Err(error) => panic!("{error}"),
        }
    }
    read
}

/// Whatever comes from an instance: as a line of an answer, at once and in pieces; as a state; as frames. Returns true if it
/// answers, be it with an error.
pub fn answers(bytes: &[u8]) -> bool {
    if let Ok(state) = read_state(bytes) {
        assert_eq!(state, bytes[8..8 + state.len()]);
    }
    frames_of(bytes);
    let mut gathered = Gathered::default();
    for piece in bytes.chunks(7) {
        if gathered.add(piece) {
            break;
        }
    }
    let line = match read_line(bytes) {
        Ok(line) => line,
        Err(LineError::Ended | LineError::TooLong) => return false,
        // No UTF-8: others read it as bytes.
        Err(LineError::Io(_)) => {
            let _refused = understood(gathered.line());
            return false;
        }
    };
    assert_eq!(gathered.line(), line.trim_end_matches('\n').as_bytes());
    let answer = understood(line.as_bytes());
    let pieced = understood(gathered.line());
    match answer {
        Ok(mut answer) => {
            assert_eq!(pieced.expect("the same line"), answer);
            let text = serde_json::to_vec(&answer).expect("JSON");
            let again: Value = serde_json::from_slice(&text).expect("JSON");
            assert_eq!(again, answer);
            assert!(take_addresses(&mut answer, 4).len() <= 4);
            true
        }
        Err(error) => {
            assert_eq!(
                pieced.expect_err("the same line").to_string(),
                error.to_string()
            );
            assert!(!error.to_string().trim().is_empty());
            matches!(error, AnswerError::Refused(_))
        }
    }
}

/// Frames as a whole and as a stream: the whole ones are frames, and what is behind them is a mark, the beginning of a frame,
/// or nothing that ever becomes one.
fn frames_of(bytes: &[u8]) {
    let whole = whole_frames(bytes);
    let found = frames_in(&bytes[..whole]).expect("whole frames");
    let copied = frames(&bytes[..whole]).expect("whole frames");
    let lengths = found.iter().map(|(_, frame)| MARK.len() + frame.len());
    assert_eq!(lengths.sum::<usize>(), whole);
    let same = copied.iter().map(|(port, frame)| (*port, frame.as_slice()));
    assert!(same.eq(found));
    let rest = &bytes[whole..];
    assert_eq!(frames(bytes).is_ok(), rest.is_empty());
    if rest.starts_with(&MARK) {
        assert!(check_beginning(rest).is_err());
    }
    if check_beginning(rest).is_ok() {
        assert!(rest.len() < MARK.len() + usize::from(u16::MAX));
    }
}
