//! A saved instance as bytes: its document, the state of its NF, the frames that waited in its rings.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `NFLIMAGE` |
//! | 2 | format |
//! | 4 + n | length of the document, and the document: a deployment with this instance alone, JSON |
//! | 8 + n | length of the state, and the state (`lib/nf/src/stateful/image.rs`) |
//! | 8 + n | length of the frames, and the frames: port (1), length (2), bytes |
//! | 8 + n | length of the addresses, and the addresses: port (1), MAC address (6); not in format 1 |
//! | 8 | XXH3-64 of everything before |
//!
//! Numbers are little-endian. The checksum finds damage, no forgery: nothing in it is believed when it is restored.

use crate::cut::{array, part};
use crate::frames::{FramesError, frames};
use crate::json::{self, JsonError};
use crate::message::{ADDRESSES_MAX, Address};
use nfluid_api::types::SAVED_BYTES_MAX;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

/// Format that this version writes.
const FORMAT: u16 = 2;
/// A format that this version reads as well.
const WITHOUT_ADDRESSES: u16 = 1;
/// Bytes of an address with its port.
const ADDRESS: usize = 7;
const MAGIC: &[u8; 8] = b"NFLIMAGE";

/// Reason for which there is no saved instance, or no clone of one.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The saved instance is longer than [`SAVED_BYTES_MAX`] and could not be restored.
    #[error(
        "the saved instance has {0} bytes, more than the {SAVED_BYTES_MAX} that can be restored"
    )]
    TooLong(usize),
    /// The bytes do not begin as a saved instance.
    #[error("this is no saved instance of nfluid")]
    Foreign,
    /// Another version has written the image.
    #[error(
        "the saved instance is of format {0}, this version reads formats {WITHOUT_ADDRESSES} and {FORMAT}"
    )]
    Format(u16),
    /// The checksum is not that of the bytes.
    #[error("the saved instance is damaged or not whole: its checksum is wrong")]
    Damaged,
    /// The bytes end within a part.
    #[error("it is not whole")]
    Cut,
    /// Bytes follow the last part.
    #[error("there is more in it than there should be")]
    More,
    /// The frames are malformed, or a frame to be written is longer than any frame.
    #[error(transparent)]
    Frames(#[from] FramesError),
    /// The document cannot be read, or not be written.
    #[error("what it says it is")]
    Document(#[source] JsonError),
    /// The document has not exactly one instance.
    #[error("the saved instance is not one")]
    NotOne,
    /// The instance in the document is not a JSON object.
    #[error("what the saved instance says of '{0}' is no object")]
    NoObject(String),
    /// A clone would have the addresses of its original.
    #[error(
        "its configuration says under '{0}' which IP addresses it has, and a clone is not to have the same"
    )]
    SameAddresses(&'static str),
}

/// The parts of a saved instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    /// A deployment with this instance alone, and the flavor that it has.
    pub document: Value,
    /// The state of its NF.
    pub state: Vec<u8>,
    /// The frames that waited, by the port's place in the specification.
    pub frames: Vec<(u8, Vec<u8>)>,
    /// The addresses that frames for the instance were for lately: at most [`ADDRESSES_MAX`] are read.
    pub addresses: Vec<Address>,
}

impl Image {
    /// As bytes.
    ///
    /// # Errors
    /// The instance has too many frames, or an entry is not a frame.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SavedError> {
        let document = serde_json::to_vec(&self.document)
            .map_err(|error| SavedError::Document(error.into()))?;
        let mut frames = Vec::new();
        for (port, frame) in &self.frames {
            let length = u16::try_from(frame.len());
            let length = length.map_err(|_| FramesError::Length(frame.len()))?;
            frames.push(*port);
            frames.extend(length.to_le_bytes());
            frames.extend(frame);
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend((document.len() as u32).to_le_bytes());
        bytes.extend(document);
        bytes.extend((self.state.len() as u64).to_le_bytes());
        bytes.extend(&self.state);
        bytes.extend((frames.len() as u64).to_le_bytes());
        bytes.extend(frames);
        bytes.extend(((self.addresses.len() * ADDRESS) as u64).to_le_bytes());
        for (port, mac) in &self.addresses {
            bytes.push(*port);
            bytes.extend(mac);
        }
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        check_length(&bytes)?;
        Ok(bytes)
    }

    /// From bytes.
    ///
    /// # Errors
    /// The bytes are no saved instance, of another format, or damaged.
    pub fn parse(bytes: &[u8]) -> Result<Self, SavedError> {
        check_length(bytes)?;
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(SavedError::Foreign)?;
        let format = u16::from_le_bytes(array(&mut rest).ok_or(SavedError::Cut)?);
        if !(WITHOUT_ADDRESSES..=FORMAT).contains(&format) {
            return Err(SavedError::Format(format));
        }
        let (summed, sum) = bytes.split_last_chunk().ok_or(SavedError::Cut)?;
        if u64::from_le_bytes(*sum) != xxh3_64(summed) {
            return Err(SavedError::Damaged);
        }
        let length = u32::from_le_bytes(array(&mut rest).ok_or(SavedError::Cut)?);
        let document = part(&mut rest, u64::from(length)).ok_or(SavedError::Cut)?;
        let state = long_part(&mut rest)?.to_vec();
        let frames = frames(long_part(&mut rest)?)?;
        let addresses = match format {
            WITHOUT_ADDRESSES => Vec::new(),
            _ => addresses(long_part(&mut rest)?)?,
        };
        if rest.len() != size_of::<u64>() {
            return Err(SavedError::More);
        }
        Ok(Image {
            document: json::read(document).map_err(SavedError::Document)?,
            state,
            frames,
            addresses,
        })
    }

    /// The instance's name.
    ///
    /// # Errors
    /// The document has not one instance.
    pub fn name(&self) -> Result<&str, SavedError> {
        let instances = self.document.get("instances").and_then(Value::as_object);
        let mut names = instances.into_iter().flat_map(|all| all.keys());
        match (names.next(), names.next()) {
            (Some(name), None) => Ok(name),
            _ => Err(SavedError::NotOne),
        }
    }

    /// Turns it into a clone: another name, no MAC address and no seed of its own, nothing behind it, and `config`, if that is given.
    ///
    /// # Errors
    /// As for [`Image::name`]; or the instance is no object; or its configuration says IP addresses of its own, and `config`
    /// is not given.
    pub fn rename(&mut self, name: &str, config: Option<Value>) -> Result<(), SavedError> {
        let before = self.name()?.to_owned();
        if before != name {
            self.addresses.clear();
        }
        let instances = self
            .document
            .get_mut("instances")
            .and_then(Value::as_object_mut);
        let instances = instances.ok_or(SavedError::NotOne)?;
        let mut instance = instances.remove(&before).unwrap_or_default();
        // Only an object can be given a configuration.
        if !instance.is_object() {
            return Err(SavedError::NoObject(before));
        }
        if let Some(config) = instance.get_mut("config").and_then(Value::as_object_mut) {
            config.remove("seed");
        }
        for port in ports_of(&mut instance) {
            port.remove("mac");
        }
        match config {
            Some(config) => instance["config"] = config,
            None => check_addresses(&instance)?,
        }
        instances.insert(name.to_owned(), instance);
        Ok(())
    }

    /// Turns it into another instance, which has its state and its frames alone; if it has its name as well, what was behind it is behind
    /// the other.
    pub fn become_another(&mut self, name: &str, instance: Value) {
        if self.name().ok() != Some(name) {
            self.addresses.clear();
        }
        self.document = json!({ "version": 1, "instances": { name: instance } });
    }
}

/// Checks the settings that a clone must not share with its original: the keys of the configuration that have its IP
/// addresses.
///
/// # Errors
/// The configuration has such addresses.
fn check_addresses(instance: &Value) -> Result<(), SavedError> {
    let nf = instance.get("nf").and_then(Value::as_str);
    let entry = nf.and_then(nfluid_nf::catalogue::find);
    let keys = entry.map_or(&[][..], |entry| entry.addresses);
    let config = instance.get("config");
    for key in keys {
        if config.and_then(|config| config.get(*key)).is_some() {
            return Err(SavedError::SameAddresses(key));
        }
    }
    Ok(())
}

fn ports_of(instance: &mut Value) -> impl Iterator<Item = &mut serde_json::Map<String, Value>> {
    let (list, map) = match instance.get_mut("ports") {
        Some(Value::Array(list)) => (Some(list), None),
        Some(Value::Object(map)) => (None, Some(map)),
        _ => (None, None),
    };
    let listed = list.into_iter().flatten();
    let named = map.into_iter().flat_map(|map| map.values_mut());
    listed.chain(named).filter_map(Value::as_object_mut)
}

fn check_length(bytes: &[u8]) -> Result<(), SavedError> {
    if bytes.len() > SAVED_BYTES_MAX {
        return Err(SavedError::TooLong(bytes.len()));
    }
    Ok(())
}

/// Reads addresses with their ports.
///
/// # Errors
/// The bytes are not whole addresses.
fn addresses(bytes: &[u8]) -> Result<Vec<Address>, SavedError> {
    let (all, []) = bytes.as_chunks::<ADDRESS>() else {
        return Err(SavedError::Cut);
    };
    let read = |&[port, a, b, c, d, e, f]: &[u8; ADDRESS]| (port, [a, b, c, d, e, f]);
    Ok(all.iter().take(ADDRESSES_MAX).map(read).collect())
}

/// A part behind its length of 8 bytes.
fn long_part<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], SavedError> {
    let length = u64::from_le_bytes(array(rest).ok_or(SavedError::Cut)?);
    part(rest, length).ok_or(SavedError::Cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        let port = json!({ "name": "in", "mac": "02:00:00:00:00:01" });
        let fw = json!({ "nf": "firewall", "config": { "seed": 7, "rules": "" }, "ports": [port] });
        Image {
            document: json!({ "version": 1, "instances": { "fw": fw } }),
            state: (0..500u32).map(|i| i as u8).collect(),
            frames: vec![(0, vec![1; 60]), (1, vec![2; 1514])],
            addresses: vec![(0, [2, 0, 0, 0, 0, 7]), (1, [2, 0, 0, 0, 0, 9])],
        }
    }

    // promise: 5.9
    #[test]
    fn an_image_survives_the_way_through_bytes() {
        let bytes = image().to_bytes().expect("short");
        assert_eq!(Image::parse(&bytes).expect("valid"), image());
    }

    // promise: 5.9
    #[test]
    fn an_image_of_the_first_format_is_read() {
        let without = Image {
            addresses: Vec::new(),
            ..image()
        };
        let mut bytes = without.to_bytes().expect("short");
        // The checksum, and the length of no addresses.
        bytes.truncate(bytes.len() - 16);
        bytes[8] = 1;
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        assert_eq!(Image::parse(&bytes).expect("valid"), without);
    }

    #[test]
    fn what_is_behind_an_instance_is_not_behind_its_clone() {
        for (name, is_kept) in [("fw", true), ("clone", false)] {
            let (mut renamed, mut another) = (image(), image());
            renamed.rename(name, Some(json!({}))).expect("an instance");
            another.become_another(name, json!({}));
            for it in [renamed, another] {
                assert_eq!(it.addresses.is_empty(), !is_kept, "{name}");
            }
        }
    }

    // promise: 5.10
    #[test]
    fn cut_damaged_foreign_and_old_images_are_refused_with_their_reason() {
        let bytes = image().to_bytes().expect("short");
        for cut in 0..bytes.len() {
            Image::parse(&bytes[..cut]).expect_err("cut");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            Image::parse(&damaged).expect_err("damaged");
        }
        let why = |bytes: &[u8]| Image::parse(bytes).expect_err("refused").to_string();
        assert!(why(b"PK\x03\x04").contains("no saved instance"));
        let mut old = bytes.clone();
        old[8] = 0;
        assert!(why(&old).contains("format 0"), "{}", why(&old));
        assert!(why(&bytes[..bytes.len() - 20]).contains("checksum"));
    }

    // promise: 5.10
    #[test]
    fn lengths_that_lie_are_refused() {
        let bytes = image().to_bytes().expect("short");
        let end = bytes.len() - 8;
        for at in 10..end {
            let mut forged = bytes.clone();
            forged[at] = 0xff;
            let sum = xxh3_64(&forged[..end]).to_le_bytes();
            forged[end..].copy_from_slice(&sum);
            // Refused or not: nothing panics.
            if let Ok(image) = Image::parse(&forged) {
                let _ = image.name();
            }
        }
    }

    /// An image with this document, whose checksum is right.
    fn forged(document: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend((document.len() as u32).to_le_bytes());
        bytes.extend(document.as_bytes());
        bytes.extend([0; 24]);
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    // promise: 7.43
    #[test]
    fn a_document_that_would_fill_the_memory_is_refused() {
        let objects = vec![r#"{"":0}"#; json::VALUES_MAX / 3 + 1].join(",");
        let refused = Image::parse(&forged(&format!("[{objects}]")));
        assert!(
            matches!(refused, Err(SavedError::Document(JsonError::TooManyValues))),
            "{refused:?}"
        );
        let one = Image::parse(&forged(r#"{ "instances": { "fw": {} } }"#));
        assert_eq!(one.expect("valid").name().expect("one"), "fw");
    }

    // promise: 7.43
    #[test]
    fn an_instance_that_is_no_object_is_not_renamed() {
        for instance in ["7", "[]", "null", "\"fw\""] {
            let document = format!(r#"{{ "instances": {{ "fw": {instance} }} }}"#);
            let image = Image::parse(&forged(&document)).expect("valid JSON");
            for config in [None, Some(json!({}))] {
                let refused = image.clone().rename("fw2", config);
                assert!(
                    matches!(&refused, Err(SavedError::NoObject(name)) if name == "fw"),
                    "{instance}: {refused:?}"
                );
            }
        }
    }

    // promise: 5.9
    #[test]
    fn another_instance_has_the_state_and_the_frames_alone() {
        let mut other = image();
        let keys = json!({ "nf": "firewall", "ports": { "in": { "mac": "02:00:00:00:00:02" } } });
        other.become_another("fw2", keys.clone());
        assert_eq!(other.name().expect("one"), "fw2");
        assert_eq!(other.document["instances"]["fw2"], keys);
        assert_eq!((other.state, other.frames), (image().state, image().frames));
    }

    #[test]
    fn a_frame_that_is_longer_than_its_length_can_say_is_not_written() {
        let mut saved = image();
        saved.frames.push((0, vec![0; 1 << 16]));
        let refused = saved.to_bytes();
        assert!(matches!(
            refused,
            Err(SavedError::Frames(FramesError::Length(65_536)))
        ));
    }

    #[test]
    fn floats_are_restored_to_their_last_digit() {
        let mut saved = image();
        saved.document["instances"]["fw"]["weight"] = json!(-4.076_589_335_154_937_4e-163);
        let bytes = saved.to_bytes().expect("short");
        assert_eq!(Image::parse(&bytes).expect("valid"), saved);
    }

    // promise: 5.9
    #[test]
    fn a_clone_has_neither_address_nor_seed_of_the_original() {
        let mut clone = image();
        clone.rename("fw2", None).expect("one instance");
        assert_eq!(clone.name().expect("one"), "fw2");
        let instance = &clone.document["instances"]["fw2"];
        assert_eq!(instance["ports"][0], json!({ "name": "in" }));
        assert_eq!(instance["config"], json!({ "rules": "" }));
    }

    // promise: 5.9
    #[test]
    fn a_clone_needs_ip_addresses_of_its_own() {
        let router = |address: &str| json!({ "addresses": { "in": [address] } });
        let mut saved = image();
        saved.document["instances"] =
            json!({ "r": { "nf": "router", "config": router("192.0.2.1/24") } });
        let why = saved
            .clone()
            .rename("r2", None)
            .expect_err("the same addresses");
        assert!(why.to_string().contains("'addresses'"), "{why}");
        let own = router("192.0.2.2/24");
        saved.rename("r2", Some(own.clone())).expect("its own");
        assert_eq!(saved.document["instances"]["r2"]["config"], own);
        let nat = json!({ "nf": "nat", "config": { "pool": ["203.0.113.1"] } });
        check_addresses(&nat).expect_err("its outside addresses");
        check_addresses(&json!({ "program": "/bin/own", "config": { "pool": 1 } }))
            .expect("not known");
    }
}
