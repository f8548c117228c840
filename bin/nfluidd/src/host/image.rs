//! A saved instance as bytes: what it is, the state of its NF, the frames that waited in its rings.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `NFLIMAGE` |
//! | 2 | format |
//! | 4 + n | length of the document, and the document: a deployment with this instance alone, JSON |
//! | 8 + n | length of the state, and the state (`lib/nf/src/stateful/image.rs`) |
//! | 8 + n | length of the frames, and the frames: port (1), length (2), bytes |
//! | 8 | XXH3-64 of everything before |
//!
//! Numbers are little-endian. The checksum finds damage, no forgery: nothing in it is believed when it is restored.

use anyhow::{Context, bail, ensure};
use nfluid_api::types::SAVED_BYTES_MAX;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

/// Format that this version writes and reads.
const FORMAT: u16 = 1;
const MAGIC: &[u8; 8] = b"NFLIMAGE";
/// Longest and shortest frame.
const FRAME: std::ops::RangeInclusive<usize> =
    nfluid_ring::layout::FRAME_MIN..=nfluid_ring::layout::FRAME_MAX;

/// What there is of a saved instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    /// A deployment with this instance alone, and the flavor that it has.
    pub document: Value,
    /// The state of its NF.
    pub state: Vec<u8>,
    /// The frames that waited, by the port's place in the specification.
    pub frames: Vec<(u8, Vec<u8>)>,
}

impl Image {
    /// As bytes.
    ///
    /// # Errors
    /// They are too many.
    pub fn to_bytes(&self) -> anyhow::Result<Vec<u8>> {
        let document = serde_json::to_vec(&self.document)?;
        let mut frames = Vec::new();
        for (port, frame) in &self.frames {
            frames.push(*port);
            frames.extend((frame.len() as u16).to_le_bytes());
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
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        ensure!(
            bytes.len() <= SAVED_BYTES_MAX,
            "the saved instance has {} bytes, more than the {SAVED_BYTES_MAX} that can be restored",
            bytes.len()
        );
        Ok(bytes)
    }

    /// From bytes.
    ///
    /// # Errors
    /// They are no saved instance, of another format, or damaged.
    pub fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        ensure!(
            bytes.len() <= SAVED_BYTES_MAX,
            "it is longer than {SAVED_BYTES_MAX} bytes"
        );
        let mut rest = bytes
            .strip_prefix(MAGIC)
            .context("this is no saved instance of nfluid")?;
        let format = u16::from_le_bytes(array(&mut rest)?);
        ensure!(
            format == FORMAT,
            "the saved instance is of format {format}, this version reads format {FORMAT}"
        );
        let (summed, sum) = bytes.split_last_chunk().context("it is not whole")?;
        if u64::from_le_bytes(*sum) != xxh3_64(summed) {
            bail!("the saved instance is damaged or not whole: its checksum is wrong");
        }
        let length = u64::from(u32::from_le_bytes(array(&mut rest)?));
        let document = part(&mut rest, length)?;
        let length = u64::from_le_bytes(array(&mut rest)?);
        let state = part(&mut rest, length)?.to_vec();
        let length = u64::from_le_bytes(array(&mut rest)?);
        let frames = frames(part(&mut rest, length)?)?;
        ensure!(
            rest.len() == size_of::<u64>(),
            "there is more in it than there should be"
        );
        Ok(Image {
            document: serde_json::from_slice(document).context("what it says it is")?,
            state,
            frames,
        })
    }

    /// The instance's name.
    ///
    /// # Errors
    /// The document has not one instance.
    pub fn name(&self) -> anyhow::Result<&str> {
        let instances = self.document.get("instances").and_then(Value::as_object);
        let mut names = instances.into_iter().flat_map(|all| all.keys());
        match (names.next(), names.next()) {
            (Some(name), None) => Ok(name),
            _ => bail!("the saved instance is not one"),
        }
    }

    /// Turns it into a clone: another name, no MAC address and no seed of its own, and `config`, if that is given.
    ///
    /// # Errors
    /// As for [`Image::name`]; or its configuration says IP addresses of its own, and `config` is not given.
    pub fn rename(&mut self, name: &str, config: Option<Value>) -> anyhow::Result<()> {
        let before = self.name()?.to_owned();
        let instances = self
            .document
            .get_mut("instances")
            .and_then(Value::as_object_mut);
        let instances = instances.context("the saved instance is not one")?;
        let mut instance = instances.remove(&before).unwrap_or_default();
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
}

/// What a clone is not to have in common with its original: the keys of its configuration under which it says its IP addresses.
///
/// # Errors
/// It has some.
pub fn check_addresses(instance: &Value) -> anyhow::Result<()> {
    let nf = instance.get("nf").and_then(Value::as_str);
    let entry = nf.and_then(nfluid_nf::catalogue::find);
    let keys = entry.map_or(&[][..], |entry| entry.addresses);
    let config = instance.get("config");
    for key in keys {
        ensure!(
            config.and_then(|config| config.get(*key)).is_none(),
            "its configuration says under '{key}' which IP addresses it has, and a clone is not to have the same"
        );
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

/// Frames one behind the other, as an instance writes them.
///
/// # Errors
/// One is none.
pub fn frames(bytes: &[u8]) -> anyhow::Result<Vec<(u8, Vec<u8>)>> {
    let frames = frames_in(bytes)?.into_iter();
    Ok(frames.map(|(port, frame)| (port, frame.to_vec())).collect())
}

/// As [`frames`], where they lie.
///
/// # Errors
/// One is none.
pub fn frames_in(mut bytes: &[u8]) -> anyhow::Result<Vec<(u8, &[u8])>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let [port] = array(&mut bytes)?;
        let length = usize::from(u16::from_le_bytes(array(&mut bytes)?));
        ensure!(FRAME.contains(&length), "a frame of {length} bytes is none");
        all.push((port, part(&mut bytes, length as u64)?));
    }
    Ok(all)
}

/// What an instance that leaves writes when it has written all that waited: no frame is as short.
pub const MARK: [u8; 3] = [0; 3];

/// How many of the first bytes are whole frames, as an instance writes them; at most as far as what is none, as a [`MARK`].
pub fn whole_frames(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(length) = length_at(bytes, whole) {
        let end = whole + MARK.len() + length;
        if !FRAME.contains(&length) || end > bytes.len() {
            break;
        }
        whole = end;
    }
    whole
}

/// That these bytes may become a frame: it is no use to wait for more of what is none.
///
/// # Errors
/// They never will.
pub fn check_beginning(bytes: &[u8]) -> anyhow::Result<()> {
    match length_at(bytes, 0) {
        Some(length) if !FRAME.contains(&length) => bail!("a frame of {length} bytes is none"),
        _ => Ok(()),
    }
}

/// The length that a frame has by its head, once that is there.
fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    let length = bytes.get(at + 1..)?.first_chunk()?;
    Some(usize::from(u16::from_le_bytes(*length)))
}

fn array<const N: usize>(rest: &mut &[u8]) -> anyhow::Result<[u8; N]> {
    let (first, after) = rest.split_first_chunk().context("it is not whole")?;
    *rest = after;
    Ok(*first)
}

fn part<'a>(rest: &mut &'a [u8], length: u64) -> anyhow::Result<&'a [u8]> {
    let length = usize::try_from(length).context("it is not whole")?;
    let (first, after) = rest.split_at_checked(length).context("it is not whole")?;
    *rest = after;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn image() -> Image {
        let port = json!({ "name": "in", "mac": "02:00:00:00:00:01" });
        let fw = json!({ "nf": "firewall", "config": { "seed": 7, "rules": "" }, "ports": [port] });
        Image {
            document: json!({ "version": 1, "instances": { "fw": fw } }),
            state: (0..500u32).map(|i| i as u8).collect(),
            frames: vec![(0, vec![1; 60]), (1, vec![2; 1514])],
        }
    }

    #[test]
    fn an_image_survives_the_way_through_bytes() {
        let bytes = image().to_bytes().expect("short");
        assert_eq!(Image::parse(&bytes).expect("valid"), image());
    }

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
        let why = |bytes: &[u8]| format!("{:#}", Image::parse(bytes).expect_err("refused"));
        assert!(why(b"PK\x03\x04").contains("no saved instance"));
        let mut old = bytes.clone();
        old[8] = 0;
        assert!(why(&old).contains("format 0"), "{}", why(&old));
        assert!(why(&bytes[..bytes.len() - 20]).contains("checksum"));
    }

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
        frames(&[0, 13, 0]).expect_err("too short for a frame");
        frames(&[0, 60, 0, 1, 2, 3]).expect_err("cut");
    }

    #[test]
    fn a_stream_is_cut_between_frames() {
        let one = [&[0, 60, 0][..], &[1; 60]].concat();
        let both = [one.as_slice(), &[1, 20, 0], &[2; 20]].concat();
        for cut in 0..both.len() {
            let expected = if cut < one.len() { 0 } else { one.len() };
            assert_eq!(whole_frames(&both[..cut]), expected, "{cut}");
        }
        assert_eq!(whole_frames(&both), both.len());
    }

    #[test]
    fn what_never_becomes_a_frame_is_told_by_its_head() {
        for may_be in [&[][..], &[0], &[0, 60], &[9, 60, 0, 1], &[0, 0xf0, 7]] {
            check_beginning(may_be).expect("it may");
        }
        let too_long = FRAME.end() + 1;
        let [low, high] = (too_long as u16).to_le_bytes();
        for never in [[1, 0, 0], [0, 13, 0], [0, low, high], [0, 0xff, 0xff]] {
            check_beginning(&never).expect_err("never");
            let stream = [never.as_slice(), &[0; 70_000]].concat();
            assert_eq!(whole_frames(&stream), 0, "{never:?}");
        }
    }

    #[test]
    fn a_clone_has_neither_address_nor_seed_of_the_original() {
        let mut clone = image();
        clone.rename("fw2", None).expect("one instance");
        assert_eq!(clone.name().expect("one"), "fw2");
        let instance = &clone.document["instances"]["fw2"];
        assert_eq!(instance["ports"][0], json!({ "name": "in" }));
        assert_eq!(instance["config"], json!({ "rules": "" }));
    }

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
