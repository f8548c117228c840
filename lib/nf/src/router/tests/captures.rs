//! Real traffic crosses the router.

use super::*;
use crate::captures;
use nfluid_ring::layout::FRAME_MAX;

/// Each frame, addressed to the router, is forwarded with nothing but the hop count changed, or its
/// outcome is counted.
#[test]
fn captures_cross_or_are_counted() {
    let Some(files) = captures::files() else {
        return;
    };
    let mut two = ports(2);
    two[1].mtu = 2018;
    let mut router = Bench::on(&acquainted(), &two);
    let mut total = 0;
    for file in files {
        for mut frame in captures::frames_up_to(&file, FRAME_MAX) {
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
    captures::assert_enough(total as usize);
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
