//! Real traffic crosses the router.

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
            if let Block::EnhancedPacket(packet) = block {
                frames.push(packet.data.into_owned());
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

/// Each frame, addressed to the router, is forwarded with nothing but the hop count changed, or its
/// outcome is counted.
#[test]
fn captures_cross_or_are_counted() {
    let Ok(directory) = std::fs::read_dir(CAPTURES) else {
        std::eprintln!("SKIPPED: no captures in {CAPTURES}");
        return;
    };
    let mut two = ports(2);
    two[1].mtu = 2018;
    let mut router = Bench::on(&acquainted(), &two);
    let mut total = 0;
    for entry in directory {
        for mut frame in frames_of(&entry.expect("an entry").path()) {
            frame[..6].copy_from_slice(&P0.0);
            total += 1;
            router.now.0 += 1_000_000;
            for (port, sent) in router.send(0, frame.clone()) {
                if port == 1 && link(&sent).2 != EtherType::ARP && link(&sent).0 == GATEWAY {
                    assert_crossed(&frame, &sent);
                }
            }
        }
    }
    assert!(total > 1000, "only {total} frames in {CAPTURES}");
    let outcomes = ["forwarded", "consumed", "waited", "dropped"];
    let counted = |outcome: &str| router.metric(&std::format!("packets_{outcome}_total"), None);
    assert_eq!(outcomes.map(counted).iter().sum::<u64>(), total);
    let forwarded = counted("forwarded");
    assert!(forwarded > total / 2, "{forwarded} of {total} forwarded");
}

fn assert_crossed(before: &[u8], after: &[u8]) {
    let mut expected = before.to_vec();
    if link(after).2 == EtherType::IPV4 {
        if Ipv4Packet::new_unchecked(&before[14..]).protocol() == IpProtocol::ICMPV4
            && ipv4(after).src() == Ipv4Addr::new(10, 0, 1, 1)
        {
            return;
        }
        assert_eq!(
            Ipv4Packet::new_unchecked(&mut expected[14..]).decrement_ttl(),
            Some(ipv4(after).ttl())
        );
    } else {
        expected[21] -= 1;
    }
    assert_eq!(after[14..], expected[14..after.len()]);
}
