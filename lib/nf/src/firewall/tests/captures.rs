//! Real traffic crosses the firewall.

use super::*;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use std::path::Path;

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/pcap");

fn frames_of(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).expect("readable");
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
        let mut reader = PcapReader::new(&file[..]).expect("a pcap file");
        while let Some(Ok(packet)) = reader.next_packet() {
            frames.push(packet.data.into_owned());
        }
    }
    frames.retain(|frame| (14..=2032).contains(&frame.len()));
    frames
}

/// Each frame passes unchanged or is counted as dropped, whatever the rules.
#[test]
fn captures_cross_unchanged_or_are_counted() {
    let Ok(directory) = std::fs::read_dir(CAPTURES) else {
        std::eprintln!("SKIPPED: no captures in {CAPTURES}");
        return;
    };
    let many: String = (0..300)
        .map(|i| {
            format!(
                "deny tcp from 250.{}.0.0/16 to any {i}-{}\n",
                i % 200,
                i * 3
            )
        })
        .collect();
    let stateful = "deny ip from any to any frag
         reject udp from any to any 53
         allow ip from any to any out keep-state max 500
         allow tcp from any to any established
         deny icmp from any to any";
    let configs = [
        json!({"default": "allow", "non_ip": "allow"}),
        json!({ "rules": stateful, "states": {"max": 700} }),
        json!({ "rules": many + stateful, "default": "allow" }),
    ];
    let mut total = 0;
    for entry in directory {
        let frames = frames_of(&entry.expect("an entry").path());
        total += frames.len();
        for config in &configs {
            cross(&mut Bench::new(config.clone()), &frames);
        }
    }
    assert!(total > 1000, "only {total} frames in {CAPTURES}");
}

fn cross(fw: &mut Bench, frames: &[Vec<u8>]) {
    let mut forwarded = 0;
    for (index, frame) in frames.iter().enumerate() {
        let port = (index % 2) as u8;
        fw.now.0 += 1_000_000;
        for (to, sent) in fw.sent(port, frame) {
            if to == port {
                continue;
            }
            assert_eq!(&sent, frame, "changed on the way");
            forwarded += 1;
        }
    }
    let dropped: u64 = [
        "rule",
        "rejected",
        "default",
        "non_ip",
        "malformed",
        "state_table_full",
        "state_rule_limit",
        "state_source_limit",
    ]
    .map(|reason| fw.dropped(reason))
    .iter()
    .sum();
    assert_eq!(forwarded + dropped, frames.len() as u64);
}
