//! Real traffic: what is said of it is what `ndpiReader` of the same version says - flows, packets and bytes of each protocol.

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

#[test]
fn real_traffic_is_classified_as_by_ndpireader() {
    let skip = |why: &str| println!("SKIPPED real_traffic_is_classified_as_by_ndpireader: {why}");
    let Ok(library) = Library::open() else {
        return skip("libndpi-dev was not installed when this was built, or libndpi is not now");
    };
    let Some(version) = reader_version() else {
        return skip("ndpiReader is not installed (libndpi-bin)");
    };
    assert_eq!(version, library.version(), "two versions of nDPI");
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

/// What it writes of protocols: name, packets, bytes, flows.
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
