//! Real traffic: the results equal those of `ndpiReader` of the same version: flows, packets and bytes of each
//! protocol.

use nfluid_dpi::classifier::{Classifier, Limits, Total};
use nfluid_dpi::headers::Link;
use nfluid_dpi::library::Library;
use nfluid_gen::capture::{self, Capture};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/pcap");

type ByName = BTreeMap<String, Total>;

/// Returns the reason why the two cannot be compared here.
fn why_not() -> Option<&'static str> {
    let Ok(library) = Library::open() else {
        return Some("libndpi-dev was not installed when this was built, or libndpi is not now");
    };
    let Some(version) = reader_version() else {
        return Some("ndpiReader is not installed (libndpi-bin)");
    };
    assert_eq!(version, library.version(), "two versions of nDPI");
    None
}

/// A question for a name, by UDP over IPv4.
fn question() -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0, 47, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    packet.extend([0x13, 0x88, 0, 53, 0, 27, 0, 0]);
    packet.extend([
        0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1,
    ]);
    packet
}

/// A capture of a frame.
fn capture_of(frame: &[u8], path: &Path) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1, 1000, 0] {
        file.extend(u32::to_le_bytes(word));
    }
    for _ in 0..2 {
        file.extend((frame.len() as u32).to_le_bytes());
    }
    file.extend(frame);
    std::fs::write(path, file).expect("a file");
}

/// Catches: frames that are no plain IP, or contradict themselves, counted otherwise than by the reference.
// promise: 15.72
#[test]
fn odd_and_malformed_frames_are_classified_as_by_ndpireader() {
    if let Some(why) = why_not() {
        println!("SKIPPED odd_and_malformed_frames_are_classified_as_by_ndpireader: {why}");
        return;
    }
    let ip = question();
    let behind = |bytes: &[u8]| [&[2; 12], bytes, &ip].concat();
    let with = |at: usize, value: u8| {
        let mut frame = behind(&[8, 0]);
        frame[14 + at] = value;
        frame
    };
    let fabric_path = [&[0x89, 3, 0x10, 0x20][..], &[2; 12], &[8, 0]].concat();
    let frames = [
        behind(&[8, 0]),
        // FabricPath, and one whose tag begins as IP does.
        behind(&fabric_path),
        behind(&[0x89, 3]),
        behind(&[0x88, 0xb5]),
        behind(&[8, 6]),
        behind(&[0x86, 0xdd]),
        behind(&[0x81, 0, 0, 5, 0x88, 0xb5]),
        behind(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]),
        // LLC: with SNAP, of the spanning tree, other.
        behind(&[0, 55, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
        behind(&[0, 55, 0, 0xaa, 3, 0, 0, 0, 0x81, 0]),
        behind(&[0, 55, 0x42, 0x42, 3]),
        behind(&[0, 47]),
        behind(&[5, 0xf0]),
        behind(&[0x88, 0x47, 0, 1, 0x21, 0x40]),
        behind(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 0x30, 0, 0x21]),
        // Header length, total length, version, fragments, UDP's length.
        with(0, 0x40),
        with(0, 0x41),
        with(0, 0x44),
        with(0, 0x4f),
        with(0, 0x55),
        with(3, 0),
        with(3, 19),
        with(3, 24),
        with(3, 48),
        with(6, 0x20),
        with(7, 3),
        with(25, 0),
        with(25, 255),
        with(9, 4),
        with(9, 6),
        behind(&[8, 0])[..41].to_vec(),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("frame.pcap");
    let mut differ = String::new();
    for frame in frames {
        capture_of(&frame, &path);
        let (own, expected) = (classified(&path), reader(&path));
        if own != expected {
            differ += &format!("{frame:02x?}:\n  {own:?}\n  {expected:?}\n");
        }
    }
    assert!(differ.is_empty(), "ours, ndpiReader's:\n{differ}");
}

// promise: 15.21
#[test]
fn real_traffic_is_classified_as_by_ndpireader() {
    let skip = |why: &str| println!("SKIPPED real_traffic_is_classified_as_by_ndpireader: {why}");
    if let Some(why) = why_not() {
        return skip(why);
    }
    let Ok(entries) = std::fs::read_dir(CAPTURES) else {
        return skip("there are no captures");
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let mut differ = String::new();
    let mut protocols = BTreeMap::<String, u64>::new();
    for path in &paths {
        let (own, expected) = (classified(path), reader(path));
        for (name, total) in &own {
            *protocols.entry(name.clone()).or_default() += total.flows;
        }
        if own != expected {
            differ += &format!("{}:\n  {own:?}\n  {expected:?}\n", path.display());
        }
    }
    assert!(differ.is_empty(), "ours, ndpiReader's:\n{differ}");
    assert!(
        protocols.len() > 10,
        "little was to be recognised: {protocols:?}"
    );
}

/// The first line of its help.
fn reader_version() -> Option<String> {
    let help = Command::new("ndpiReader").arg("-h").output().ok()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let line = help
        .lines()
        .find_map(|line| line.strip_prefix("Welcome to nDPI "));
    line.map(|version| version.trim().to_owned())
}

/// Returns the program's figures of protocols: name, packets, bytes, flows.
fn reader(capture: &Path) -> ByName {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().join("results");
    let mut command = Command::new("ndpiReader");
    command
        .arg("-q")
        .arg("-i")
        .arg(capture)
        .arg("-w")
        .arg(&results);
    let ran = command.output().expect("it starts");
    assert!(ran.status.success(), "{}: {ran:?}", capture.display());
    let text = std::fs::read(results).expect("it has written them");
    let text = String::from_utf8_lossy(&text);
    let row = |line: &str| {
        let [name, packets, bytes, flows] = line.split('\t').collect::<Vec<_>>()[..] else {
            return None;
        };
        let total = Total {
            flows: flows.parse().ok()?,
            packets: packets.parse().ok()?,
            bytes: bytes.parse().ok()?,
        };
        Some((name.to_owned(), total))
    };
    text.lines().filter_map(row).collect()
}

fn classified(path: &Path) -> ByName {
    let library = Library::open().expect("it could be opened before");
    let limits = Limits {
        // `ndpiReader` forgets no flow of a file.
        idle: Duration::MAX,
        flows: usize::MAX,
        ..Limits::default()
    };
    let mut classifier = Classifier::new(library, limits);
    let mut capture = Capture::open(path).expect("a capture");
    while let Some(frame) = capture.next_frame().expect("it is whole") {
        let link = match frame.link {
            capture::Link::Ethernet => Link::Ethernet,
            capture::Link::Ip => Link::Ip,
            capture::Link::Cooked => Link::Cooked,
        };
        // `ndpiReader` counts, and trusts, the bytes that were kept.
        let length = frame.bytes.len() as u64;
        classifier.packet(frame.bytes, link, length, frame.time_ns / 1_000_000);
    }
    classifier.decide_all();
    let name = |id| classifier.library().name(id).expect("it has a name");
    let totals = classifier.totals().into_iter();
    totals.map(|(id, total)| (name(id), total)).collect()
}
