//! Captures of real traffic, for tests.

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use std::path::{Path, PathBuf};
use std::vec::Vec;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/pcap");
/// Fewest frames of all captures together for a meaningful test.
const FRAMES_MIN: usize = 1000;

/// Returns the captures in the order of their names; `None`, after a message, where there are none.
pub fn files() -> Option<Vec<PathBuf>> {
    let Ok(folder) = std::fs::read_dir(FOLDER) else {
        std::eprintln!("SKIPPED: no captures in {FOLDER}");
        return None;
    };
    let mut files: Vec<PathBuf> = folder
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    files.sort();
    Some(files)
}

/// Returns the frames of a capture.
pub fn frames(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).expect("a readable capture");
    let mut frames = Vec::new();
    if let Ok(mut reader) = PcapNgReader::new(&file[..]) {
        while let Some(Ok(block)) = reader.next_block() {
            match block {
                Block::EnhancedPacket(packet) => frames.push(packet.data.into_owned()),
                Block::SimplePacket(packet) => frames.push(packet.data.into_owned()),
                _ => {}
            }
        }
    } else {
        let mut reader = PcapReader::new(&file[..]).expect("a pcap or pcapng file");
        while let Some(Ok(packet)) = reader.next_packet() {
            frames.push(packet.data.into_owned());
        }
    }
    frames
}

/// Returns the frames of a capture that have at most `max` bytes.
pub fn frames_up_to(path: &Path, max: usize) -> Vec<Vec<u8>> {
    let mut frames = frames(path);
    frames.retain(|frame| (14..=max).contains(&frame.len()));
    frames
}

/// Asserts that the captures have had enough frames for the test.
pub fn assert_enough(frames: usize) {
    assert!(frames > FRAMES_MIN, "only {frames} frames in {FOLDER}");
}
